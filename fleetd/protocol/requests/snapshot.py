"""Requests about run snapshots."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from ..records import Record
from ..request import LongMutation, Mutation, Query
from ..snapshots import SUMMARY_CHARS, Count, Snapshot, SnapshotSummary
from ..types import (
    AgentId,
    Limit,
    Name,
    OutcomeKind,
    Path,
    RunId,
    RunStatus,
    SnapshotId,
    SnapshotSource,
    StepStatus,
    Timestamp,
    Title,
    Verdict,
    WindowPressure,
)
from .system import Findings

Code = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$(?!\n)", examples=["tool_failed"])]
Hint = Annotated[str, Meta(min_length=1, max_length=SUMMARY_CHARS)]
Hints = Annotated[list[Hint], Meta(max_length=100)]


class DeclaredCompliance(Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's check of its plan; the time defaults to now."""

    result: Verdict
    violations: Hints = []
    checked_at: Annotated[str, Meta(max_length=40)] | None = None


class DeclaredHints(Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's knowledge about a resume; omitted fields are computed.

    ``next_actions`` without ``eligible`` mean that the run can resume.
    """

    eligible: bool | None = None
    reason_code: Code | None = None
    next_actions: Hints = []


class DeclaredStep(Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's position in its plan."""

    plan_path: Path | None = None
    step_id: Name | None = None
    step_ordinal: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    step_status: StepStatus | None = None
    todo_compliance: DeclaredCompliance | None = None
    resume_hints: DeclaredHints | None = None


class DeclaredDigest(Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's knowledge about its context window; omitted fields are computed."""

    window_pressure: WindowPressure | None = None
    protected_artifacts: Annotated[list[Path], Meta(max_length=200)] | None = None
    dropped_items: Count | None = None
    policy_profile: Name | None = None


class DeclaredOutcome(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of a command or tool call; ``duration_ms`` is 0 if unknown."""

    kind: OutcomeKind
    name: Name
    result: Verdict
    duration_ms: Count = 0
    reason_code: Code | None = None
    summary: Annotated[str, Meta(max_length=SUMMARY_CHARS)] = ""


class SnapshotRecord(Mutation[Snapshot], frozen=True):
    """Record the state of a run, and return when its file is written, or a second later.

    The run is that of ``run_id``, the present session of ``agent_id``, or the only one in progress
    in ``cwd``. fleetd fills omitted fields from its own knowledge of the run: plan, commands since
    its last snapshot, window. Of more than 50 outcomes the last 50 are kept.
    Within 3 s, and with nothing changed that matters, the trigger joins the last snapshot, in its
    ``source_details``, and that one is returned. Raises ``checkpoint_atomic_write_failed`` when the
    snapshot is stored and its file could not be written.
    """

    method: ClassVar[str] = "snapshot.record"
    run_id: RunId | None = None
    source: SnapshotSource = "manual"
    status: RunStatus | None = None
    step_state: DeclaredStep | None = None
    context_digest: DeclaredDigest | None = None
    command_outcomes: Annotated[list[DeclaredOutcome], Meta(max_length=1_000)] = []
    agent_id: AgentId | None = None
    cwd: Path | None = None
    note: Title | None = None


class SnapshotLatest(Query[Snapshot], frozen=True):
    """Return the newest snapshot of a run from its row, else from its file."""

    method: ClassVar[str] = "snapshot.latest"
    run_id: RunId | None = None
    agent_id: AgentId | None = None
    cwd: Path | None = None


class SnapshotGet(Query[Snapshot], frozen=True):
    """Return a snapshot from its row, else from its file, compressed or not."""

    method: ClassVar[str] = "snapshot.get"
    snapshot_id: SnapshotId


class SnapshotPage(Record, frozen=True, kw_only=True):
    """Snapshots, newest first, and how many there are in all."""

    snapshots: list[SnapshotSummary]
    total: int


class SnapshotList(Query[SnapshotPage], frozen=True):
    """List snapshots of one run or of all runs, newest first."""

    method: ClassVar[str] = "snapshot.list"
    run_id: RunId | None = None
    limit: Limit = 10
    agent_id: AgentId | None = None
    since_time: Timestamp | None = None


class PrunedSnapshot(Record, frozen=True, kw_only=True):
    """A snapshot that pruning deletes."""

    id: str
    run_id: str
    timestamp: str
    source: SnapshotSource
    size_bytes: int


class PrunedSnapshots(Record, frozen=True, kw_only=True):
    """The records that pruning deleted, or would delete; ``details`` names the first thousand."""

    deleted: int
    freed_bytes: int
    details: list[PrunedSnapshot]


class SnapshotPrune(LongMutation[PrunedSnapshots], frozen=True):
    """Delete snapshots that are past their retention.

    Raises ``checkpoint_retention_prune_failed`` when files could not be removed.
    """

    method: ClassVar[str] = "snapshot.prune"
    run_id: RunId | None = None
    dry_run: bool = False


class SnapshotVerify(LongMutation[Findings], frozen=True):
    """Check rows and files against their checksums; ``repair`` restores one copy from the other."""

    method: ClassVar[str] = "snapshot.verify"
    run_id: RunId | None = None
    snapshot_id: SnapshotId | None = None
    repair: bool = False
