"""Requests about checkpoints and errors."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from ..checkpoint_diff import CheckpointDifference
from ..records import Checkpoint, CheckpointSummary, Record
from ..request import LongMutation, Mutation, Query
from ..types import (
    AgentId,
    CheckpointId,
    ErrorKind,
    Limit,
    MissionId,
    Path,
    Text,
    Timestamp,
    Trigger,
)
from .mission import Deleted
from .system import Findings


class DeclaredContext(Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's knowledge; it comes first in the recovery context and is never overwritten."""

    last_action: Text | None = None
    next_steps: list[Text] = []
    blockers: list[Text] = []
    files_modified: list[Path] = []
    mission_summary: Text | None = None


class CheckpointCreate(Mutation[Checkpoint], frozen=True):
    """Take a checkpoint of a mission, by default of the one that ``cwd`` belongs to."""

    method: ClassVar[str] = "checkpoint.create"
    mission_id: MissionId | None = None
    cwd: Path | None = None
    trigger: Trigger = "manual"
    trigger_details: Text | None = None
    created_by: AgentId = "cli"
    recovery_context: DeclaredContext | None = None
    wait_for_backup: bool = True


class CheckpointGet(Query[Checkpoint], frozen=True):
    """Return a checkpoint from its row, else from its file."""

    method: ClassVar[str] = "checkpoint.get"
    checkpoint_id: CheckpointId


class CheckpointLatest(Query[Checkpoint], frozen=True):
    """Return a mission's newest checkpoint; undo checkpoints are skipped."""

    method: ClassVar[str] = "checkpoint.latest"
    mission_id: MissionId


class CheckpointCompare(Query[CheckpointDifference], frozen=True):
    """Return the differences between two checkpoints or moments of one mission.

    Without ``after`` and ``after_time``, ``before`` is compared with the present state. A moment is
    the state of the mission at that time; it has no recovery context.
    """

    method: ClassVar[str] = "checkpoint.compare"
    before: CheckpointId | None = None
    after: CheckpointId | None = None
    before_time: Timestamp | None = None
    after_time: Timestamp | None = None
    mission_id: MissionId | None = None


class CheckpointPage(Record, frozen=True, kw_only=True):
    """Checkpoints, newest first, and how many there are in all."""

    checkpoints: list[CheckpointSummary]
    total: int


class CheckpointList(Query[CheckpointPage], frozen=True):
    """List checkpoints, newest first."""

    method: ClassVar[str] = "checkpoint.list"
    mission_id: MissionId | None = None
    trigger: Trigger | None = None
    limit: Limit = 10
    agent_id: AgentId | None = None
    since_time: Timestamp | None = None
    until_time: Timestamp | None = None


class CheckpointDelete(Mutation[Deleted], frozen=True):
    """Delete a checkpoint, row and file."""

    method: ClassVar[str] = "checkpoint.delete"
    checkpoint_id: CheckpointId


class CheckpointVerify(LongMutation[Findings], frozen=True):
    """Check rows and files against their checksums; ``repair`` restores one copy from the other."""

    method: ClassVar[str] = "checkpoint.verify"
    mission_id: MissionId | None = None
    checkpoint_id: CheckpointId | None = None
    repair: bool = False


class PrunedCheckpoint(Record, frozen=True, kw_only=True):
    """A checkpoint that pruning deletes."""

    id: str
    mission_id: str
    timestamp: str
    trigger: Trigger
    size_bytes: int


class Pruned(Record, frozen=True, kw_only=True):
    """The records that pruning deleted, or would delete; ``details`` names the first thousand."""

    deleted: int
    freed_bytes: int
    details: list[PrunedCheckpoint]


class CheckpointPrune(LongMutation[Pruned], frozen=True):
    """Delete checkpoints that are past their retention."""

    method: ClassVar[str] = "checkpoint.prune"
    older_than_days: Annotated[int, Meta(ge=0, le=36_500)] | None = None
    keep_per_mission: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    mission_id: MissionId | None = None
    dry_run: bool = False


class PulledCheckpoints(Record, frozen=True, kw_only=True):
    """The result of a pull into ``directory``; ``bytes`` counts the bytes written.

    ``warnings`` names checkpoints whose row is damaged; a file pulled earlier stays.
    """

    mission_id: str
    directory: str
    written: int = 0
    unchanged: int = 0
    removed: int = 0
    bytes: int = 0
    warnings: list[str] = []


class CheckpointPull(LongMutation[PulledCheckpoints], frozen=True):
    """Write the checkpoint files of a mission on this machine, also those of other machines.

    They are copies in a separate directory. The next pull removes copies of deleted checkpoints.
    """

    method: ClassVar[str] = "checkpoint.pull"
    mission_id: MissionId


class ErrorCheckpoint(Record, frozen=True, kw_only=True):
    """The checkpoint that an error created or joined; null if the error concerns no mission."""

    checkpoint_id: str | None


class ErrorReport(Mutation[ErrorCheckpoint], frozen=True):
    """Report an error that an agent met; takes an error checkpoint of its mission."""

    method: ClassVar[str] = "error.report"
    agent_id: AgentId
    kind: ErrorKind
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    message: Text
    mission_id: MissionId | None = None
    status: Annotated[int, Meta(ge=100, le=599)] | None = None
