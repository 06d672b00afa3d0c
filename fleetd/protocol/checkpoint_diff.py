"""Records of a comparison of two checkpoints."""

from .records import Lock, PendingMessage, Record, SortieState
from .types import MissionStatus, Trigger

Value = str | int | list[str] | None


class Compared(Record, frozen=True, kw_only=True):
    """One side of a comparison: a checkpoint, or with a null ``checkpoint_id`` what is now.

    With ``moment`` it is the state at ``timestamp``, made from a checkpoint and events.

    ``mission_status`` is null where a checkpoint does not know it. ``seq`` is the event it was
    taken at: the side with the lower one is the older.
    """

    checkpoint_id: str | None
    timestamp: str
    trigger: Trigger | None
    trigger_details: str | None
    seq: int
    mission_status: MissionStatus | None
    progress_percent: int
    total_sorties: int
    completed_sorties: int
    moment: bool = False


class FieldChange(Record, frozen=True, kw_only=True):
    """A field that has another value."""

    field: str
    before: Value
    after: Value


class ChangedSortie(Record, frozen=True, kw_only=True):
    """A sortie that both sides have, with the fields in which they differ."""

    id: str
    title: str
    changes: list[FieldChange]


class SortieDifference(Record, frozen=True, kw_only=True):
    """Sorties of one side only, in order, and those that changed."""

    added: list[SortieState]
    removed: list[SortieState]
    changed: list[ChangedSortie]


class ChangedHolder(Record, frozen=True, kw_only=True):
    """A file that another agent holds."""

    file: str
    before: str
    after: str


class LockDifference(Record, frozen=True, kw_only=True):
    """Locks of one side only, and files in other hands; a lease that was renewed is the same."""

    gained: list[Lock]
    released: list[Lock]
    changed: list[ChangedHolder]


class ChangedMessage(Record, frozen=True, kw_only=True):
    """A message that waits for others than before."""

    id: str
    subject: str
    before: list[str]
    after: list[str]


class MessageDifference(Record, frozen=True, kw_only=True):
    """Messages that wait for somebody on one side only, and those that wait for others."""

    new: list[PendingMessage]
    gone: list[PendingMessage]
    changed: list[ChangedMessage]


class CheckpointDifference(Record, frozen=True, kw_only=True):
    """What is different in ``after``; ``equal`` says that nothing is.

    ``mission`` and ``recovery_context`` are field by field. Times and leases do not count.
    ``warnings`` are those of reading the checkpoints.
    """

    mission_id: str
    mission_title: str
    before: Compared
    after: Compared
    equal: bool
    mission: list[FieldChange]
    sorties: SortieDifference
    locks: LockDifference
    messages: MessageDifference
    recovery_context: list[FieldChange]
    warnings: list[str] = []
