"""The records that requests return.

Times are ISO 8601 UTC with milliseconds, durations integers in ms, sizes bytes. A Struct here is
both what a client receives and what the rules pass around.
"""

from typing import Any

import msgspec
from msgspec import field

from .types import (
    AgentNeed,
    AgentStatus,
    CandidateReason,
    ClosedReason,
    DeliveryStatus,
    HandoffState,
    LockMode,
    LockStatus,
    MissionOrigin,
    MissionStatus,
    NoteKind,
    NoteOrigin,
    OnOff,
    Priority,
    RecoveryState,
    Role,
    Scope,
    SortieStatus,
    StorageLocation,
    Trigger,
)

CHECKPOINT_VERSION = "1.0.0"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records: immutable, built by keyword, tolerant of newer fields."""


class RecoveryContext(Record, frozen=True, kw_only=True):
    """What an agent needs to continue, as data (source: context-survival, Checkpoint Schema)."""

    last_action: str = ""
    next_steps: list[str] = []
    blockers: list[str] = []
    files_modified: list[str] = []
    mission_summary: str = ""
    elapsed_time_ms: int = 0
    last_activity_at: str = ""


class Mission(Record, frozen=True, kw_only=True):
    """A goal worked on by a fleet.

    ``machine`` is the machine that has ``project_dir``, if several share the store: an id from
    ``system.status``. ``project`` is the name of that directory on all machines, if it has one.
    ``origin`` is ``session`` for a mission that fleetd created for a session, until somebody gives
    it a title. ``closed_reason`` is null while the mission is open. A mission that closed with its
    ``session`` resumes with it; one that was ``merged`` continues in ``merged_into``, if known.
    ``author`` is the agent that wrote the title; null for a person or if unknown. With ``briefing``
    ``off`` hooks give its agents no briefing.
    """

    id: str
    title: str
    description: str | None
    status: MissionStatus
    priority: Priority
    project_dir: str | None
    created_at: str
    updated_at: str
    started_at: str | None
    completed_at: str | None
    last_activity_at: str | None
    total_sorties: int
    completed_sorties: int
    progress_percent: int
    metadata: dict[str, Any]
    machine: str | None = None
    project: str | None = None
    origin: MissionOrigin = "person"
    closed_reason: ClosedReason | None = None
    author: str | None = None
    merged_into: str | None = None
    briefing: OnOff = "on"


def percent(completed: int, total: int) -> int:
    """Return ``completed`` of ``total`` in percent, half a percent rounded up; 0 of 0 is 0."""
    return (completed * 200 + total) // (2 * total) if total else 0


class SortieState(Record, frozen=True):
    """A sortie as a checkpoint keeps it: everything but its mission, its author, its briefing.

    Made by position from its row: there may be thousands, and names would take three times as long.
    """

    id: str
    status: SortieStatus
    position: int = 0
    title: str = ""
    description: str | None = None
    priority: Priority = "medium"
    assigned_to: str | None = None
    files: list[str] = []
    progress: int = 0
    progress_notes: str | None = None
    blocked_reason: str | None = None
    result: str | None = None
    created_at: str = ""
    updated_at: str = ""
    started_at: str | None = None
    completed_at: str | None = None
    depends_on: list[str] = []


class Sortie(SortieState, frozen=True, kw_only=True):
    """One piece of a mission, done by one agent.

    ``author`` is the agent that wrote the title; null for a person or if unknown. ``depends_on``
    are the sorties that are to be completed first, ``waits_for`` those of them that are not. A
    closed sortie waits for none.
    """

    mission_id: str
    recovery_context: RecoveryContext | None = None
    author: str | None = None
    waits_for: list[str] = []


class WorkNote(Record, frozen=True, kw_only=True):
    """An agent's note about itself; it comes first in its recovery context."""

    last_action: str | None = None
    next_steps: list[str] = []
    blockers: list[str] = []


class Agent(Record, frozen=True, kw_only=True):
    """A process that works: the dispatch or a specialist.

    ``machine`` is the id of its machine, from ``system.status``, if several share the store.
    ``needs`` is what it waits for, since ``needs_since``: ``permission`` to use a tool, the answer
    to a ``question``, ``plan_approval``, a person after it ``failed``, met a ``limit`` or was
    ``lost``, or the next prompt, as its turn is ``finished`` or goes on in the ``background``.
    ``needs_text`` says more, in at most 200 characters; ``needs_reset_at`` is when a limit ends, as
    far as its CLI said. All are null after its next activity.
    """

    id: str
    role: Role
    harness: str | None
    session_id: str | None
    pid: int | None
    mission_id: str | None
    cwd: str | None
    status: AgentStatus
    registered_at: str
    last_seen_at: str
    note: WorkNote | None
    machine: str | None = None
    needs: AgentNeed | None = None
    needs_since: str | None = None
    needs_text: str | None = None
    needs_reset_at: str | None = None


class Lock(Record, frozen=True, kw_only=True):
    """A lease on a file, a directory or a pattern, held by one agent, with a fencing token.

    ``file`` is the path or the pattern that the holder gave. ``normalized_path`` is the key that is
    the same for all names of the file: its real path, or its place in its project. Of a directory
    it ends with a slash, of a pattern with the pattern. ``expires_at`` may be missing in an
    imported record; then the lease ends at ``acquired_at + timeout_ms``.
    """

    id: str
    file: str
    held_by: str
    acquired_at: str
    timeout_ms: int
    purpose: str = "edit"
    normalized_path: str = ""
    mission_id: str | None = None
    expires_at: str | None = None
    fencing_token: int = 0
    status: LockStatus = "active"
    released_at: str | None = None
    mode: LockMode = "exclusive"
    """Several agents can hold ``shared`` leases on one file, and nobody an exclusive one then."""
    directory: str | None = None
    """How ``normalized_path`` begins for a directory or a pattern: the directory's key."""
    automatic: bool = False
    """Whether an edit took the lease, which ends with the turn of its agent."""


class Delivery(Record, frozen=True, kw_only=True):
    """The delivery of a message to one recipient."""

    agent_id: str
    status: DeliveryStatus
    delivered_at: str | None
    acked_at: str | None
    attempts: int


class Message(Record, frozen=True, kw_only=True):
    """A message in the Squawk mailbox."""

    id: str
    mission_id: str | None
    thread_id: str | None
    sender: str = field(name="from")
    to: list[str]
    subject: str
    body: str | None
    priority: Priority
    sent_at: str
    deliveries: list[Delivery]


class PendingMessage(Record, frozen=True, kw_only=True):
    """An undelivered message in a checkpoint; ``to`` names the recipients that lack it."""

    id: str
    sender: str = field(name="from")
    to: list[str]
    subject: str
    sent_at: str
    delivered: bool = False
    body: str | None = None
    thread_id: str | None = None
    priority: Priority = "medium"


class Note(Record, frozen=True, kw_only=True):
    """A note that lasts: a decision, a way that is ruled out, a constraint or a finding.

    It is never edited; it is withdrawn with a reason. ``origin`` is whose word it is: a
    ``person``'s, an ``agent``'s, or a ``fact`` that fleetd recorded in the session of ``agent_id``.
    ``path`` is inside the mission's directory if it is relative. ``withdrawn_by`` is the agent that
    withdrew it, null for a person. ``came_from`` is the mission that it was in before that was
    merged into this one.
    """

    id: str
    seq: int
    mission_id: str
    kind: NoteKind
    text: str
    because: str | None = None
    path: str | None = None
    origin: NoteOrigin
    agent_id: str | None = None
    created_at: str
    pinned_at: str | None = None
    withdrawn_at: str | None = None
    withdrawn_by: str | None = None
    withdrawn_reason: str | None = None
    came_from: str | None = None


class MissionState(Record, frozen=True, kw_only=True):
    """The fields of a mission that each checkpoint keeps to restore a lost database.

    ``automatic`` means the origin ``session``. ``notes`` are those that stand, and the newest of
    those that were withdrawn.
    """

    title: str
    description: str | None = None
    status: MissionStatus = "in_progress"
    priority: Priority = "medium"
    project_dir: str | None = None
    created_at: str = ""
    started_at: str | None = None
    automatic: bool = False
    closed_reason: ClosedReason | None = None
    notes: list[Note] = []
    briefing: OnOff = "on"


class Integrity(Record, frozen=True, kw_only=True):
    """The checksum of a checkpoint's content.

    ``digest`` is the SHA-256, in hex, of the content as canonical JSON: keys sorted, no white
    space, UTF-8 unescaped, without the fields of ``Checkpoint`` outside the content.
    """

    algorithm: str = "sha256"
    digest: str
    format_version: int = 1


class SourceDetail(Record, frozen=True, kw_only=True):
    """A trigger that joined a checkpoint instead of creating its own."""

    source: str
    agent_id: str | None
    count: int
    first_at: str
    last_at: str


class CheckpointContent(Record, frozen=True, kw_only=True):
    """The content that a checkpoint's checksum covers; it never changes once written."""

    id: str
    mission_id: str
    timestamp: str
    trigger: Trigger
    trigger_details: str | None = None
    progress_percent: int
    mission: MissionState | None = None
    sorties: list[SortieState]
    active_locks: list[Lock]
    pending_messages: list[PendingMessage]
    recovery_context: RecoveryContext
    created_by: str
    version: str = CHECKPOINT_VERSION
    seq: int = 0
    undo: bool = False


class Checkpoint(CheckpointContent, frozen=True, kw_only=True):
    """A snapshot of a mission, with fields about the snapshot itself.

    These fields are outside the checksum; the row in the store is the truth for them.
    ``file_on`` is the other machine that keeps the file, if several share the store.
    """

    integrity: Integrity | None = None
    source_details: list[SourceDetail] = []
    consumed_at: str | None = None
    backed_up_at: str | None = None
    storage_locations: list[StorageLocation] = []
    file_on: str | None = None
    warnings: list[str] = []


class CheckpointSummary(Record, frozen=True, kw_only=True):
    """One line of a list of checkpoints."""

    id: str
    mission_id: str
    timestamp: str
    trigger: Trigger
    trigger_details: str | None
    progress_percent: int
    sortie_count: int
    lock_count: int
    message_count: int
    size_bytes: int
    consumed_at: str | None
    undo: bool


class RecoveryCandidate(Record, frozen=True, kw_only=True):
    """A mission that waits for recovery, and the checkpoint that would restore it.

    ``reason`` is ``silent``, or ``agent_lost`` when ``lost_agents`` have left work open.
    ``agent_id`` is set if the mission continues and only the part of this agent waits.
    """

    mission_id: str
    mission_title: str
    last_activity_at: str
    inactivity_duration_ms: int
    checkpoint_id: str | None = None
    checkpoint_progress: int | None = None
    checkpoint_timestamp: str | None = None
    agent_id: str | None = None
    reason: CandidateReason = "silent"
    lost_agents: list[str] = []
    project_dir: str | None = None


class Restored(Record, frozen=True, kw_only=True):
    """The number of records that a recovery restored, by kind."""

    sorties: int
    locks: int
    messages: int


class Kept(Record, frozen=True, kw_only=True):
    """A sortie that a recovery left unchanged, with the reason."""

    sortie_id: str
    reason: str


class Change(Record, frozen=True, kw_only=True):
    """One change of a recovery: ``what`` is sortie, lock, message, agent or mission."""

    what: str
    id: str
    before: str
    after: str


class RestoreResult(Record, frozen=True, kw_only=True):
    """The outcome of a recovery; ``success`` means that the transaction committed.

    ``would_restore`` lists the changes of a dry run, ``changed`` those of a real one. ``agent_id``
    is the agent to brief.
    """

    success: bool
    dry_run: bool
    recovery_id: str | None
    checkpoint_id: str
    undo_checkpoint_id: str | None
    mission_id: str
    recovery_context: RecoveryContext
    restored: Restored
    kept: list[Kept]
    released_locks: list[str]
    errors: list[str]
    warnings: list[str]
    prompt: str
    would_restore: list[Change] | None = None
    changed: list[Change] = []
    mission_title: str = ""
    project_dir: str | None = None
    agent_id: str | None = None
    take_over_from: str | None = None


class Recovery(Record, frozen=True, kw_only=True):
    """One recovery, finished or waiting."""

    id: str
    mission_id: str
    checkpoint_id: str
    undo_checkpoint_id: str | None
    agent_id: str | None
    requested_by: str
    scope: Scope
    state: RecoveryState
    created_at: str
    briefed_at: str | None
    resumed_at: str | None


class Handoff(Record, frozen=True, kw_only=True):
    """A hand-off of an agent's work to a new session of the agent CLI ``harness``.

    It is ``asked`` for by the agent, or ``pending`` until ``expires_at``, or it ended as
    ``completed``, ``expired``, ``cancelled`` or ``failed`` with the ``reason``. The session begins
    in ``cwd`` with the agent id ``successor_id``. ``undo_checkpoint_id`` undoes a completed one.
    """

    id: str
    agent_id: str
    successor_id: str | None = None
    harness: str
    mission_id: str
    mission_title: str
    cwd: str | None = None
    state: HandoffState
    reason: str | None = None
    checkpoint_id: str | None = None
    undo_checkpoint_id: str | None = None
    created_at: str
    expires_at: str | None = None
    ended_at: str | None = None


class Event(Record, frozen=True, kw_only=True):
    """One line of the append-only log; ``seq`` is a total order over the whole daemon."""

    seq: int
    type: str
    stream: str
    timestamp: str
    mission_id: str | None
    agent_id: str | None
    data: dict[str, Any]


class Finding(Record, frozen=True, kw_only=True):
    """One finding of a check; ``fixed`` is true if the check repaired it.

    ``note`` marks a known limit: nothing is wrong (``ok`` is true), but something is not done.
    ``reason_code`` is set for a damaged snapshot (source: snapshot-lifecycle).
    """

    check: str
    ok: bool
    detail: str
    subject: str | None = None
    fixed: bool = False
    note: bool = False
    reason_code: str | None = None


class ProgressNotification(Record, frozen=True, kw_only=True):
    """The progress of a request: the notification ``progress``, until the reply comes.

    ``done`` of ``total`` items of ``what`` are done: checkpoints, files, pages, rows. It starts
    again with another ``what``; ``total`` is null if unknown.
    """

    token: str
    what: str
    done: int
    total: int | None
