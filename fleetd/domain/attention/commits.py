"""Commits: which staged files another agent has locked, or changed last."""

from collections import defaultdict
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ...protocol.requests.commit import CommitCheck, CommitVerdict, OthersFile
from ..cluster.membership import agent_label
from ..core.context import Context
from ..core.mappers import lock_of
from ..core.sql import LIVING
from ..core.tx import Row, Tx
from ..liveness.process_identity import agents_of_process
from ..locks import leases
from ..locks.targets import Target, overlap, parents, target_of
from .conflicts import HOUR_MS
from .running import leading_agent

_paths = msgspec.json.Decoder(list[str]).decode


def check_commit(tx: Tx, ctx: Context, request: CommitCheck) -> CommitVerdict:
    """Return who commits, and which of the files belong to another living agent.

    The facts have the processes above the caller, and the keys of the working tree's root.
    """
    committer = _committer(tx, ctx, request.agent_id)
    own = leading_agent(tx, committer["id"]) if committer else None
    held = _Held(tx, ctx, own)
    changed = _changed(tx, ctx, own)
    files = []
    for file in request.files:
        lock = held.on(file)
        edit = changed.get(f"{ctx.facts.worktree_keys[0]}{file}")
        other = lock["held_by"] if lock else edit["agent_id"] if edit else None
        if other is not None:
            files.append(
                OthersFile(
                    file=file,
                    agent_id=other,
                    agent=agent_label(tx, ctx, other),
                    lock=lock_of(lock) if lock else None,
                    changed_at=edit["at"] if edit else None,
                )
            )
    return CommitVerdict(
        agent_id=committer["id"] if committer else None,
        session_id=committer["session_id"] if committer else None,
        files=files,
    )


def _committer(tx: Tx, ctx: Context, agent_id: str | None) -> Row | None:
    """Return the agent that commits, None for a person."""
    if agent_id is not None:
        named = f"SELECT * FROM agents WHERE id = :id AND status IN {LIVING}"
        if row := tx.one(named, id=agent_id):
            return row
    for pid, started in ctx.facts.ancestors:
        facts = replace(ctx.facts, agent_pid=pid, pid_started=started)
        if found := agents_of_process(tx, replace(ctx, facts=facts)):
            return found[0]
    return None


class _Held:
    """The locks of others in a working tree."""

    def __init__(self, tx: Tx, ctx: Context, own: str | None) -> None:
        self._keys = ctx.facts.worktree_keys
        self._files: dict[str, Row] = {}
        self._wide: dict[str, list[Row]] = defaultdict(list)
        for row in self._rows(tx, ctx):
            if leading_agent(tx, row["held_by"]) == own:
                continue
            if row["directory"] is None:
                self._files[row["normalized_path"]] = row
            else:
                self._wide[row["directory"]].append(row)

    def _rows(self, tx: Tx, ctx: Context) -> Iterator[Row]:
        for key in dict.fromkeys(self._keys):
            for row in leases.look(tx, Target(path=key, directory=key)).held:
                if row["expires_at"] > ctx.now:
                    yield row

    def on(self, file: str) -> Row | None:
        """Return a lock that covers a file of the working tree."""
        for key in (f"{each}{file}" for each in self._keys):
            if key in self._files:
                return self._files[key]
            for directory in parents(key) if self._wide else ():
                for row in self._wide.get(directory, ()):
                    if overlap(target_of(row), Target(path=key)):
                        return row
        return None


def _changed(tx: Tx, ctx: Context, own: str | None) -> dict[str, Row]:
    """Return the last changes to files of the working tree that others made, by path.

    An open call that is about to change a file counts as a change: it may be in progress.
    """
    begin = ctx.facts.worktree_keys[0]
    rows = tx.all(
        "SELECT e.path, e.agent_id, e.at FROM edits e JOIN agents a ON a.id = e.agent_id"
        f" WHERE e.at >= :since AND e.path >= :begin AND e.path < :end AND a.status IN {LIVING}"
        " ORDER BY e.at, e.agent_id",
        since=ctx.at(-HOUR_MS),
        begin=begin,
        end=f"{begin[:-1]}{chr(ord(begin[-1]) + 1)}",
    )
    newest = {row["path"]: row for row in [*rows, *_under_way(tx, ctx)]}
    return {path: row for path, row in newest.items() if row["agent_id"] != own}


def _under_way(tx: Tx, ctx: Context) -> Iterator[Row]:
    """Yield the changes that open calls of living agents are about to make, as edits."""
    for call in tx.all(
        "SELECT c.agent_id, c.started_at, c.files_json FROM tool_calls c"
        " JOIN agents a ON a.id = c.agent_id WHERE c.files_json <> '[]'"
        f" AND c.started_at >= :since AND a.status IN {LIVING} ORDER BY c.started_at, c.agent_id",
        since=ctx.at(-HOUR_MS),
    ):
        agent_id = leading_agent(tx, call["agent_id"])
        for path in _paths(call["files_json"]):
            yield {"path": path, "agent_id": agent_id, "at": call["started_at"]}
