"""Runs: the run of a session, and the run that an agent or a directory means.

A run is one session of one agent, or anything else that a tool calls a run.
"""

import hashlib
import re

import msgspec

from ...protocol.errors import InvalidParams, InvalidState, NotFound
from ...protocol.requests.snapshot import SnapshotLatest, SnapshotRecord
from ...protocol.types import RUN_ID
from ..core.context import Context
from ..core.ids import Key, missing
from ..core.sql import LIVING, inside_of, named_params
from ..core.tx import Row, Tx
from ..missions.selection import is_inside

_RUN_ID = re.compile(RUN_ID)
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")
_MISSIONS = "msn-"
LONGEST_ID = 64
DIGEST_CHARS = 8
SHOWN = 5
_LISTS = "fleetctl snapshot list shows the runs with snapshots."


class RunCandidate(msgspec.Struct, frozen=True):
    """A run that a request means, or may mean, and its agent where that is known."""

    run_id: str
    agent_id: str | None


def run_of_session(key: Key) -> str:
    """Return the run of a session's window: the session's own id where that is a valid one.

    A subagent's run is named after both. A name that is not valid in a path is cleaned and cut. A
    checksum of the whole name distinguishes it from similar ones.
    """
    name = f"{key.session_id}.{key.subagent}" if key.subagent else key.session_id
    if _RUN_ID.match(name):
        return name
    clean = _NOT_IN_IDS.sub("-", name).lstrip(".").removeprefix(_MISSIONS) or "run"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
    cut = f"{clean[: LONGEST_ID - DIGEST_CHARS - 1]}-{digest}"
    return cut if _RUN_ID.match(cut) else f"run-{digest}"


def run_of_row(session: Row) -> str:
    """Return the run of a session's row."""
    return run_of_session(Key(session["harness"], session["session_id"], session["subagent"]))


def run_row(tx: Tx, run_id: str) -> Row | None:
    """Return the row of a run that has snapshots."""
    return tx.one("SELECT * FROM runs WHERE id = :id", id=run_id)


def open_session_of(tx: Tx, agent_id: str) -> Row | None:
    """Return the open session of an agent, the one with the latest event."""
    return tx.one(
        "SELECT * FROM sessions WHERE agent_id = :agent AND ended_at IS NULL"
        " ORDER BY last_event_at DESC, session_id LIMIT 1",
        agent=agent_id,
    )


def run_of_agent(tx: Tx, agent_id: str) -> str | None:
    """Return the run of an agent: its open session, else the one recorded last."""
    session = open_session_of(tx, agent_id)
    if session is not None:
        return run_of_row(session)
    found: str | None = tx.value(
        "SELECT s.run_id FROM runs r JOIN snapshots s ON s.run_id = r.id WHERE r.agent_id = :agent"
        " ORDER BY s.seq DESC LIMIT 1",
        agent=agent_id,
    )
    if found:
        return found
    # It may have given its session when it registered, without any hook.
    row = tx.one("SELECT harness, session_id FROM agents WHERE id = :id", id=agent_id)
    if row is None or not row["session_id"]:
        return None
    return run_of_session(Key(row["harness"] or "", row["session_id"]))


def session_of_run(tx: Tx, run_id: str) -> Row | None:
    """Return the session that is a run; None for a run that no hook reported."""
    names = [run_id]
    # A subagent's run is called <session>.<subagent>, and either name may contain dots.
    names += [run_id[: dot.start()] for dot in re.finditer(r"\.", run_id)]
    rows = tx.all(
        f"SELECT * FROM sessions WHERE session_id IN ({inside_of('session', names)})"
        " ORDER BY last_event_at DESC",
        **named_params("session", names),
    )
    # A session whose name had to be cut is found by the agent recorded with the run.
    run = run_row(tx, run_id)
    if run is not None and run["agent_id"]:
        rows += tx.all("SELECT * FROM sessions WHERE agent_id = :agent", agent=run["agent_id"])
    return next((row for row in rows if run_of_row(row) == run_id), None)


def requested_run(tx: Tx, ctx: Context, request: SnapshotRecord | SnapshotLatest) -> RunCandidate:
    """Return the run that a request is about.

    It is the named run, else the agent's, else the directory's. Raises InvalidParams when the
    request names nothing, NotFound for an unknown agent, InvalidState when none or several match.
    """
    if request.run_id is not None:
        return RunCandidate(request.run_id, request.agent_id)
    if request.agent_id is not None:
        return RunCandidate(_of_agent(tx, request.agent_id), request.agent_id)
    if request.cwd is not None:
        return _of_directory(tx, ctx, request.cwd, over=isinstance(request, SnapshotLatest))
    raise InvalidParams(
        "Neither run_id nor agent_id nor cwd names a run.",
        hint="Give run_id, the agent_id of a session, or the cwd of one.",
        field="run_id",
    )


def _of_agent(tx: Tx, agent_id: str) -> str:
    run_id = run_of_agent(tx, agent_id)
    if run_id is not None:
        return run_id
    if tx.one("SELECT 1 AS there FROM agents WHERE id = :id", id=agent_id) is None:
        raise missing("agent", agent_id)
    raise InvalidState(
        f"Agent {agent_id} has no session and no records.",
        hint="Give run_id too: any id of your choice.",
        agent_id=agent_id,
    )


def _of_directory(tx: Tx, ctx: Context, cwd: str, *, over: bool) -> RunCandidate:
    """Return the only run in progress in a directory; with ``over``, else the one recorded last."""
    found = _under_way(tx, ctx, cwd)
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(f"{each.run_id} ({each.agent_id})" for each in found[:SHOWN])
        more = ", ..." if len(found) > SHOWN else ""
        raise InvalidState(
            f"{len(found)} runs are in progress in {cwd}: {shown}{more}.",
            hint="Give run_id or agent_id (--run <id> or --agent <id>) to select one.",
            candidates=[msgspec.to_builtins(each) for each in found[:20]],
        )
    if not over:
        raise InvalidState(
            f"No run is in progress in {cwd}.",
            hint="Give run_id (--run <id>): any id of your choice.",
            cwd=cwd,
        )
    last = _recorded_last(tx, ctx, cwd)
    if last is None:
        raise NotFound(f"There is no run in {cwd}.", hint=_LISTS, noun="run", cwd=cwd)
    return RunCandidate(last, None)


# The directories of an agent and of its mission, if they are on this machine.
_PLACES = (
    "CASE WHEN a.machine = :machine THEN a.cwd END AS cwd,"
    " CASE WHEN m.machine = :machine THEN m.project_dir END AS project_dir"
)


def _is_there(row: Row, cwd: str) -> bool:
    return is_inside(row["cwd"], cwd) or is_inside(row["project_dir"], cwd)


def _under_way(tx: Tx, ctx: Context, cwd: str) -> list[RunCandidate]:
    """Return the runs of living agents around a directory; a subagent's is part of its session."""
    rows = tx.all(
        f"SELECT a.id, {_PLACES} FROM agents a LEFT JOIN missions m ON m.id = a.mission_id"
        f" WHERE a.status IN {LIVING} AND NOT EXISTS (SELECT 1 FROM sessions s"
        " WHERE s.agent_id = a.id AND s.subagent <> '') ORDER BY a.last_seen_at DESC, a.id",
        machine=ctx.machine,
    )
    runs = ((run_of_agent(tx, row["id"]), row["id"]) for row in rows if _is_there(row, cwd))
    return [RunCandidate(run_id, agent_id) for run_id, agent_id in runs if run_id is not None]


def _recorded_last(tx: Tx, ctx: Context, cwd: str) -> str | None:
    """Return the run of a directory that has the newest snapshot."""
    rows = tx.all(
        f"SELECT r.id, {_PLACES}, (SELECT max(s.seq) FROM snapshots s WHERE s.run_id = r.id)"
        " AS newest FROM runs r JOIN agents a ON a.id = r.agent_id"
        " LEFT JOIN missions m ON m.id = a.mission_id ORDER BY newest DESC",
        machine=ctx.machine,
    )
    return next((row["id"] for row in rows if _is_there(row, cwd)), None)


def without_snapshots(run_id: str) -> NotFound:
    """Return the error for a run without snapshots."""
    return NotFound(f"No snapshot found for run: {run_id}", hint=_LISTS, noun="run", id=run_id)
