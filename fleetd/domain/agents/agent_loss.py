"""Agent loss: what is done about an agent that ended without a word.

Source: behaviour, Detection. A dead process keeps its files locked for a short grace only. An agent
that is merely not heard of may still be writing, so its leases run their course, and the state of
its mission is kept when that falls silent.
"""

from collections.abc import Sequence

from ...protocol.durations import duration
from ...protocol.requests.checkpoint import ErrorReport
from ...protocol.types import OPEN_MISSION
from ..checkpoints.on_error import take_error_checkpoint
from ..core.context import Context
from ..core.observers import agent_process_ended
from ..core.sql import LIVING
from ..core.tx import Row, Tx, WatchProcess
from ..liveness.silence import unheard_rows
from .agents import mark_lost

GRACE_MS = 60_000
# So many beside the first are named when several are lost at once.
NAMED = 5


def living_processes(tx: Tx, ctx: Context) -> list[WatchProcess]:
    """Return the processes that should be alive on this machine, for their agents do."""
    rows = tx.all(
        "SELECT id, pid, pid_started FROM agents WHERE machine = :machine AND pid IS NOT NULL"
        f" AND status IN {LIVING} ORDER BY id",
        machine=ctx.machine,
    )
    return processes_of(rows)


def session_processes(
    tx: Tx, ctx: Context, harness: str, session_id: str, previous_session_id: str | None
) -> list[WatchProcess]:
    """Return the processes of a session's agents here, its own before those of its subagents."""
    rows = tx.all(
        "SELECT a.id, a.pid, a.pid_started FROM sessions s JOIN agents a ON a.id = s.agent_id"
        " WHERE s.harness = :harness AND s.session_id IN (:session, :previous)"
        " AND a.machine = :machine AND a.pid IS NOT NULL ORDER BY s.subagent, a.id",
        harness=harness,
        session=session_id,
        previous=previous_session_id or session_id,
        machine=ctx.machine,
    )
    return processes_of(rows)


def processes_of(rows: Sequence[Row]) -> list[WatchProcess]:
    """Return the processes of agents, from their rows."""
    return [WatchProcess(row["id"], row["pid"], row["pid_started"]) for row in rows]


def process_ended(tx: Tx, ctx: Context, process: WatchProcess) -> bool:
    """Lose an agent whose process is gone, unless it left or came back as another process.

    Where it came back on another machine, the same pid is another process. A session that was
    waiting for its user when its terminal was closed has lost nothing; one that waited for a
    permission was in the middle of its work.
    """
    row = tx.one(
        "SELECT * FROM agents WHERE id = :id AND pid = :pid AND machine = :machine"
        f" AND status IN {LIVING}",
        id=process.agent_id,
        pid=process.pid,
        machine=ctx.machine,
    )
    if row is None or row["pid_started"] != process.started:
        return False
    reason = f"process {process.pid} is gone"
    if row["status"] != "active" and row["needs"] is None:
        agent_process_ended(tx, ctx, row["id"], reason)
        if tx.value("SELECT status FROM agents WHERE id = :id", id=row["id"]) == "gone":
            return True
    _orphan_locks(tx, ctx, row["id"])
    mark_lost(tx, ctx, row, reason)
    keep_state(tx, ctx, row, reason)
    return True


def unheard(tx: Tx, ctx: Context, agent_id: str) -> bool:
    """Lose an agent that nobody can watch and that has not said for long that it lives."""
    row = next(iter(unheard_rows(tx, ctx, agent_id)), None)
    if row is None:
        return False
    silent = duration(ctx.awake_ms - row["seen_awake_ms"])
    mark_lost(tx, ctx, row, f"not heard of for {silent}")
    return True


def keep_state(tx: Tx, ctx: Context, row: Row, reason: str, *, also: Sequence[Row] = ()) -> None:
    """Take an error checkpoint of the mission that lost an agent; ``also`` at once with it."""
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=row["mission_id"])
    if mission is not None and mission["status"] in OPEN_MISSION:
        error = ErrorReport(
            agent_id=row["id"],
            kind="exception",
            name="AgentLost",
            message=f"{_names(row, also)} ended without a word ({reason})",
        )
        take_error_checkpoint(tx, ctx, mission, error, created_by="fleetd")


def _names(row: Row, also: Sequence[Row]) -> str:
    if len(also) > NAMED:
        return f"{row['id']} and {len(also)} others"
    return ", ".join(each["id"] for each in (row, *also))


def _orphan_locks(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Let the leases of a dead process end after a grace, in which it may come back."""
    tx.run(
        "UPDATE locks SET orphaned_at = :now, expires_at = CASE WHEN expires_at < :until"
        " THEN expires_at ELSE :until END"
        " WHERE held_by = :agent AND status = 'active' AND expires_at > :now",
        now=ctx.now,
        until=ctx.at(GRACE_MS),
        agent=agent_id,
    )
