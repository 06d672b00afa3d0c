"""Failover: agents whose machine is lost, and those found at work when it is back.

A machine that is not heard of need not be dead: its agents may be writing still. So their leases
run their course, as those of an agent that is merely not heard of, and are not cut short as those
of a dead process.
"""

from collections.abc import Sequence

from ...protocol.events import AgentReturned
from ..cluster.membership import stranded, unheard_for
from ..core.context import Context
from ..core.event_log import emit
from ..core.tx import LogLine, Row, Tx, WatchProcess
from ..snapshots.heartbeat import go_on
from .agent_loss import GRACE_MS, keep_state, processes_of
from .agents import adopt_orphans, mark_lost


def fail_over(tx: Tx, ctx: Context, agent_id: str) -> bool:
    """Lose an agent with its machine, and all others of its mission that were there with it.

    The state of the mission is kept once if one was at work: who waits for its user has lost
    nothing.
    """
    if not (found := stranded(tx, ctx, agent_id)):
        return False
    (one,) = found
    where = (one["machine"], one["mission_id"])
    rows = [row for row in stranded(tx, ctx) if (row["machine"], row["mission_id"]) == where]
    reason = f"machine {one['machine_name']} {unheard_for(ctx, one)}"
    for row in rows:
        _orphan_locks(tx, ctx, row)
        mark_lost(tx, ctx, row, reason)
    if at_work := [row for row in rows if row["status"] == "active"]:
        keep_state(tx, ctx, at_work[0], reason, also=at_work[1:])
    return True


def _orphan_locks(tx: Tx, ctx: Context, row: Row) -> None:
    """Have a recovery name the locks that are left behind; they end when their leases do."""
    if row["pid"] is not None:
        tx.run(
            "UPDATE locks SET orphaned_at = :now WHERE held_by = :agent AND status = 'active'"
            " AND expires_at > :now",
            now=ctx.now,
            agent=row["id"],
        )


def lost_processes(tx: Tx, ctx: Context) -> list[WatchProcess]:
    """Return the processes of this machine's agents that count as lost and have no successor.

    They may be at work all the same; one without a process comes back by its own word.
    """
    rows = tx.all(
        "SELECT id, pid, pid_started FROM agents WHERE machine = :machine AND pid IS NOT NULL"
        " AND status = 'lost' AND succeeded_by IS NULL ORDER BY id",
        machine=ctx.machine,
    )
    return processes_of(rows)


def rejoin(tx: Tx, ctx: Context, process: WatchProcess) -> bool:
    """Count an agent found at work as living, with the locks still its own, and watch it."""
    row = tx.one(
        "SELECT * FROM agents WHERE id = :id AND pid = :pid AND machine = :machine"
        " AND status = 'lost' AND succeeded_by IS NULL",
        id=process.agent_id,
        pid=process.pid,
        machine=ctx.machine,
    )
    if row is None or row["pid_started"] != process.started:
        return False
    name = tx.value("SELECT name FROM machines WHERE id = :id", id=ctx.machine)
    waiting = _waited(tx, row)
    tx.run(
        "UPDATE agents SET status = :status, last_seen_at = :now, seen_awake_ms = :awake"
        " WHERE id = :id",
        status="waiting" if waiting else "active",
        now=ctx.now,
        awake=ctx.awake_ms,
        id=row["id"],
    )
    adopt_orphans(tx, ctx, row["id"])
    if not waiting:
        go_on(tx, ctx, row["id"])
    reason = f"machine {name or ctx.machine} is heard of again"
    emit(tx, ctx, AgentReturned(reason=reason), mission_id=row["mission_id"], agent_id=row["id"])
    tx.after_commit(process)
    tx.after_commit(LogLine("INFO", f"Agent {row['id']} is back: {reason}"))
    return True


def shorten_leases(tx: Tx, ctx: Context, agents: Sequence[str]) -> None:
    """Let what such agents left locked go after the grace of a dead process: now it is known."""
    tx.many(
        "UPDATE locks SET expires_at = :until WHERE held_by = :agent AND status = 'active'"
        " AND orphaned_at IS NOT NULL AND expires_at > :until",
        [{"agent": agent, "until": ctx.at(GRACE_MS)} for agent in agents],
    )


def _waited(tx: Tx, row: Row) -> bool:
    """Whether an agent waited for its user when it was lost, by what it did last."""
    last = tx.value(
        "SELECT type FROM events WHERE agent_id = :agent AND activity = 1"
        " ORDER BY seq DESC LIMIT 1",
        agent=row["id"],
    )
    return last == "agent_paused" or (last == "agent_registered" and row["session_id"] is not None)
