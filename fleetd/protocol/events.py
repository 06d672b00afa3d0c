"""The payload of every event type the daemon writes.

The docstrings are the meanings in docs/events.md. How each is told, and whether it is activity,
stands in ``event_types``.
"""

import re
from typing import Any, ClassVar, Literal

import msgspec

from .event_types import EVENT_TYPES
from .event_types import REPORTED_ACTIVITY as REPORTED_ACTIVITY
from .types import (
    AgentNeed,
    ClosedReason,
    NoteKind,
    RunStatus,
    SnapshotSource,
    StorageLocation,
    Trigger,
)


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
    """A mission was created; ``origin`` is ``session`` if it was made by itself for one."""

    title: str
    origin: Literal["session"] | None = None


class MissionStarted(Payload, frozen=True, kw_only=True):
    """Work on a mission began."""


class MissionUpdated(Payload, frozen=True, kw_only=True):
    """Fields of a mission changed; ``fields`` names them."""

    fields: list[str]


class MissionCompleted(Payload, frozen=True, kw_only=True):
    """A mission ended with its goal reached.

    A ``person`` completed it, its ``session`` closed with nothing open, or it was ``merged`` into
    another mission. It is activity if a person did it.
    """

    checkpoint_id: str
    closed_reason: ClosedReason = "person"
    merged_into: str | None = None


class MissionFailed(Payload, frozen=True, kw_only=True):
    """A mission failed."""

    reason: str


class MissionCancelled(Payload, frozen=True, kw_only=True):
    """A mission ended before it reached its goal.

    A ``person`` cancelled it, it closed with its ``session`` and resumes with it, or it was
    ``merged`` into another mission. It is activity if a person did it.
    """

    reason: str
    closed_reason: ClosedReason = "person"
    merged_into: str | None = None


class MissionReopened(Payload, frozen=True, kw_only=True):
    """A mission that ended with its session is open again, because the session resumed."""


class MissionChanged(Payload, frozen=True, kw_only=True):
    """Sorties, locks, mail or notes left a mission or came to it with work in another one."""


class MissionDeleted(Payload, frozen=True, kw_only=True):
    """A finished mission was deleted with everything that belonged to it, events included.

    The event names nothing of the mission. It keeps the position of the end of the log.
    """

    sorties: int


class SortieEvent(Payload, frozen=True, kw_only=True):
    """What the sortie events share."""

    sortie_id: str
    title: str


class SortieCreated(SortieEvent, frozen=True, kw_only=True):
    """A sortie was added to a mission."""


class SortieAssigned(SortieEvent, frozen=True, kw_only=True):
    """A sortie was assigned to an agent."""

    assigned_to: str


class SortieStarted(SortieEvent, frozen=True, kw_only=True):
    """An agent started or resumed a sortie."""


class SortieProgressed(SortieEvent, frozen=True, kw_only=True):
    """An agent reported progress."""

    percent: int
    notes: str | None


class SortieBlocked(SortieEvent, frozen=True, kw_only=True):
    """A sortie is blocked."""

    reason: str


class SortieUnblocked(SortieEvent, frozen=True, kw_only=True):
    """A sortie is no longer blocked."""


class SortieCompleted(SortieEvent, frozen=True, kw_only=True):
    """A sortie is done."""


class SortieFailed(SortieEvent, frozen=True, kw_only=True):
    """A sortie failed."""

    reason: str


class SortieReopened(SortieEvent, frozen=True, kw_only=True):
    """A sortie that was closed or in progress is pending again in the agent's plan."""


class SortieUpdated(SortieEvent, frozen=True, kw_only=True):
    """Fields of a sortie changed; ``fields`` names them, ``title`` is the present title."""

    fields: list[str]


class SortieRemoved(SortieEvent, frozen=True, kw_only=True):
    """A sortie that nobody had started was removed from its mission."""


class AgentRegistered(Payload, frozen=True, kw_only=True):
    """An agent started or came back."""

    role: str
    harness: str | None
    pid: int | None


class AgentNoted(Payload, frozen=True, kw_only=True):
    """An agent declared its last action, its next steps and its blockers."""

    last_action: str | None
    next_steps: list[str]
    blockers: list[str]


class AgentDeregistered(Payload, frozen=True, kw_only=True):
    """An agent left properly."""

    reason: str | None


class NoteAdded(Payload, frozen=True, kw_only=True):
    """An agent or a person added a note that lasts. It is activity if an agent did it."""

    note_id: str
    kind: NoteKind
    text: str
    because: str | None = None


class NoteRecorded(Payload, frozen=True, kw_only=True):
    """fleetd recorded a fact of a session as a note that lasts."""

    note_id: str
    kind: NoteKind
    text: str


class NoteWithdrawn(Payload, frozen=True, kw_only=True):
    """A note was withdrawn; it stays in the store. It is activity if an agent did it."""

    note_id: str
    kind: NoteKind
    reason: str


class NotePinned(Payload, frozen=True, kw_only=True):
    """A person pinned a note: it comes first in each briefing."""

    note_id: str
    kind: NoteKind


class NoteUnpinned(Payload, frozen=True, kw_only=True):
    """A person removed the pin of a note."""

    note_id: str
    kind: NoteKind


class LockEvent(Payload, frozen=True, kw_only=True):
    """What the lock events share."""

    lock_id: str
    file: str
    held_by: str


class LockAcquired(LockEvent, frozen=True, kw_only=True):
    """A lock was granted; activity unless fleetd did it, as in a recovery."""

    purpose: str
    fencing_token: int
    mode: Literal["shared"] | None = None


class LockRenewed(LockEvent, frozen=True, kw_only=True):
    """A holder renewed its lease."""


class LockWaitEnded(Payload, frozen=True, kw_only=True):
    """An agent waited for a lock for a second or more: it has it now, or its client gave up.

    ``waited_for`` held the lock when the wait began. ``lock_id`` is null if the client gave up.
    """

    file: str
    waited_ms: int
    waited_for: str | None = None
    lock_id: str | None = None


class LockReleased(LockEvent, frozen=True, kw_only=True):
    """A holder released its lock or left properly."""


class LockForceReleased(LockEvent, frozen=True, kw_only=True):
    """A lock was taken away from its holder; activity unless a recovery did it."""

    reason: str


class MessageSent(Payload, frozen=True, kw_only=True):
    """A message was sent."""

    message_id: str
    to: list[str]
    subject: str


class MessageAcked(Payload, frozen=True, kw_only=True):
    """A recipient acknowledged a message."""

    message_id: str


class ErrorReported(Payload, frozen=True, kw_only=True):
    """An agent met an error."""

    kind: str
    name: str
    message: str
    status: int | None


class FleetCheckpointed(Payload, frozen=True, kw_only=True):
    """A checkpoint was taken; activity if somebody asked for it while the mission was open."""

    checkpoint_id: str
    mission_id: str
    trigger: Trigger
    progress_percent: int
    sortie_count: int
    lock_count: int
    message_count: int


class CheckpointCreated(Payload, frozen=True, kw_only=True):
    """A checkpoint is stored; ``storage_locations`` names the places.

    ``sqlite`` is the database, also a PostgreSQL. ``file`` is missing if its file could not be
    written yet. ``machine`` keeps the file, if several machines share a store.
    """

    checkpoint_id: str
    mission_id: str
    trigger: Trigger
    storage_locations: list[StorageLocation]
    machine: str | None = None


class RecordsForgotten(Payload, frozen=True, kw_only=True):
    """Records were forgotten on request; the event counts them and names none.

    It keeps the position of the end of the log.
    """

    missions: int
    agents: int


class CheckpointDeleted(Payload, frozen=True, kw_only=True):
    """A checkpoint was deleted on request, or because its mission had more than it may keep."""

    checkpoint_id: str


class CheckpointsPruned(Payload, frozen=True, kw_only=True):
    """Old checkpoints were deleted; one event for all of them, without ``checkpoint_deleted``."""

    deleted: int
    freed_bytes: int


class BackupFailed(Payload, frozen=True, kw_only=True):
    """The file of a checkpoint or a snapshot could not be written.

    The row is intact, and fleetd tries the file again. For a snapshot, ``checkpoint_id`` is its id
    and ``reason_code`` is ``checkpoint_atomic_write_failed``.
    """

    checkpoint_id: str
    error: str
    reason_code: str | None = None


class SnapshotRecorded(Payload, frozen=True, kw_only=True):
    """The state of a run was recorded; a trigger that joins the last snapshot emits no event."""

    snapshot_id: str
    run_id: str
    source: SnapshotSource
    status: RunStatus


class SnapshotsPruned(Payload, frozen=True, kw_only=True):
    """Old snapshots were deleted; one event for all of them."""

    deleted: int
    freed_bytes: int


class FleetRecovered(Payload, frozen=True, kw_only=True):
    """A mission was recovered; ``recovered_sorties`` and ``sorties_restored`` are the same count,
    and so on.
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
    """An open sortie moved here with its agent's session from another mission."""

    from_mission: str


class SortieRestored(SortieEvent, frozen=True, kw_only=True):
    """A recovery changed a sortie."""

    status: str


class RecoveryAvailable(Payload, frozen=True, kw_only=True):
    """A mission waits for recovery, and can be recovered from this checkpoint."""

    recovery_id: str
    checkpoint_id: str


class RecoveryBriefed(Payload, frozen=True, kw_only=True):
    """An agent received its briefing."""

    recovery_id: str


class RecoveryConfirmed(Payload, frozen=True, kw_only=True):
    """The briefed agent works again, in this mission or in the one that its session moved to.

    It also ends a recovery whose mission went on without a briefing.
    """

    recovery_id: str


class RecoveryUnconfirmed(Payload, frozen=True, kw_only=True):
    """The briefed agent has shown no activity since."""

    recovery_id: str


class ContextCompacted(Payload, frozen=True, kw_only=True):
    """A mission fell silent: its agents have probably lost their context."""

    mission_id: str
    last_activity_at: str
    inactivity_duration_ms: int
    checkpoint_available: bool
    checkpoint_id: str | None


class AgentNeeds(Payload, frozen=True, kw_only=True):
    """An agent began to need something of a person, or waits no longer: ``needs`` is ``none``.

    ``text`` says more in at most 200 characters, ``reset_at`` when a limit ends.
    """

    needs: AgentNeed | Literal["none"]
    text: str | None = None
    reset_at: str | None = None


class AgentLost(Payload, frozen=True, kw_only=True):
    """An agent ended without notice, stayed silent, was lost with its machine, or was replaced.

    ``reason`` gives the case.
    """

    reason: str


class AgentReturned(Payload, frozen=True, kw_only=True):
    """An agent that was lost with its machine works after all; ``reason`` gives the cause."""

    reason: str


class WindowCompacted(Payload, frozen=True, kw_only=True):
    """The context window of an agent's session was compacted; ``summary`` is the summary that its
    harness kept.
    """

    summary: str | None


class WindowBriefed(Payload, frozen=True, kw_only=True):
    """The answer to a hook gave an agent whose window was compacted its briefing, of so many
    ``characters``.
    """

    characters: int


class BriefingMissed(Payload, frozen=True, kw_only=True):
    """An agent whose window was compacted did not get its briefing.

    ``reason`` is ``off`` if its mission has none (``briefing``). It is ``reply_lost`` if its agent
    CLI did not wait for the answer; the next answer then has the briefing.
    """

    reason: Literal["off", "reply_lost"]


class HookNoted(Payload, frozen=True, kw_only=True):
    """A harness reported something other than work, such as a notification to its user."""

    what: str
    message: str | None


class LockExpired(LockEvent, frozen=True, kw_only=True):
    """A lease expired; fleetd notices it when an agent asks or waits for the file."""


class LockConflicted(LockEvent, frozen=True, kw_only=True):
    """A recovery found that another agent holds a lock."""

    wanted_by: str


class MessageDelivered(Payload, frozen=True, kw_only=True):
    """A recipient read a message in its inbox."""

    message_id: str


class MessageRequeued(Payload, frozen=True, kw_only=True):
    """A message is queued again for its recipients."""

    message_id: str
    to: list[str]


class MessageFailed(Payload, frozen=True, kw_only=True):
    """A message was refused, because its recipients in ``to`` have left."""

    to: list[str]
    subject: str
    error: str


class StoreRestored(Payload, frozen=True, kw_only=True):
    """The database was restored from a copy or from files, or lost its end to damage.

    ``end`` is the last position in the database. The event's ``seq`` is above every position that
    clients ever read, so positions have a gap here.
    """

    source: Literal["copy", "files", "damage"]
    end: int


class LegacyImported(Payload, frozen=True, kw_only=True):
    """The events after this one were imported from an older store; their age counts from here."""

    events: int


def _leaves(cls: type[Payload]) -> list[type[Payload]]:
    return [leaf for child in cls.__subclasses__() for leaf in _leaves(child)] or [cls]


PAYLOADS: dict[str, type[Payload]] = {cls.type: cls for cls in _leaves(Payload)}


_COMPOUND = (msgspec.Struct, list, tuple, dict)


def payload_data(payload: Payload) -> dict[str, Any]:
    """Return a payload as the ``data`` of its event; absent values are left out."""
    return {
        name: msgspec.to_builtins(value) if isinstance(value, _COMPOUND) else value
        for name, value in msgspec.structs.asdict(payload).items()
        if value is not None
    }
