"""Going back and being able to go forward again: ended missions, undo, repetition, the newest.

One part of recovery; must not restore anything itself.
"""

from ...protocol.errors import InvalidState
from ...protocol.records import Checkpoint, SortieState
from ...protocol.requests.checkpoint import DeclaredContext
from ...protocol.types import OPEN_MISSION, ClosedReason
from ..checkpoints import checkpoints
from ..checkpoints.checkpoints import Reason
from ..checkpoints.limits import WITH_SESSION
from ..checkpoints.state import State, capture
from ..core.ids import find
from ..core.mappers import ended_as
from ..core.tx import Row
from .restore_context import Case


def reopen(case: Case, mission: Row) -> None:
    """Refuse a finished mission; with ``rewind`` it goes on from the checkpoint."""
    if mission["status"] in OPEN_MISSION:
        _end_again(case)
        return
    if case.narrow:
        raise InvalidState(
            f"Mission {mission['id']} is {ended_as(mission)}; one agent cannot reopen it.",
            hint="Restore the whole mission: --scope mission --rewind.",
            status=mission["status"],
        )
    if case.repeated and case.request.checkpoint_id:
        return  # this checkpoint has just ended it, and twice is the same as once
    if not case.request.rewind:
        raise InvalidState(
            f"Mission {mission['id']} was {ended_as(mission)} at {mission['completed_at']}.",
            hint="To go back to the checkpoint all the same, add --rewind.",
            status=mission["status"],
        )
    known = case.checkpoint.mission
    then = known.status if known else "in_progress"
    case.tx.run(
        "UPDATE missions SET status = :status, closed_reason = NULL, completed_at = NULL,"
        " updated_at = :now, started_at = coalesce(started_at, :now), active_awake_ms = :awake,"
        " silent = 0 WHERE id = :id",
        status=then if then in OPEN_MISSION else "in_progress",
        now=case.ctx.now,
        awake=case.ctx.awake_ms,
        id=mission["id"],
    )


def _end_again(case: Case) -> None:
    """Put back the end of a mission whose rewinding is undone: its checkpoint has to be named."""
    known = case.checkpoint.mission
    named = case.request.checkpoint_id is not None
    if case.repeated:
        return  # this checkpoint has just reopened it
    if named and known and known.status not in OPEN_MISSION and not case.narrow:
        case.tx.run(
            "UPDATE missions SET status = :status, closed_reason = :why, completed_at = :at,"
            " updated_at = :now WHERE id = :id",
            status=known.status,
            why=_closed_reason(case.checkpoint),
            at=case.checkpoint.timestamp,
            now=case.ctx.now,
            id=case.mission_id,
        )


def _closed_reason(checkpoint: Checkpoint) -> ClosedReason:
    """Return why the mission of a checkpoint was closed when it was taken.

    One that does not say so is of before it was kept: there, only this says whose end it was.
    """
    known = checkpoint.mission
    if known is not None and known.closed_reason is not None:
        return known.closed_reason
    with_session = checkpoint.created_by == "fleetd" and checkpoint.trigger_details == WITH_SESSION
    return "session" if known and known.automatic and with_session else "person"


def done_before(case: Case, mission: Row) -> bool:
    """Whether the same was done just now; the second of two at once is told who was first."""
    last = case.tx.one(
        "SELECT * FROM recoveries WHERE mission_id = :id AND briefed_at IS NOT NULL"
        " ORDER BY seq DESC LIMIT 1",
        id=mission["id"],
    )
    if last is None or last["checkpoint_id"] != case.checkpoint.id:
        return False
    if mission["last_activity_seq"] > last["seq"]:
        return False
    who = last["agent_id"] or last["requested_by"]
    case.ledger.warnings.append(
        f"Already recovered from {case.checkpoint.id} by {who} at {last['briefed_at']} "
        f"({last['id']}); nothing has happened since"
    )
    return True


def keep_undo(case: Case, state: State, *, hands_over: bool = False) -> str | None:
    """Return the checkpoint that would undo the recovery; one that equals it need not be taken.

    ``state`` is what is there. None when that equals what is restored and nothing of it goes to
    another agent: there is nothing to undo.
    """
    mission, digest = state.mission, state.digest()
    ended = mission["status"] not in OPEN_MISSION
    restored = case.tx.value(
        "SELECT state_digest FROM checkpoints WHERE id = :id", id=case.checkpoint.id
    )
    if restored == digest and not ended and not hands_over:
        return None
    newest = checkpoints.latest_row(case.tx, mission["id"], undo=True, columns=checkpoints.HEAD)
    # A mission that was reopened has changed, also when it was reopened from its own end.
    if newest and newest["state_digest"] == digest and newest["id"] != case.checkpoint.id:
        return str(newest["id"])
    reason = Reason(
        trigger="compaction",
        details=f"Before recovery from {case.checkpoint.id}",
        created_by=case.request.requested_by,
        undo=True,
        pinned=case.checkpoint.id,
    )
    return checkpoints.take(case.tx, case.ctx, mission["id"], reason, state).id


def become_newest(case: Case, sorties: list[SortieState], *, hands_over: bool) -> None:
    """Take a checkpoint of what an older one, or an undo checkpoint, restored.

    Otherwise the next recovery would go to the newer one that was just left, or give what went to
    another agent back to the one who is lost. ``sorties`` are those of the mission now.
    """
    newest = checkpoints.latest_row(case.tx, case.mission_id, columns=checkpoints.HEAD)
    mission = find(case.tx, "mission", case.mission_id)
    rewound = case.request.rewind and mission["last_activity_seq"] > case.checkpoint.seq
    if newest and not rewound and not hands_over and newest["id"] == case.checkpoint.id:
        return  # it was the newest before, and what was kept beside it is not lost
    state = capture(case.tx, case.ctx, mission, sorties)
    if newest and not rewound and state.digest() == newest["state_digest"]:
        return
    then = case.checkpoint.recovery_context
    reason = Reason(
        trigger="compaction",
        details=f"Recovered from {case.checkpoint.id}",
        created_by=case.request.requested_by,
        # What was done after the checkpoint is undone, and must not be told as the last action.
        declared=DeclaredContext(last_action=then.last_action) if rewound else None,
        pinned=case.checkpoint.id,
    )
    checkpoints.take(case.tx, case.ctx, case.mission_id, reason, state)
