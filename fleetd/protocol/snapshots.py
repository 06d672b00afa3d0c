"""The records of run snapshots.

Source: snapshot-lifecycle, Snapshot schema. Fields stand in the order of that document, which is
also their order in a file. Times are ISO 8601 UTC with milliseconds, durations integers in ms.
"""

from typing import Annotated

from msgspec import Meta

from .records import Integrity, Record, SourceDetail
from .types import (
    OutcomeKind,
    RunStatus,
    SnapshotSource,
    StepStatus,
    StorageLocation,
    Verdict,
    WindowPressure,
)

MOST_OUTCOMES = 50
SUMMARY_CHARS = 500
MOST_COUNTED = 2**53

Count = Annotated[int, Meta(ge=0, le=MOST_COUNTED)]
Summary = Annotated[str, Meta(max_length=SUMMARY_CHARS)]


class TodoCompliance(Record, frozen=True, kw_only=True):
    """Whether the plan follows its rules: violations, and the time of the check."""

    result: Verdict
    violations: list[str]
    checked_at: str


class ResumeHints(Record, frozen=True, kw_only=True):
    """Whether a run can resume from here, the reason, and the next actions."""

    eligible: bool
    reason_code: str
    next_actions: list[str]


class StepState(Record, frozen=True, kw_only=True):
    """The position of a run in its plan; null if unknown."""

    plan_path: str | None
    step_id: str | None
    step_ordinal: Annotated[int, Meta(ge=1)] | None
    step_status: StepStatus | None
    todo_compliance: TodoCompliance
    resume_hints: ResumeHints


class ContextDigest(Record, frozen=True, kw_only=True):
    """How full the context window is, what to keep of it, and how much was left out here."""

    window_pressure: WindowPressure
    protected_artifacts: list[str]
    dropped_items: Count
    policy_profile: str


class CommandOutcome(Record, frozen=True, kw_only=True):
    """The outcome of one command or tool call of the run."""

    kind: OutcomeKind
    name: str
    result: Verdict
    duration_ms: Count
    reason_code: str | None = None
    summary: Summary


class SnapshotContent(Record, frozen=True, kw_only=True):
    """The content that a snapshot's checksum covers; it never changes once written."""

    snapshot_id: str
    created_at: str
    run_id: str
    source: SnapshotSource
    status: RunStatus
    step_state: StepState
    context_digest: ContextDigest
    command_outcomes: Annotated[list[CommandOutcome], Meta(max_length=MOST_OUTCOMES)]


class SnapshotDocument(SnapshotContent, frozen=True, kw_only=True):
    """A snapshot as in its file."""

    integrity: Integrity


class Artifact(Record, frozen=True, kw_only=True):
    """One form of a snapshot's history file, with the checksum of the file's own bytes.

    Both forms are listed after compression; ``present`` marks the existing one.
    """

    path: str
    compressed: bool
    present: bool
    size_bytes: int
    digest: str


class Snapshot(SnapshotDocument, frozen=True, kw_only=True):
    """A run's snapshot, with fields about the snapshot itself.

    No file contains these fields; the row in the store is the truth for them. ``window_tokens`` of
    ``window_size`` is the use that the harness reported last. ``note`` is the note of the caller.
    Paths of ``artifacts`` start in the directory of the run, on the machine ``file_on`` if that is
    another one.
    """

    agent_id: str | None = None
    note: str | None = None
    window_tokens: int | None = None
    window_size: int | None = None
    source_details: list[SourceDetail] = []
    backed_up_at: str | None = None
    compressed_at: str | None = None
    storage_locations: list[StorageLocation] = []
    file_on: str | None = None
    artifacts: list[Artifact] = []
    warnings: list[str] = []


class SnapshotSummary(Record, frozen=True, kw_only=True):
    """One line of a list of snapshots."""

    snapshot_id: str
    run_id: str
    created_at: str
    source: SnapshotSource
    status: RunStatus
    step_id: str | None
    step_ordinal: int | None
    step_status: StepStatus | None
    window_pressure: WindowPressure
    outcome_count: int
    size_bytes: int
    compressed_at: str | None
