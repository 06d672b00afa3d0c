"""Conflicts: files that several living agents changed within an hour, also across worktrees.

The edits of each agent are kept for an hour. Two agents that changed the same file are each
notified once, with their next hook that can deliver it. A subagent counts as the agent of its
session.
"""

import os
from collections import defaultdict
from collections.abc import Iterable

from ...protocol.display import path as shown
from ...protocol.requests.attention import (
    AttentionConflicts,
    ConflictEdit,
    ConflictPage,
    EditConflict,
)
from ...protocol.timestamps import iso, to_ms
from ..cluster.membership import agent_label
from ..core.context import Context, EditedFile
from ..core.history import files_edited
from ..core.ids import find
from ..core.observers import file_edited
from ..core.registry import method
from ..core.sql import LIVING, chunks, inside_of, named_params
from ..core.tx import Row, Tx
from ..locks.keys import machine_key, split_machine
from .running import leading_agent
from .worktrees import list_outside

HOUR_MS = 3_600_000
# The newest files of each agent count. Its sessions drop the others every ten minutes.
KEPT = 200
# The maximum number of edits of all agents that are compared.
MOST = 5_000
# How many conflicts are remembered for each agent.
KEPT_CONFLICTS = 1_000
# Files of one notice, and the characters of each name.
NAMED, NAME_CHARS = 5, 120
# Indexes of a server take no longer keys. A file with a longer key is not compared.
_KEY_BYTES = 1_200


def note_edits(tx: Tx, ctx: Context, agent_id: str, files: Iterable[str], at: str) -> bool:
    """Note files that an agent changed, and each living agent that did so within the hour.

    Returns whether there is a conflict that the agent was not notified of yet.
    """
    edited = {each.path: each for file in files if (each := _edited_file(ctx, file))}
    # An edit from a spool may be older than what is kept.
    if not edited or at < ctx.at(-HOUR_MS):
        return False
    tx.many(
        "INSERT INTO edits (agent_id, path, place, file, at, period)"
        " SELECT id, :path, :place, :file, :at, :period FROM agents WHERE id = :agent"
        " ON CONFLICT (agent_id, path) DO UPDATE SET"
        " at = CASE WHEN excluded.at > edits.at THEN excluded.at ELSE edits.at END,"
        " period = CASE WHEN excluded.at > edits.at THEN excluded.period ELSE edits.period END,"
        # If Git does not answer in time, earlier findings stay.
        " place = CASE WHEN excluded.place = excluded.path THEN edits.place"
        " ELSE excluded.place END,"
        " file = CASE WHEN excluded.place = excluded.path THEN edits.file ELSE excluded.file END",
        [
            {
                "agent": agent_id,
                "at": at,
                "period": period(at),
                "path": each.path,
                "place": each.place,
                "file": each.name,
            }
            for each in edited.values()
        ],
    )
    files_edited(tx, agent_id, [*edited])
    return _others_edited(tx, agent_id, [*edited]) and _note_conflicts(tx, agent_id, at)


def period(at: str) -> str:
    """Return the ten-minute period of a time.

    It is indexed in place of ``at``, so that most edits of a file change no indexed column.
    """
    return at[: len("2026-01-05T12:0")]


def _edited_file(ctx: Context, file: str) -> EditedFile | None:
    """Return the identity of a file: the one in the facts, else one from the given path."""
    if file in ctx.facts.edited:
        found = ctx.facts.edited[file]
    elif file.startswith("/"):
        path = os.path.normpath(file)
        key = machine_key(ctx.machine, path)
        found = EditedFile(key, key, path)
    else:
        return None
    if found is None or len(f"{found.path}{found.place}".encode(errors="replace")) > _KEY_BYTES:
        return None
    return found


def prune_edits(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Delete edits older than an hour, at most ten minutes late, and an agent's surplus."""
    tx.run(
        "DELETE FROM edits WHERE period < :old OR (agent_id = :agent AND path IN (SELECT path FROM"
        " edits WHERE agent_id = :agent ORDER BY at DESC, path LIMIT :most OFFSET :kept))",
        old=period(ctx.at(-HOUR_MS)),
        agent=agent_id,
        most=MOST,
        kept=KEPT,
    )


def _others_edited(tx: Tx, agent_id: str, paths: list[str]) -> bool:
    """Whether another agent changed any of these files: most files have one agent."""
    for some in chunks(paths):
        inside = inside_of("path", some)
        others = tx.value(
            "SELECT EXISTS (SELECT 1 FROM edits own JOIN edits other"
            " ON (other.place = own.place OR other.path = own.path)"
            " AND other.agent_id <> own.agent_id"
            f" WHERE own.agent_id = :agent AND own.path IN ({inside})) AS others",
            agent=agent_id,
            **named_params("path", some),
        )
        if others:
            return True
    return False


def _note_conflicts(tx: Tx, agent_id: str, at: str) -> bool:
    """Note for both sides which agents share the files that an agent changed at a time."""
    rows = tx.all(
        "SELECT own.path, own.place, own.file, other.agent_id AS other_id,"
        " other.path AS other_path, other.file AS other_file, other.at AS other_at"
        " FROM edits own JOIN edits other"
        " ON (other.place = own.place OR other.path = own.path) AND other.agent_id <> own.agent_id"
        " JOIN agents a ON a.id = other.agent_id"
        " WHERE own.agent_id = :agent AND own.at = :at"
        " AND other.at >= :since AND other.at <= :until"
        f" AND a.status IN {LIVING} AND NOT EXISTS (SELECT 1 FROM edit_conflicts c"
        " WHERE c.agent_id = own.agent_id AND c.other_id = other.agent_id"
        " AND (c.place = own.place OR c.path = own.path))"
        " ORDER BY other.at DESC, other.agent_id, own.path LIMIT :most",
        agent=agent_id,
        at=at,
        since=iso(to_ms(at) - HOUR_MS),
        until=iso(to_ms(at) + HOUR_MS),
        most=MOST,
    )
    # An agent may have changed one file in two worktrees.
    once = {(row["other_id"], row["place"]): row for row in reversed(rows)}
    if not once:
        return False
    tx.many(
        "INSERT INTO edit_conflicts (agent_id, other_id, path, place, file, other_path, at)"
        " VALUES (:agent, :other, :path, :place, :file, :other_path, :at)"
        " ON CONFLICT (agent_id, other_id, path) DO NOTHING",
        [each for row in once.values() for each in _for_both(agent_id, row, at)],
    )
    _bound(tx, sorted({agent_id, *(row["other_id"] for row in once.values())}))
    return True


def _for_both(agent_id: str, row: Row, at: str) -> tuple[Row, Row]:
    """Return the rows of a conflict, one for each of the two agents."""
    mine = {
        "agent": agent_id,
        "other": row["other_id"],
        "path": row["path"],
        "place": row["place"],
        "file": row["file"],
        "other_path": row["other_path"],
        "at": row["other_at"],
    }
    swapped = {
        "agent": row["other_id"],
        "other": agent_id,
        "path": row["other_path"],
        "file": row["other_file"],
        "other_path": row["path"],
        "at": at,
    }
    return mine, mine | swapped


def _bound(tx: Tx, agents: list[str]) -> None:
    """Delete the oldest conflicts of agents beyond the limit."""
    for some in chunks(agents):
        inside = inside_of("agent", some)
        tx.run(
            f"DELETE FROM edit_conflicts WHERE agent_id IN ({inside})"
            " AND (agent_id, other_id, path) IN"
            " (SELECT agent_id, other_id, path FROM (SELECT agent_id, other_id, path, row_number()"
            " OVER (PARTITION BY agent_id ORDER BY at DESC, other_id, path) AS place"
            f" FROM edit_conflicts WHERE agent_id IN ({inside})) AS ranked"
            " WHERE place > :kept)",
            kept=KEPT_CONFLICTS,
            **named_params("agent", some),
        )


@file_edited.subscribe
def note_reported_edit(tx: Tx, ctx: Context, agent_id: str, file: str) -> None:
    """Note a file change of an agent that a client reported, not a hook."""
    leading = leading_agent(tx, agent_id)
    note_edits(tx, ctx, leading, [file], ctx.now)
    prune_edits(tx, ctx, leading)


def take_notice(tx: Tx, ctx: Context, agent_id: str) -> list[str]:
    """Return the line about others' edits for an agent to read now; empty without any."""
    rows = tx.all(
        "SELECT * FROM edit_conflicts WHERE agent_id = :agent AND told = 0", agent=agent_id
    )
    if not rows:
        return []
    tx.run(
        "UPDATE edit_conflicts SET told = 1 WHERE agent_id = :agent AND told = 0", agent=agent_id
    )
    rows.sort(key=lambda row: (row["at"], row["file"], row["other_id"]), reverse=True)
    which = "; ".join(_met(tx, ctx, row) for row in rows[:NAMED])
    more = f"; and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    what = f"Other agents changed files that {agent_id} changed within the same hour"
    return [f"{what}: {which}{more} (fleetctl conflicts)."]


def _met(tx: Tx, ctx: Context, row: Row) -> str:
    other = agent_label(tx, ctx, row["other_id"])
    met = f"{shown(row['file'], NAME_CHARS)} by {other} at {row['at']}"
    if row["other_path"] == row["path"]:
        return met
    there = shown(split_machine(row["other_path"])[1], NAME_CHARS)
    return f"{met} in another worktree ({there}), so both will meet at merge"


@method(AttentionConflicts)
def list_conflicts(tx: Tx, ctx: Context, request: AttentionConflicts) -> ConflictPage:
    """List the files that several living agents changed within the last hour."""
    agent_ids = None
    if request.agent_id is not None:
        agent_ids = {leading_agent(tx, find(tx, "agent", request.agent_id)["id"])}
    found = find_conflicts(tx, ctx, agent_ids)
    kept = found[: request.limit]
    outside = list_outside(tx, ctx, agent_ids)
    return ConflictPage(conflicts=kept, more=len(found) - len(kept), outside=outside)


def count_conflicts(tx: Tx, ctx: Context) -> int:
    """Return how many files several living agents changed within the last hour."""
    return len(find_conflicts(tx, ctx, None))


def conflicts_of_reader(
    tx: Tx, ctx: Context, mission_id: str, agent_id: str | None
) -> list[EditConflict]:
    """Return the conflicts of an agent, or of all agents of a mission."""
    if agent_id is not None:
        return find_conflicts(tx, ctx, {leading_agent(tx, agent_id)})
    rows = tx.all("SELECT id FROM agents WHERE mission_id = :id", id=mission_id)
    return find_conflicts(tx, ctx, {row["id"] for row in rows})


def find_conflicts(tx: Tx, ctx: Context, agent_ids: set[str] | None) -> list[EditConflict]:
    """Return the conflicts of the last hour that some agents take part in, the newest first."""
    rows = tx.all(
        "SELECT e.*, a.machine, m.name AS machine_name FROM (SELECT own.*, row_number()"
        " OVER (PARTITION BY agent_id ORDER BY at DESC, path) AS number FROM edits own"
        " WHERE period >= :period AND at >= :since) AS e"
        " JOIN agents a ON a.id = e.agent_id LEFT JOIN machines m ON m.id = a.machine"
        f" WHERE e.number <= :kept AND a.status IN {LIVING}"
        " ORDER BY e.at DESC, e.agent_id, e.path LIMIT :most",
        period=period(ctx.at(-HOUR_MS)),
        since=ctx.at(-HOUR_MS),
        kept=KEPT,
        most=MOST,
    )
    return conflicts_among(ctx, rows, agent_ids)


def conflicts_among(
    ctx: Context, rows: list[Row], agent_ids: set[str] | None
) -> list[EditConflict]:
    """Return the conflicts among edits, which are the last of each agent and path, newest first."""
    # If Git did not answer in time for one of two agents, the path still identifies the file.
    places: dict[str, str] = {
        row["path"]: row["place"] for row in rows if row["place"] != row["path"]
    }
    of_place: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        path: str = row["path"]
        of_place[places.get(path, path)].setdefault(row["agent_id"], row)
    return [
        _conflict(ctx, list(each.values()))
        for each in of_place.values()
        if len(each) > 1 and (agent_ids is None or agent_ids & each.keys())
    ]


def _conflict(ctx: Context, rows: list[Row]) -> EditConflict:
    named = next((row for row in rows if row["place"] != row["path"]), rows[0])
    return EditConflict(
        file=named["file"],
        at_merge=len({row["path"] for row in rows}) > 1,
        edits=[
            ConflictEdit(
                agent_id=row["agent_id"],
                path=split_machine(row["path"])[1],
                at=row["at"],
                machine=None if ctx.is_here(row) else row["machine_name"] or row["machine"],
            )
            for row in rows
        ],
    )
