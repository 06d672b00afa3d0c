"""The payload of every event type the daemon writes.

The docstrings are the meanings in docs/events.md. How each is told, and whether it is activity,
stands in ``event_types``.
"""

import re
from typing import Any, ClassVar, Literal

import msgspec

from .event_types import EVENT_TYPES
from .event_types import REPORTED_ACTIVITY as REPORTED_ACTIVITY
from .types import ClosedReason, RunStatus, SnapshotSource, StorageLocation, Trigger


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all payloads. The type of the event is the name: ``MissionCreated`` is of a
    ``mission_created``.
    """

    type: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.type = re.sub(r"\B([A-Z])", r"_\1", cls.__name__).lower()

    @property
    def activity(self) -> bool:
        """Return whether it is something that an agent or a person did, unless they say more."""
        return EVENT_TYPES[self.type].activity


class MissionCreated(Payload, frozen=True, kw_only=True):
    """A mission came into being."""

    title: str


class MissionStarted(Payload, frozen=True, kw_only=True):
    """Work on a mission began."""


class MissionUpdated(Payload, frozen=True, kw_only=True):
    """Fields of a mission changed; ``fields`` names them."""

    fields: list[str]


class MissionCompleted(Payload, frozen=True, kw_only=True):
    """A mission reached its goal, as a ``person`` said; or nothing was open in it when its
    ``session`` was closed, or when that went on in another one (``merged``); activity if it was a
    person.
    """

    checkpoint_id: str
    closed_reason: ClosedReason = "person"
    merged_into: str | None = None


class MissionFailed(Payload, frozen=True, kw_only=True):
    """A mission was given up as failed."""

    reason: str


class MissionCancelled(Payload, frozen=True, kw_only=True):
    """A mission ended short of its goal: called off by a ``person``, closed with its ``session``
    and resumed with it, or ``merged`` into another one; activity if it was a person.
    """

    reason: str
    closed_reason: ClosedReason = "person"
    merged_into: str | None = None


class MissionReopened(Payload, frozen=True, kw_only=True):
    """A mission that ended with its session goes on: that session was resumed, or came back."""


class MissionDeleted(Payload, frozen=True, kw_only=True):
    """A finished mission was deleted with all that belonged to it, its events too.

    It names nothing of the mission, and keeps the end of the log where it was.
    """

    sorties: int


class SortieEvent(Payload, frozen=True, kw_only=True):
    """What the sortie events share."""

    sortie_id: str
    title: str


class SortieCreated(SortieEvent, frozen=True, kw_only=True):
    """A sortie was added to a mission."""


class SortieAssigned(SortieEvent, frozen=True, kw_only=True):
    """A sortie was given to an agent."""

    assigned_to: str


class SortieStarted(SortieEvent, frozen=True, kw_only=True):
    """An agent began a sortie, or went on with it."""


class SortieProgressed(SortieEvent, frozen=True, kw_only=True):
    """An agent reported progress."""

    percent: int
    notes: str | None


class SortieBlocked(SortieEvent, frozen=True, kw_only=True):
    """A sortie cannot go on."""

    reason: str


class SortieUnblocked(SortieEvent, frozen=True, kw_only=True):
    """A sortie can go on again."""


class SortieCompleted(SortieEvent, frozen=True, kw_only=True):
    """A sortie is done."""


class SortieFailed(SortieEvent, frozen=True, kw_only=True):
    """A sortie was given up."""

    reason: str


class SortieReopened(SortieEvent, frozen=True, kw_only=True):
    """A sortie that was closed, or under way, is to do again: the agent's plan says so."""


class SortieUpdated(SortieEvent, frozen=True, kw_only=True):
    """Fields of a sortie changed; ``fields`` names them, ``title`` is the one it has now."""

    fields: list[str]


class SortieRemoved(SortieEvent, frozen=True, kw_only=True):
    """A sortie that nobody had begun was taken out of its mission."""


class AgentRegistered(Payload, frozen=True, kw_only=True):
    """An agent started, or came back."""

    role: str
    harness: str | None
    pid: int | None


class AgentNoted(Payload, frozen=True, kw_only=True):
    """An agent declared what it did last, what comes next, what blocks it."""

    last_action: str | None
    next_steps: list[str]
    blockers: list[str]


class AgentDeregistered(Payload, frozen=True, kw_only=True):
    """An agent left in good order."""

    reason: str | None


class LockEvent(Payload, frozen=True, kw_only=True):
    """What the lock events share."""

    lock_id: str
    file: str
    held_by: str


class LockAcquired(LockEvent, frozen=True, kw_only=True):
    """A lock was granted; activity unless fleetd did it by itself, as in a recovery."""

    purpose: str
    fencing_token: int


class LockRenewed(LockEvent, frozen=True, kw_only=True):
    """A holder prolonged its lease."""


class LockReleased(LockEvent, frozen=True, kw_only=True):
    """A holder gave its lock back, or left in good order."""


class LockForceReleased(LockEvent, frozen=True, kw_only=True):
    """A lock was taken away from its holder; activity unless a recovery did it."""

    reason: str


class MessageSent(Payload, frozen=True, kw_only=True):
    """A letter was posted."""

    message_id: str
    to: list[str]
    subject: str


class MessageAcked(Payload, frozen=True, kw_only=True):
    """A recipient said that a letter is dealt with."""

    message_id: str


class ErrorReported(Payload, frozen=True, kw_only=True):
    """An agent met an error."""

    kind: str
    name: str
    message: str
    status: int | None


class FleetCheckpointed(Payload, frozen=True, kw_only=True):
    """A checkpoint was taken; activity if somebody asked for it while the mission was under way."""

    checkpoint_id: str
    mission_id: str
    trigger: Trigger
    progress_percent: int
    sortie_count: int
    lock_count: int
    message_count: int


class CheckpointCreated(Payload, frozen=True, kw_only=True):
    """A checkpoint is stored; ``storage_locations`` says where: ``sqlite`` (the database, also
    where it is a PostgreSQL), and ``file`` unless that failed for now; ``machine`` keeps the file,
    where several share a store.
    """

    checkpoint_id: str
    mission_id: str
    trigger: Trigger
    storage_locations: list[StorageLocation]
    machine: str | None = None


class RecordsForgotten(Payload, frozen=True, kw_only=True):
    """Somebody had things forgotten; says how many and names none of them.

    It keeps the end of the log where it was.
    """

    missions: int
    agents: int


class CheckpointDeleted(Payload, frozen=True, kw_only=True):
    """A checkpoint was deleted: on request, or as its mission had more than it may keep."""

    checkpoint_id: str


class CheckpointsPruned(Payload, frozen=True, kw_only=True):
    """Old checkpoints went; said once for all of them, instead of ``checkpoint_deleted``."""

    deleted: int
    freed_bytes: int


class BackupFailed(Payload, frozen=True, kw_only=True):
    """The file of a checkpoint, or of a snapshot, could not be written; the row stays and the file
    is tried again. Of a snapshot ``checkpoint_id`` is its id, and ``reason_code`` is
    ``checkpoint_atomic_write_failed``.
    """

    checkpoint_id: str
    error: str
    reason_code: str | None = None


class SnapshotRecorded(Payload, frozen=True, kw_only=True):
    """Where a run stands was recorded; a trigger that joined the last snapshot says nothing."""

    snapshot_id: str
    run_id: str
    source: SnapshotSource
    status: RunStatus


class SnapshotsPruned(Payload, frozen=True, kw_only=True):
    """Old snapshots went; said once for all of them."""

    deleted: int
    freed_bytes: int


class FleetRecovered(Payload, frozen=True, kw_only=True):
    """A mission was brought back; ``recovered_sorties`` and ``sorties_restored`` are the same
    count, and so on.
    """

    checkpoint_id: str
    mission_id: str
    recovered_sorties: int
    recovered_locks: int
    requeued_messages: int
    recovery_duration_ms: int
    sorties_restored: int
    locks_restored: int
    messages_requeued: int
    errors: int
    warnings: int
    progress: int


class SortieMoved(SortieEvent, frozen=True, kw_only=True):
    """An open sortie went on in this mission: its agent's session moved here from another."""

    from_mission: str


class SortieRestored(SortieEvent, frozen=True, kw_only=True):
    """A recovery changed a sortie."""

    status: str


class RecoveryAvailable(Payload, frozen=True, kw_only=True):
    """A mission waits for recovery, and can be recovered from this checkpoint."""

    recovery_id: str
    checkpoint_id: str


class RecoveryBriefed(Payload, frozen=True, kw_only=True):
    """A recovery prompt was handed out."""

    recovery_id: str


class RecoveryConfirmed(Payload, frozen=True, kw_only=True):
    """Whoever was briefed is at work again, here or, as its session moved, in another mission; or
    the mission went on without a briefing.
    """

    recovery_id: str


class RecoveryUnconfirmed(Payload, frozen=True, kw_only=True):
    """Whoever was briefed has not been heard of since."""

    recovery_id: str


class ContextCompacted(Payload, frozen=True, kw_only=True):
    """A mission fell silent: its agents have probably lost their context."""

    mission_id: str
    last_activity_at: str
    inactivity_duration_ms: int
    checkpoint_available: bool
    checkpoint_id: str | None


class AgentLost(Payload, frozen=True, kw_only=True):
    """An agent ended without a word, was not heard of, was lost with its machine, or was replaced;
    ``reason`` says which.
    """

    reason: str


class AgentReturned(Payload, frozen=True, kw_only=True):
    """An agent that was lost with its machine is at work after all; ``reason`` says how it came."""

    reason: str


class WindowCompacted(Payload, frozen=True, kw_only=True):
    """The context window of an agent's session was compacted; ``summary`` is what its harness
    kept.
    """

    summary: str | None


class HookNoted(Payload, frozen=True, kw_only=True):
    """A harness told something that is no work, such as a notification to its user."""

    what: str
    message: str | None


class LockExpired(LockEvent, frozen=True, kw_only=True):
    """A lease ran out; noticed when somebody asks or waits for the file, not before."""


class LockConflicted(LockEvent, frozen=True, kw_only=True):
    """A recovery found a lock in other hands."""

    wanted_by: str


class MessageDelivered(Payload, frozen=True, kw_only=True):
    """A recipient looked into its inbox and found a letter."""

    message_id: str


class MessageRequeued(Payload, frozen=True, kw_only=True):
    """A letter waits for its recipients again."""

    message_id: str
    to: list[str]


class MessageFailed(Payload, frozen=True, kw_only=True):
    """A letter was refused, because its recipients in ``to`` have left."""

    to: list[str]
    subject: str
    error: str


class StoreRestored(Payload, frozen=True, kw_only=True):
    """The database came back from a copy, was caught up from files, or lost its end to damage.

    ``end`` is where it ended. Its ``seq`` lies above everything that was given out before, so
    positions leave a gap here.
    """

    source: Literal["copy", "files", "damage"]
    end: int


class LegacyImported(Payload, frozen=True, kw_only=True):
    """The events after this one came out of an older store; their age counts from here."""

    events: int


def _leaves(cls: type[Payload]) -> list[type[Payload]]:
    return [leaf for child in cls.__subclasses__() for leaf in _leaves(child)] or [cls]


PAYLOADS: dict[str, type[Payload]] = {cls.type: cls for cls in _leaves(Payload)}


def payload_data(payload: Payload) -> dict[str, Any]:
    """Return a payload as the ``data`` of its event; absent values are left out."""
    fields: dict[str, Any] = msgspec.to_builtins(payload)
    return {name: value for name, value in fields.items() if value is not None}
