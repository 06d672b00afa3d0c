"""How far a recovery has come: pending, briefed, resumed, unconfirmed; must not restore anything.

Source: behaviour, Recovery. The step to ``resumed`` is made by the log, at the first activity; an
agent whose session moves to another mission goes on there.
"""

from collections.abc import Sequence

from ...protocol.events import RecoveryAvailable, RecoveryConfirmed, RecoveryUnconfirmed
from ...protocol.request import Mutation
from ...protocol.requests.recovery import RecoveryRestore
from ..cluster.heartbeat import not_in_touch, touch_of
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.ids import fresh_id
from ..core.registry import handler
from ..core.tx import LogLine, Row, Tx
from ..system.startup import Done

# Whoever was briefed may have gone on, and word of it be on its way still.
UNTOLD = (
    "EXISTS (SELECT 1 FROM agents briefed WHERE briefed.id = recoveries.agent_id"
    f" AND {not_in_touch('briefed')})"
)


class RecoveryDoubt(Mutation[Done], frozen=True):
    """Note that whoever was briefed has not been heard of since; not on the wire."""

    recovery_id: str


def make_pending(tx: Tx, ctx: Context, mission_id: str, checkpoint_id: str) -> str:
    """Note that a mission waits for recovery from a checkpoint; one waits at a time."""
    waiting = tx.one(
        "UPDATE recoveries SET checkpoint_id = :checkpoint WHERE mission_id = :mission"
        " AND state = 'pending' RETURNING id",
        checkpoint=checkpoint_id,
        mission=mission_id,
    )
    if waiting is not None:
        return str(waiting["id"])
    recovery_id = fresh_id(tx, ctx, "recovery")
    tx.insert(
        "recoveries",
        {
            "id": recovery_id,
            "seq": position(tx),
            "mission_id": mission_id,
            "checkpoint_id": checkpoint_id,
            "requested_by": "fleetd",
            "scope": "mission",
            "state": "pending",
            "created_at": ctx.now,
        },
    )
    payload = RecoveryAvailable(recovery_id=recovery_id, checkpoint_id=checkpoint_id)
    emit(tx, ctx, payload, mission_id=mission_id)
    return recovery_id


def make_briefed(
    tx: Tx, ctx: Context, request: RecoveryRestore, mission_id: str, **restored: str | None
) -> str:
    """Note that a prompt was handed out, and return the recovery: the one that waited, or a new.

    ``restored`` is the checkpoint that was used, the one that would undo it, and what was taken
    over.
    """
    columns: Row = {
        "seq": position(tx),
        "agent_id": request.agent_id,
        "requested_by": request.requested_by,
        "scope": request.scope,
        "state": "briefed",
        "briefed_at": ctx.now,
        "briefed_awake_ms": ctx.awake_ms,
        **restored,
    }
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    waiting = tx.one(
        f"UPDATE recoveries SET {assignments} WHERE mission_id = :mission AND state = 'pending'"
        " RETURNING id",
        mission=mission_id,
        **columns,
    )
    if waiting is not None:
        return str(waiting["id"])
    recovery_id = fresh_id(tx, ctx, "recovery")
    tx.insert(
        "recoveries",
        {"id": recovery_id, "mission_id": mission_id, "created_at": ctx.now, **columns},
    )
    return recovery_id


def go_on_elsewhere(tx: Tx, ctx: Context, mission_id: str, agents: Sequence[str]) -> None:
    """Note that agents who were briefed here go on in another mission: nobody waits for them."""
    names = {f"agent{number}": name for number, name in enumerate(agents)}
    rows = tx.all(
        "UPDATE recoveries SET state = 'resumed', resumed_at = :now WHERE mission_id = :mission"
        " AND state <> 'resumed' AND state <> 'pending'"
        f" AND agent_id IN ({', '.join(f':{name}' for name in names)}) RETURNING id",
        now=ctx.now,
        mission=mission_id,
        **names,
    )
    for row in rows:
        emit(tx, ctx, RecoveryConfirmed(recovery_id=row["id"]), mission_id=mission_id)


@handler
def doubt(tx: Tx, ctx: Context, request: RecoveryDoubt) -> Done:
    """Give up waiting for the first activity after a briefing; it may still come."""
    row = tx.one(
        "UPDATE recoveries SET state = 'unconfirmed' WHERE id = :id AND state = 'briefed'"
        f" AND briefed_awake_ms < :before AND NOT {UNTOLD} RETURNING *",
        id=request.recovery_id,
        before=ctx.awake_ms - ctx.config.detection.threshold_ms,
        **touch_of(ctx),
    )
    if row is None:
        return Done(done=False)
    payload = RecoveryUnconfirmed(recovery_id=row["id"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=row["agent_id"])
    who = row["agent_id"] or "nobody in particular"
    which = f"Recovery {row['id']} of {row['mission_id']}"
    text = f"{which} is unconfirmed: {who} was briefed and is silent"
    tx.after_commit(LogLine("WARNING", text))
    return Done(done=True)
