"""Undo: going back and forward again, also for ended missions and repeated recoveries."""

from ...protocol.errors import InvalidState
from ...protocol.records import Checkpoint, SortieState
from ...protocol.requests.checkpoint import DeclaredContext
from ...protocol.types import OPEN_MISSION, ClosedReason
from ..checkpoints import checkpoints
from ..checkpoints.checkpoints import WITH_SESSION, Reason
from ..checkpoints.state import State, capture
from ..core.changes import mission_changed
from ..core.mappers import ended_as
from ..core.tx import Row
from .restore_context import RestoreContext


def reopen(restore: RestoreContext, mission: Row) -> None:
    """Refuse an ended mission; with ``rewind``, reopen it from the checkpoint."""
    if mission["status"] in OPEN_MISSION:
        _close_again(restore)
        return
    if restore.only_agent:
        raise InvalidState(
            f"Mission {mission['id']} is {ended_as(mission)}; scope agent cannot reopen it.",
            hint="Restore the whole mission: --scope mission --rewind.",
            status=mission["status"],
        )
    if restore.repeated and restore.request.checkpoint_id:
        return  # this checkpoint has just ended it: repeating that changes nothing
    if not restore.request.rewind:
        raise InvalidState(
            f"Mission {mission['id']} was {ended_as(mission)} at {mission['completed_at']}.",
            hint="To restore the checkpoint anyway, add --rewind.",
            status=mission["status"],
        )
    known = restore.checkpoint.mission
    then = known.status if known else "in_progress"
    restore.tx.run(
        "UPDATE missions SET status = :status, closed_reason = NULL, completed_at = NULL,"
        " updated_at = :now, started_at = coalesce(started_at, :now), active_awake_ms = :awake,"
        " silent = 0 WHERE id = :id",
        status=then if then in OPEN_MISSION else "in_progress",
        now=restore.ctx.now,
        awake=restore.ctx.awake_ms,
        id=mission["id"],
    )
    fields = {
        "status": then if then in OPEN_MISSION else "in_progress",
        "closed_reason": None,
        "started_at": mission["started_at"] or restore.ctx.now,
    }
    mission_changed(restore.tx, mission["id"], fields)


def _close_again(restore: RestoreContext) -> None:
    """End a mission again when its rewind is undone; the request has to name the checkpoint."""
    known = restore.checkpoint.mission
    named = restore.request.checkpoint_id is not None
    if restore.repeated:
        return  # this checkpoint has just reopened it
    if named and known and known.status not in OPEN_MISSION and not restore.only_agent:
        restore.tx.run(
            "UPDATE missions SET status = :status, closed_reason = :why, completed_at = :at,"
            " updated_at = :now WHERE id = :id",
            status=known.status,
            why=_closed_reason(restore.checkpoint),
            at=restore.checkpoint.timestamp,
            now=restore.ctx.now,
            id=restore.mission_id,
        )
        fields = {"status": known.status, "closed_reason": _closed_reason(restore.checkpoint)}
        mission_changed(restore.tx, restore.mission_id, fields)


def _closed_reason(checkpoint: Checkpoint) -> ClosedReason:
    """Return why the mission of a checkpoint was closed when it was taken.

    An older checkpoint does not record the reason: there, only its creator and details tell.
    """
    known = checkpoint.mission
    if known is not None and known.closed_reason is not None:
        return known.closed_reason
    with_session = checkpoint.created_by == "fleetd" and checkpoint.trigger_details == WITH_SESSION
    return "session" if known and known.automatic and with_session else "person"


def already_recovered(restore: RestoreContext, mission: Row) -> bool:
    """Return whether the same recovery has just taken place; if so, report who was first."""
    last = restore.tx.one(
        "SELECT * FROM recoveries WHERE mission_id = :id AND briefed_at IS NOT NULL"
        " ORDER BY seq DESC LIMIT 1",
        id=mission["id"],
    )
    same = last is not None and last["checkpoint_id"] == restore.checkpoint.id
    if last is None or not same or mission["last_activity_seq"] > last["seq"]:
        return False
    actor = last["agent_id"] or last["requested_by"]
    restore.report.warnings.append(
        f"Already recovered from {restore.checkpoint.id} by {actor} at {last['briefed_at']} "
        f"({last['id']}); nothing has happened since"
    )
    return True


def take_undo_checkpoint(
    restore: RestoreContext, state: State, *, hands_over: bool = False
) -> str | None:
    """Return the checkpoint that would undo the recovery; an equal newest one is reused.

    ``state`` is the present state. None when it equals the restored state and no part of it goes to
    another agent: there is nothing to undo.
    """
    mission, digest = state.mission, state.digest()
    ended = mission["status"] not in OPEN_MISSION
    restored = restore.tx.value(
        "SELECT state_digest FROM checkpoints WHERE id = :id", id=restore.checkpoint.id
    )
    if restored == digest and not ended and not hands_over:
        return None
    newest = checkpoints.latest_row(restore.tx, mission["id"], undo=True, columns=checkpoints.HEAD)
    # A reopened mission has changed, even if it was reopened from its own end.
    if newest and newest["state_digest"] == digest and newest["id"] != restore.checkpoint.id:
        return str(newest["id"])
    reason = Reason(
        trigger="compaction",
        details=f"Before recovery from {restore.checkpoint.id}",
        created_by=restore.request.requested_by,
        undo=True,
        pinned=restore.checkpoint.id,
    )
    return checkpoints.take(restore.tx, restore.ctx, mission["id"], reason, state).id


def keep_restored_state(
    restore: RestoreContext, mission: Row, sorties: list[SortieState], *, hands_over: bool
) -> None:
    """Take a checkpoint of the state that an older checkpoint or an undo checkpoint restored.

    Otherwise the next recovery would use the newer checkpoint that was just left, or give moved
    work back to the lost agent. ``mission`` and ``sorties`` are as they are now.
    """
    newest = checkpoints.latest_row(restore.tx, restore.mission_id, columns=checkpoints.HEAD)
    rewound = restore.request.rewind and mission["last_activity_seq"] > restore.checkpoint.seq
    if newest and not rewound and not hands_over and newest["id"] == restore.checkpoint.id:
        return  # the next recovery uses it anyway, and a new one would lack its details
    state = capture(restore.tx, restore.ctx, mission, sorties)
    if newest and not rewound and state.digest() == newest["state_digest"]:
        return
    then = restore.checkpoint.recovery_context
    reason = Reason(
        trigger="compaction",
        details=f"Recovered from {restore.checkpoint.id}",
        created_by=restore.request.requested_by,
        # Work after the checkpoint is undone, and must not be reported as the last action.
        declared=DeclaredContext(last_action=then.last_action) if rewound else None,
        pinned=restore.checkpoint.id,
    )
    checkpoints.take(restore.tx, restore.ctx, restore.mission_id, reason, state)
