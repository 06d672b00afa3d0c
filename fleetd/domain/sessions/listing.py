"""Session listing: the current session of each agent, for reopening it, and how it ended."""

from ...protocol.requests.session import Ending, Place, Session, SessionList, SessionPage
from ...protocol.timestamps import iso
from ..attention.running import leading_agent
from ..core.context import Context
from ..core.ids import find
from ..core.sql import LIVING, Where
from ..core.tx import Row, Tx, WatchProcess
from ..liveness.needs import one_line

# After a longer absence, a person does not expect everything that ended meanwhile to open.
CUT_OFF_MS = 7 * 86_400_000

_LOST = "a.status = 'lost' AND a.succeeded_by IS NULL"
_VANISHED = "s.vanished = 1 AND s.last_event_at >= :since AND a.succeeded_by IS NULL"


def list_sessions(
    tx: Tx, ctx: Context, request: SessionList
) -> tuple[SessionPage, dict[str, WatchProcess]]:
    """Return the requested sessions, and the processes of their agents on this machine.

    The present state of their directories is not known here.
    """
    where = Where()
    if request.agent_id is not None:
        where.add("a.id = :agent", agent=_agent(tx, request.agent_id))
    if request.mission_id is not None:
        where.add("a.mission_id = :mission", mission=find(tx, "mission", request.mission_id)["id"])
    where.add("a.id > :after", after=request.after or "")
    rows = _rows(tx, ctx, request, where)
    shown = rows[: request.limit]
    names = {row["id"]: row["name"] for row in tx.all("SELECT id, name FROM machines")}
    page = SessionPage(
        sessions=[_session(ctx, row, names) for row in shown],
        after=shown[-1]["id"] if len(rows) > len(shown) else None,
    )
    processes = {
        row["id"]: WatchProcess(row["id"], row["pid"], row["pid_started"])
        for row in shown
        if row["pid"] is not None and ctx.is_here(row)
    }
    return page, processes


def _agent(tx: Tx, agent_id: str) -> str:
    """Return a known agent; for a subagent, the agent of its session."""
    return str(find(tx, "agent", leading_agent(tx, agent_id))["id"])


def _rows(tx: Tx, ctx: Context, request: SessionList, where: Where) -> list[Row]:
    """Return the rows of sessions by agent, one more than requested.

    Each kind of request uses its own index.
    """
    if request.which == "all":
        return _select(tx, where, "agents", request.limit)
    lost = Where()
    lost.params |= where.params
    lost.add(f"{where} AND {_LOST} AND a.status <> 'gone'")
    if request.which == "lost":
        return _select(tx, lost, "agents", request.limit)
    since = iso(ctx.now_ms - CUT_OFF_MS)
    lost.add("s.last_event_at >= :since", since=since)
    where.add(_VANISHED, since=since)
    found = _select(tx, lost, "agents", request.limit)
    found += _select(tx, where, "sessions", request.limit)
    return sorted(found, key=lambda row: str(row["id"]))[: request.limit + 1]


def _select(tx: Tx, where: Where, first: str, limit: int) -> list[Row]:
    joined = (
        "s.agent_id = a.id AND s.harness = a.harness AND s.session_id = a.session_id"
        " AND s.subagent = ''"
    )
    tables = (
        f"agents a JOIN sessions s ON {joined}"
        if first == "agents"
        else f"sessions s JOIN agents a ON {joined}"
    )
    return tx.all(
        "SELECT a.id, a.status, a.pid, a.pid_started, a.machine, a.mission_id, a.succeeded_by,"
        " a.cwd AS agent_cwd, s.harness, s.session_id, s.started_at, s.last_event_at, s.ended_at,"
        " s.vanished, s.directory, s.cwd, s.worktree, s.branch, s.head, m.title AS mission_title"
        f" FROM {tables} LEFT JOIN missions m ON m.id = a.mission_id"
        f" WHERE {where} ORDER BY a.id LIMIT :limit",
        **where.params,
        limit=limit + 1,
    )


def _ending(row: Row, *, living: bool) -> Ending | None:
    if row["ended_at"] is not None:
        return "vanished" if row["vanished"] else "closed"
    if living:
        return None
    return "lost" if row["status"] == "lost" else "closed"


def _session(ctx: Context, row: Row, names: dict[str, str]) -> Session:
    machine = row["machine"] if not ctx.is_here(row) else ""
    # Sessions of an earlier fleetd have only their agent's directory.
    cwd = row["cwd"] or row["agent_cwd"]
    living = f"'{row['status']}'" in LIVING
    ended = _ending(row, living=living)
    return Session(
        harness=row["harness"],
        session_id=row["session_id"],
        agent_id=row["id"],
        status=row["status"],
        ended=ended,
        alive=living,
        mission_id=row["mission_id"],
        mission=one_line(row["mission_title"]),
        started_at=row["started_at"],
        last_event_at=row["last_event_at"],
        directory=row["directory"] or cwd,
        cwd=cwd,
        place=Place(worktree=row["worktree"], branch=row["branch"], head=row["head"]),
        machine=names.get(machine, machine) or None,
        succeeded_by=row["succeeded_by"],
    )
