"""Requests about recovery."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Record, Recovery, RecoveryContext, RestoreResult
from ..request import Mutation, Query
from ..types import AgentId, CheckpointId, Limit, MissionId, Path, RecoveryId, Scope, ThresholdMs
from .agent import Detection

MaxChars = Annotated[int, Meta(ge=500, le=9_500)]


class RecoveryDetect(Query[Detection], frozen=True):
    """Find missions in progress that have been silent for longer than the threshold, in ms."""

    method: ClassVar[str] = "recovery.detect"
    mission_id: MissionId | None = None
    threshold_ms: ThresholdMs | None = None


class RecoveryRestore(Mutation[RestoreResult], frozen=True):
    """Restore a mission from a checkpoint and brief the agent.

    ``agent_id`` is the agent to brief; with scope ``agent`` only its part is restored.
    ``take_over_from`` is a lost agent whose sorties, locks and mail go to ``agent_id``.
    """

    method: ClassVar[str] = "recovery.restore"
    checkpoint_id: CheckpointId | None = None
    mission_id: MissionId | None = None
    cwd: Path | None = None
    requested_by: AgentId = "cli"
    agent_id: AgentId | None = None
    take_over_from: AgentId | None = None
    scope: Scope = "mission"
    dry_run: bool = False
    force_locks: bool = False
    rewind: bool = False
    max_chars: MaxChars | None = None


class Briefing(Record, frozen=True, kw_only=True):
    """A recovery context, as data and as text; ``warnings`` report damaged copies."""

    recovery_context: RecoveryContext
    prompt: str
    checkpoint_id: str | None
    warnings: list[str] = []


class RecoveryContextGet(Query[Briefing], frozen=True):
    """Brief without restoring; changes nothing. With ``agent_id`` only its own part."""

    method: ClassVar[str] = "recovery.context"
    mission_id: MissionId | None = None
    agent_id: AgentId | None = None
    checkpoint_id: CheckpointId | None = None
    cwd: Path | None = None
    max_chars: MaxChars | None = None


class RecoveryPage(Record, frozen=True, kw_only=True):
    """Recoveries, newest first."""

    recoveries: list[Recovery]


class RecoveryList(Query[RecoveryPage], frozen=True):
    """List recoveries, newest first; ``after`` is the last one of the previous page."""

    method: ClassVar[str] = "recovery.list"
    mission_id: MissionId | None = None
    limit: Limit = 1_000
    after: RecoveryId | None = None
