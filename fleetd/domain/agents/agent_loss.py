"""What is done about an agent that ended without a word; must not look at processes.

Source: behaviour, Detection. A dead process keeps its files locked for a short grace only. An agent
that is merely not heard of may still be writing, so its leases run their course, and the state of
its mission is kept when that falls silent.
"""

from collections.abc import Sequence

from ...protocol.durations import duration
from ...protocol.request import Mutation
from ...protocol.requests.checkpoint import ErrorReport
from ...protocol.types import OPEN_MISSION
from ..checkpoints.on_error import keep_error
from ..cluster.heartbeat import not_in_touch, touch_of
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Row, Tx
from ..liveness.open_calls import LONGEST_CALL_MS
from ..liveness.silence import LIVING
from ..sessions import membership
from ..system.startup import Done
from .agents import mark_lost

GRACE_MS = 60_000
# Heartbeats are expected every minute; five may be missing.
UNHEARD_MS = 300_000
# So many beside the first are named when several are lost at once.
NAMED = 5


class AgentEnded(Mutation[Done], frozen=True):
    """The process of an agent has ended; not on the wire."""

    agent_id: str
    pid: int
    started: str | None


class AgentUnheard(Mutation[Done], frozen=True):
    """An agent without a process to watch has not been heard of for too long; not on the wire."""

    agent_id: str


@handler
def ended(tx: Tx, ctx: Context, request: AgentEnded) -> Done:
    """Lose an agent whose process is gone, unless it left or came back as another process.

    Where it came back on another machine, the same pid is another process. A session that was
    waiting for its user when its terminal was closed has lost nothing; one that waited for a
    permission was in the middle of its work.
    """
    row = tx.one(
        "SELECT * FROM agents WHERE id = :id AND pid = :pid AND machine = :machine"
        f" AND status IN {LIVING}",
        id=request.agent_id,
        pid=request.pid,
        machine=ctx.machine,
    )
    if row is None or row["pid_started"] != request.started:
        return Done(done=False)
    reason = f"process {request.pid} is gone"
    rests = row["status"] != "active" and row["needs"] is None
    if rests and membership.close(tx, ctx, row["id"], reason):
        return Done(done=True)
    _orphan_locks(tx, ctx, row["id"])
    mark_lost(tx, ctx, row, reason)
    keep_state(tx, ctx, row, reason)
    return Done(done=True)


@handler
def unheard(tx: Tx, ctx: Context, request: AgentUnheard) -> Done:
    """Lose an agent that nobody can watch and that has not said for long that it lives."""
    row = next(iter(unheard_rows(tx, ctx, request.agent_id)), None)
    if row is None:
        return Done(done=False)
    silent = duration(ctx.awake_ms - row["seen_awake_ms"])
    mark_lost(tx, ctx, row, f"not heard of for {silent}")
    return Done(done=True)


def unheard_rows(tx: Tx, ctx: Context, agent_id: str | None = None) -> list[Row]:
    """Return the agents, or the one, of which nobody has heard for too long.

    While its tool runs, nobody can say for an agent CLI that it lives: only its hooks speak. Nor
    can it be heard while its machine is not; for so long after that, too, it is not missed.
    """
    return tx.all(
        "SELECT * FROM agents a WHERE a.pid IS NULL AND a.status = 'active'"
        " AND a.seen_awake_ms < :before AND NOT EXISTS (SELECT 1 FROM tool_calls c"
        " JOIN sessions s ON s.agent_id = c.agent_id"
        " WHERE c.agent_id = a.id AND c.started_awake_ms >= :forgotten)"
        f" AND NOT {not_in_touch('a')} AND NOT EXISTS (SELECT 1 FROM machines m"
        " WHERE m.id = a.machine AND m.since_awake_ms >= :before)"
        + (" AND a.id = :id" if agent_id else ""),
        id=agent_id,
        before=ctx.awake_ms - UNHEARD_MS,
        forgotten=ctx.awake_ms - LONGEST_CALL_MS,
        **touch_of(ctx),
    )


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
        keep_error(tx, ctx, mission, error, created_by="fleetd")


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
