"""Agent loss: agents whose process died, that are silent, or whose machine is lost.

A dead process keeps its files locked only for a short grace period. An agent that is merely silent,
alone or with its machine, may still be writing, so its leases run until they expire. Agents found
at work when their machine is back count as living again.
"""

from collections.abc import Sequence

from ...protocol.display import duration
from ...protocol.errors import InvalidState, NotFound
from ...protocol.events import AgentReturned
from ...protocol.requests.checkpoint import ErrorReport
from ...protocol.requests.machine import ForgottenMachine, MachineForget
from ...protocol.types import OPEN_MISSION
from ..checkpoints.on_error import take_error_checkpoint
from ..cluster.membership import missing_heartbeat_text, stranded_agents
from ..core.changes import fields_of, lock_changed, lock_orphaned
from ..core.context import Context
from ..core.event_log import emit
from ..core.history import agent_changed, locks_change
from ..core.mappers import lock_of
from ..core.observers import agent_process_ended
from ..core.registry import method
from ..core.sql import LIVING
from ..core.tx import LogLine, Row, Tx, WatchProcess
from ..liveness.needs import UNFINISHED, Need, set_need
from ..liveness.silence import silent_agents
from ..locks import automatic
from ..snapshots.triggers import resume_timer
from .agents import forget_need, mark_lost, reclaim_locks

GRACE_MS = 60_000
# At most this many agents beside the first are named when several are lost together.
NAMED = 5
_LIVES = f"status IN {LIVING}"
_LOST = "status = 'lost' AND succeeded_by IS NULL"


def living_processes(tx: Tx, ctx: Context) -> list[WatchProcess]:
    """Return the processes of this machine's living agents, which should be alive too."""
    return _processes(tx, ctx, _LIVES)


def lost_processes(tx: Tx, ctx: Context) -> list[WatchProcess]:
    """Return the processes of this machine's agents that count as lost and have no successor.

    They may still be at work. An agent without a process comes back by its own report.
    """
    return _processes(tx, ctx, _LOST)


def _processes(tx: Tx, ctx: Context, condition: str) -> list[WatchProcess]:
    rows = tx.all(
        "SELECT id AS agent_id, pid, pid_started AS started FROM agents"
        f" WHERE machine = :machine AND pid IS NOT NULL AND {condition} ORDER BY id",
        machine=ctx.machine,
    )
    return [WatchProcess(**row) for row in rows]


def session_processes(
    tx: Tx, ctx: Context, harness: str, session_id: str, previous_session_id: str | None
) -> list[WatchProcess]:
    """Return the processes of a session's agents here, its own before those of its subagents."""
    rows = tx.all(
        "SELECT a.id AS agent_id, a.pid, a.pid_started AS started"
        " FROM sessions s JOIN agents a ON a.id = s.agent_id"
        " WHERE s.harness = :harness AND s.session_id IN (:session, :previous)"
        " AND a.machine = :machine AND a.pid IS NOT NULL ORDER BY s.subagent, a.id",
        harness=harness,
        session=session_id,
        previous=previous_session_id or session_id,
        machine=ctx.machine,
    )
    return [WatchProcess(**row) for row in rows]


def _agent_of(tx: Tx, ctx: Context, process: WatchProcess, condition: str) -> Row | None:
    """Return the agent of a process of this machine; elsewhere the same pid is another process."""
    row = tx.one(
        "SELECT * FROM agents WHERE id = :id AND pid = :pid AND machine = :machine"
        f" AND {condition}",
        id=process.agent_id,
        pid=process.pid,
        machine=ctx.machine,
    )
    return row if row and row["pid_started"] == process.started else None


def process_ended(tx: Tx, ctx: Context, process: WatchProcess) -> bool:
    """Mark an agent lost whose process is gone, unless it left or came back as another process.

    A session that was waiting for its user when its terminal was closed has lost nothing. A session
    that waited for a permission or an answer was in the middle of its work. A session whose turn
    broke off has left its work open.
    """
    row = _agent_of(tx, ctx, process, _LIVES)
    if row is None:
        return False
    reason = f"process {process.pid} is gone"
    if row["status"] != "active" and row["needs"] not in UNFINISHED:
        agent_process_ended(tx, ctx, row["id"], reason)
        if tx.value("SELECT status FROM agents WHERE id = :id", id=row["id"]) == "gone":
            return True
    _orphan_locks(tx, ctx, row["id"])
    shorten_leases(tx, ctx, [row["id"]])
    mark_lost(tx, ctx, row, reason)
    error_checkpoint(tx, ctx, row, reason)
    return True


def lose_silent_agent(tx: Tx, ctx: Context, agent_id: str) -> bool:
    """Mark an agent lost that cannot be watched and has been silent for too long."""
    rows = silent_agents(tx, ctx, " AND a.id = :id", id=agent_id)
    for row in rows:
        silent = duration(ctx.awake_ms - row["seen_awake_ms"])
        mark_lost(tx, ctx, row, f"no heartbeat for {silent}")
    return bool(rows)


def error_checkpoint(
    tx: Tx, ctx: Context, row: Row, reason: str, *, also: Sequence[Row] = ()
) -> None:
    """Take an error checkpoint of the mission that lost an agent, and ``also`` others with it."""
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=row["mission_id"])
    if mission is not None and mission["status"] in OPEN_MISSION:
        names = ", ".join(each["id"] for each in (row, *also))
        if len(also) > NAMED:
            names = f"{row['id']} and {len(also)} others"
        error = ErrorReport(
            agent_id=row["id"],
            kind="exception",
            name="AgentLost",
            message=f"{names} ended without notice ({reason})",
        )
        take_error_checkpoint(tx, ctx, mission, error, created_by="fleetd")


def _orphan_locks(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Mark the locks that an agent leaves behind, so that a recovery names them.

    The locks that its edits took are released.
    """
    automatic.give_back(tx, ctx, agent_id)
    left = tx.all(
        "SELECT id, mission_id FROM locks WHERE held_by = :agent AND status = 'active'"
        " AND expires_at > :now",
        now=ctx.now,
        agent=agent_id,
    )
    locks_change(tx, *(row["id"] for row in left))
    for row in left:
        tx.run("UPDATE locks SET orphaned_at = :now WHERE id = :id", now=ctx.now, id=row["id"])
        lock_orphaned(tx, row["mission_id"], row["id"], True)


def fail_over(tx: Tx, ctx: Context, agent_id: str) -> bool:
    """Mark an agent lost with its machine, and all others of its mission on that machine.

    The state of the mission is kept once if one of them was at work: an agent that waits for its
    user has lost nothing.
    """
    one = next(iter(stranded_agents(tx, ctx, agent_id)), None)
    if one is None:
        return False
    where = (one["machine"], one["mission_id"])
    rows = [row for row in stranded_agents(tx, ctx) if (row["machine"], row["mission_id"]) == where]
    _lose_together(
        tx, ctx, rows, f"machine {one['machine_name']} {missing_heartbeat_text(ctx, one)}"
    )
    return True


@method(MachineForget)
def forget_machine(tx: Tx, ctx: Context, request: MachineForget) -> ForgottenMachine:
    """Forget a machine that left or is lost; its agents are lost, mission by mission."""
    machine = tx.one("SELECT * FROM machines WHERE id = :id", id=request.machine_id)
    if machine is None:
        raise NotFound(
            f"Machine not found: {request.machine_id}",
            hint="fleetctl machines list shows the machines of a shared store.",
            noun="machine",
            id=request.machine_id,
        )
    if machine["id"] == ctx.machine:
        raise InvalidState(
            f"{machine['name']} is this machine; it cannot forget itself.",
            hint="Stop fleetd here (fleetctl daemon stop), and forget it on another machine.",
        )
    if machine["status"] == "here":
        silent = duration(ctx.awake_ms - machine["heard_awake_ms"])
        raise InvalidState(
            f"Machine {machine['name']} is at work: its last heartbeat was {silent} ago.",
            hint="Stop fleetd there (fleetctl daemon stop), or wait until the machine is lost: 60 s"
            " without a heartbeat.",
            status=machine["status"],
        )
    rows = tx.all(
        f"SELECT * FROM agents WHERE machine = :id AND status IN {LIVING} ORDER BY id",
        id=machine["id"],
    )
    by_mission: dict[str | None, list[Row]] = {}
    for row in rows:
        by_mission.setdefault(row["mission_id"], []).append(row)
    for together in by_mission.values():
        _lose_together(tx, ctx, together, f"machine {machine['name']} was forgotten")
    tx.run("DELETE FROM lock_waits WHERE machine = :id", id=machine["id"])
    tx.run("DELETE FROM machines WHERE id = :id", id=machine["id"])
    tx.after_commit(LogLine("WARNING", f"Machine {machine['name']} was forgotten"))
    return ForgottenMachine(
        machine_id=machine["id"], name=machine["name"], lost_agents=[row["id"] for row in rows]
    )


def _lose_together(tx: Tx, ctx: Context, rows: list[Row], reason: str) -> None:
    """Mark a mission's agents on one machine lost, and keep the mission's state once."""
    for row in rows:
        if row["pid"] is not None:
            _orphan_locks(tx, ctx, row["id"])
        mark_lost(tx, ctx, row, reason)
    if at_work := [row for row in rows if row["status"] == "active"]:
        error_checkpoint(tx, ctx, at_work[0], reason, also=at_work[1:])


def rejoin(tx: Tx, ctx: Context, process: WatchProcess) -> bool:
    """Mark an agent found at work as living, with the locks it still has, and watch it."""
    row = _agent_of(tx, ctx, process, _LOST)
    if row is None:
        return False
    name = tx.value("SELECT name FROM machines WHERE id = :id", id=ctx.machine)
    last = tx.one(
        "SELECT type, timestamp FROM events WHERE agent_id = :agent AND activity = 1"
        " ORDER BY seq DESC LIMIT 1",
        agent=row["id"],
    )
    # Its last activity shows whether it waited for its user when it was lost.
    paused = last is not None and last["type"] == "agent_paused"
    began = last is not None and last["type"] == "agent_registered"
    waiting = paused or (began and row["session_id"])
    tx.run(
        "UPDATE agents SET status = :status, last_seen_at = :now, seen_awake_ms = :awake"
        " WHERE id = :id",
        status="waiting" if waiting else "active",
        now=ctx.now,
        awake=ctx.awake_ms,
        id=row["id"],
    )
    agent_changed(tx, row["id"])
    if last is not None and paused:
        set_need(tx, ctx, row["id"], Need("finished"), last["timestamp"])
    else:
        forget_need(tx, ctx, row)
    reclaim_locks(tx, ctx, row["id"])
    if not waiting:
        resume_timer(tx, ctx, row["id"])
    reason = f"machine {name or ctx.machine} sends heartbeats again"
    emit(tx, ctx, AgentReturned(reason=reason), mission_id=row["mission_id"], agent_id=row["id"])
    tx.after_commit(process)
    tx.after_commit(LogLine("INFO", f"Agent {row['id']} is back: {reason}"))
    return True


def shorten_leases(tx: Tx, ctx: Context, agents: Sequence[str]) -> None:
    """Shorten the leases that dead agents left behind to the grace of a dead process."""
    until = ctx.at(GRACE_MS)
    for agent in agents:
        long = tx.all(
            "SELECT * FROM locks WHERE held_by = :agent AND status = 'active'"
            " AND orphaned_at IS NOT NULL AND expires_at > :until",
            agent=agent,
            until=until,
        )
        locks_change(tx, *(row["id"] for row in long))
        for row in long:
            tx.run("UPDATE locks SET expires_at = :until WHERE id = :id", until=until, id=row["id"])
            shorter = {**row, "expires_at": until}
            lock_changed(tx, row["mission_id"], row["id"], fields_of(lock_of(shorter)))
