"""Checkpoint diff: what differs between two checkpoints of a mission, or between one and now.

The caller reads the checkpoints, so that damage is repaired and reported as usual.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from ...protocol.checkpoint_diff import (
    ChangedHolder,
    ChangedMessage,
    ChangedSortie,
    CheckpointDifference,
    Compared,
    FieldChange,
    LockDifference,
    MessageDifference,
    SortieDifference,
)
from ...protocol.errors import InvalidParams
from ...protocol.records import (
    Checkpoint,
    Lock,
    MissionState,
    PendingMessage,
    RecoveryContext,
    SortieState,
    percent,
)
from ...protocol.requests.mission import MissionMoment
from ..core.context import Context
from ..core.event_log import position
from ..core.ids import find
from ..core.tx import Tx
from .derived_context import derive
from .state import capture

T = TypeVar("T")
MISSION_FIELDS = ("title", "description", "status", "priority", "project_dir")
SORTIE_FIELDS = (
    *("status", "assigned_to", "progress", "progress_notes", "blocked_reason", "result"),
    *("files", "title", "description", "priority", "position", "depends_on"),
)
# Lists whose order only tells when an entry was noticed: it is no difference.
UNORDERED = ("blockers", "files_modified", "files", "depends_on")
CONTEXT_FIELDS = ("mission_summary", "last_action", "next_steps", "blockers", "files_modified")


class DiffSide(msgspec.Struct, frozen=True):
    """One side of a comparison, read from a checkpoint or captured now."""

    compared: Compared
    mission: MissionState | None
    sorties: Sequence[SortieState]
    locks: Sequence[Lock]
    messages: Sequence[PendingMessage]
    context: RecoveryContext | None


Side = Checkpoint | MissionMoment


def compare(tx: Tx, ctx: Context, before: Side, after: Side | None) -> CheckpointDifference:
    """Return the differences between a checkpoint or moment and another one, or the present.

    Raises InvalidParams for checkpoints of different missions.
    """
    if after is not None and before.mission_id != after.mission_id:
        raise InvalidParams(
            f"{_what(before)} is of {_named(before)}, {_what(after)} of {_named(after)}. "
            "Only checkpoints of one mission can be compared.",
            hint=f"fleetctl checkpoint list --mission {before.mission_id} shows the others.",
            field="after",
        )
    now = _present(tx, ctx, before.mission_id) if after is None else _side(after)
    result = difference(before.mission_id, _side(before), now)
    warnings = [*_warnings(before), *_warnings(after)]
    return msgspec.structs.replace(result, warnings=list(dict.fromkeys(warnings)))


def _warnings(side: Side | None) -> Sequence[str]:
    return side.warnings if isinstance(side, Checkpoint) else ()


def _what(side: Side) -> str:
    if isinstance(side, Checkpoint):
        return f"Checkpoint {side.id}"
    return f"The moment {side.timestamp}"


def _named(checkpoint: Side) -> str:
    title = checkpoint.mission.title if checkpoint.mission else None
    return f"{checkpoint.mission_id} ({title})" if title else checkpoint.mission_id


def _moment(moment: MissionMoment) -> DiffSide:
    return DiffSide(
        Compared(
            checkpoint_id=None,
            timestamp=moment.timestamp,
            trigger=None,
            trigger_details=None,
            seq=moment.seq,
            mission_status=moment.mission.status,
            progress_percent=moment.progress_percent,
            moment=True,
            total_sorties=moment.total_sorties,
            completed_sorties=moment.completed_sorties,
        ),
        moment.mission,
        moment.sorties,
        moment.locks,
        moment.messages,
        None,
    )


def _side(checkpoint: Side) -> DiffSide:
    if isinstance(checkpoint, MissionMoment):
        return _moment(checkpoint)
    known = checkpoint.mission
    return DiffSide(
        Compared(
            checkpoint_id=checkpoint.id,
            timestamp=checkpoint.timestamp,
            trigger=checkpoint.trigger,
            trigger_details=checkpoint.trigger_details,
            seq=checkpoint.seq,
            mission_status=known.status if known else None,
            progress_percent=checkpoint.progress_percent,
            total_sorties=len(checkpoint.sorties),
            completed_sorties=_completed(checkpoint.sorties),
        ),
        known,
        checkpoint.sorties,
        checkpoint.active_locks,
        checkpoint.pending_messages,
        checkpoint.recovery_context,
    )


def _present(tx: Tx, ctx: Context, mission_id: str) -> DiffSide:
    """Return what a checkpoint would hold if one were taken now."""
    mission = find(tx, "mission", mission_id)
    state = capture(tx, ctx, mission)
    done = percent(mission["completed_sorties"], mission["total_sorties"])
    return DiffSide(
        Compared(
            checkpoint_id=None,
            timestamp=ctx.now,
            trigger=None,
            trigger_details=None,
            seq=position(tx),
            mission_status=mission["status"],
            progress_percent=100 if mission["status"] == "completed" else done,
            total_sorties=len(state.sorties),
            completed_sorties=_completed(state.sorties),
        ),
        state.mission_state(),
        state.sorties,
        state.locks,
        state.messages,
        derive(tx, ctx, mission, state.sorties),
    )


def _completed(sorties: Sequence[SortieState]) -> int:
    return sum(sortie.status == "completed" for sortie in sorties)


def difference(mission_id: str, before: DiffSide, after: DiffSide) -> CheckpointDifference:
    """Return the differences of ``after`` from ``before``."""
    newest = after.mission or before.mission
    found = CheckpointDifference(
        mission_id=mission_id,
        mission_title=newest.title if newest else _summary(after.context),
        before=before.compared,
        after=after.compared,
        equal=False,
        mission=changes(before.mission, after.mission, MISSION_FIELDS),
        sorties=_sorties(before.sorties, after.sorties),
        locks=_locks(before.locks, after.locks),
        messages=_messages(before.messages, after.messages),
        recovery_context=changes(before.context, after.context, CONTEXT_FIELDS),
    )
    lists = [found.mission, found.recovery_context]
    for part in (found.sorties, found.locks, found.messages):
        lists += msgspec.structs.astuple(part)
    same = found.before.progress_percent == found.after.progress_percent
    return msgspec.structs.replace(found, equal=same and not any(lists))


def _summary(context: RecoveryContext | None) -> str:
    return context.mission_summary if context else ""


def changes(before: Any, after: Any, fields: Iterable[str]) -> list[FieldChange]:
    """Return the fields in which two records differ; none if either record is missing."""
    if before is None or after is None:
        return []
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in fields)
    return [
        FieldChange(field=name, before=old, after=new)
        for name, old, new in pairs
        if old != new and not (name in UNORDERED and sorted(old) == sorted(new))
    ]


def _apart(
    before: Iterable[T], after: Iterable[T], key: Callable[[T], Hashable]
) -> tuple[list[T], list[T], list[tuple[T, T]]]:
    """Return what only ``after`` has, what only ``before`` has, and what both have."""
    old = {key(each): each for each in before}
    new = {key(each): each for each in after}
    return (
        [each for name, each in new.items() if name not in old],
        [each for name, each in old.items() if name not in new],
        [(old[name], each) for name, each in new.items() if name in old],
    )


def _sorties(before: Sequence[SortieState], after: Sequence[SortieState]) -> SortieDifference:
    added, removed, both = _apart(before, after, lambda sortie: sortie.id)
    changed = [
        ChangedSortie(id=new.id, title=new.title, changes=found)
        for old, new in both
        if (found := changes(old, new, SORTIE_FIELDS))
    ]
    return SortieDifference(added=added, removed=removed, changed=changed)


def _locks(before: Sequence[Lock], after: Sequence[Lock]) -> LockDifference:
    # Each holder of a shared lock has a lock record of its own.
    gained, released, both = _apart(
        before,
        after,
        lambda lock: (
            lock.normalized_path or lock.file,
            lock.held_by if lock.mode == "shared" else "",
        ),
    )
    changed = [
        ChangedHolder(file=new.file, before=old.held_by, after=new.held_by)
        for old, new in both
        if old.held_by != new.held_by
    ]
    return LockDifference(gained=gained, released=released, changed=changed)


def _messages(
    before: Sequence[PendingMessage], after: Sequence[PendingMessage]
) -> MessageDifference:
    new, gone, both = _apart(before, after, lambda message: message.id)
    changed = [
        ChangedMessage(id=now.id, subject=now.subject, before=then.to, after=now.to)
        for then, now in both
        if sorted(then.to) != sorted(now.to)
    ]
    return MessageDifference(new=new, gone=gone, changed=changed)
