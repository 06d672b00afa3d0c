"""States of a recovery: pending since its mission fell silent, briefed, resumed or unconfirmed.

The log makes the step to ``resumed`` at the first activity. An agent whose session moves to another
mission continues there.
"""

from collections.abc import Sequence
from contextlib import suppress

from ...protocol.display import duration
from ...protocol.errors import Corrupt, Incompatible
from ...protocol.events import (
    ContextCompacted,
    RecoveryAvailable,
    RecoveryConfirmed,
    RecoveryUnconfirmed,
)
from ...protocol.requests.recovery import RecoveryRestore
from ..checkpoints import checkpoints
from ..checkpoints.codec import from_row
from ..cluster.membership import unreachable, unreachable_params
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.ids import fresh_id
from ..core.sql import inside_of, named_params
from ..core.tx import LogLine, Row, Tx
from ..liveness.silence import last_activity, silence_ms, silent_missions

# The briefed agent may have continued, and its activity may not have arrived yet.
BRIEFED_OUT_OF_TOUCH = (
    "EXISTS (SELECT 1 FROM agents briefed WHERE briefed.id = recoveries.agent_id"
    f" AND {unreachable('briefed')})"
)


def begin_episode(tx: Tx, ctx: Context, mission_id: str) -> bool:
    """Report once that a mission fell silent, if it did, and let it wait for recovery."""
    limit = ctx.config.detection.threshold_ms
    rows = silent_missions(tx, ctx, limit, " AND m.silent = 0 AND m.id = :id", id=mission_id)
    if not rows:
        return False
    mission = rows[0]
    tx.run("UPDATE missions SET silent = 1 WHERE id = :id", id=mission["id"])
    if not tx.all(
        "INSERT INTO episodes (mission_id, last_seq, detected_at) VALUES (:id, :seq, :now)"
        " ON CONFLICT (mission_id, last_seq) DO NOTHING RETURNING mission_id",
        id=mission["id"],
        seq=mission["last_activity_seq"],
        now=ctx.now,
    ):
        return True
    checkpoint_id = _usable_checkpoint(tx, ctx, mission)
    payload = ContextCompacted(
        mission_id=mission["id"],
        last_activity_at=last_activity(mission),
        inactivity_duration_ms=silence_ms(ctx, mission),
        checkpoint_available=True,
        checkpoint_id=checkpoint_id,
    )
    emit(tx, ctx, payload, mission_id=mission["id"])
    make_pending(tx, ctx, mission["id"], checkpoint_id)
    silent = duration(silence_ms(ctx, mission))
    text = f"Mission {mission['id']} ({mission['title']}) has been silent for {silent}"
    tx.after_commit(LogLine("WARNING", f"{text}; it can be recovered from {checkpoint_id}"))
    return True


def _usable_checkpoint(tx: Tx, ctx: Context, mission: Row) -> str:
    """Return the newest checkpoint, or take one if the newest is unreadable or outdated.

    The state is still here: an unreadable checkpoint is no reason to go back to an older one.
    """
    newest = checkpoints.latest_row(tx, mission["id"])
    if newest and not checkpoints.outdated(newest, mission):
        with suppress(Corrupt, Incompatible):
            return from_row(newest).id
    reason = checkpoints.Reason(
        trigger="compaction", details="Mission fell silent", created_by="fleetd"
    )
    return checkpoints.take(tx, ctx, mission["id"], reason).id


def make_pending(tx: Tx, ctx: Context, mission_id: str, checkpoint_id: str) -> str:
    """Record that a mission waits for recovery from a checkpoint; only one waits at a time."""
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
    """Record that a prompt was handed out; return the recovery that waited, or a new one.

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


def confirm_moved_agents(tx: Tx, ctx: Context, mission_id: str, agents: Sequence[str]) -> None:
    """Record that agents who were briefed here continue elsewhere: nobody waits for them."""
    for row in tx.all(
        "UPDATE recoveries SET state = 'resumed', resumed_at = :now WHERE mission_id = :mission"
        " AND state <> 'resumed' AND state <> 'pending'"
        f" AND agent_id IN ({inside_of('agent', agents)}) RETURNING id",
        now=ctx.now,
        mission=mission_id,
        **named_params("agent", agents),
    ):
        emit(tx, ctx, RecoveryConfirmed(recovery_id=row["id"]), mission_id=mission_id)


def mark_unconfirmed(tx: Tx, ctx: Context, recovery_id: str) -> bool:
    """Give up waiting for the first activity after a briefing; it may still come."""
    row = tx.one(
        "UPDATE recoveries SET state = 'unconfirmed' WHERE id = :id AND state = 'briefed'"
        f" AND briefed_awake_ms < :before AND NOT {BRIEFED_OUT_OF_TOUCH} RETURNING *",
        id=recovery_id,
        before=ctx.awake_ms - ctx.config.detection.threshold_ms,
        **unreachable_params(ctx),
    )
    if row is None:
        return False
    payload = RecoveryUnconfirmed(recovery_id=row["id"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=row["agent_id"])
    recipient = row["agent_id"] or "nobody in particular"
    which = f"Recovery {row['id']} of {row['mission_id']}"
    tx.after_commit(
        LogLine("WARNING", f"{which} is unconfirmed: {recipient} was briefed and is silent")
    )
    return True
