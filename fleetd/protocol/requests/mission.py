"""Requests about missions."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from ..records import (
    Lock,
    Mission,
    MissionState,
    PendingMessage,
    Record,
    RecoveryCandidate,
    SortieState,
)
from ..request import LongMutation, Mutation, Query
from ..types import (
    AgentId,
    ClosedReason,
    DependsOn,
    Files,
    Limit,
    MissionId,
    MissionStatus,
    OnOff,
    Path,
    Priority,
    SelectionPurpose,
    SelectionReason,
    Seq,
    Text,
    ThresholdMs,
    Timestamp,
    Title,
)


class NewSortie(Struct, frozen=True, forbid_unknown_fields=True):
    """A sortie to create together with others."""

    title: Title
    description: Text | None = None
    files: Files = []
    assigned_to: AgentId | None = None
    priority: Priority = "medium"
    depends_on: DependsOn = []


NewSorties = Annotated[list[NewSortie], Meta(max_length=10_000)]


class MissionCreate(Mutation[Mission], frozen=True):
    """Create a pending mission, with its sorties if they are known.

    ``agent_id`` is the caller. With ``start`` the mission starts at once with that agent in it.
    """

    method: ClassVar[str] = "mission.create"
    title: Title
    description: Text | None = None
    priority: Priority = "medium"
    project_dir: Path | None = None
    metadata: dict[str, Any] = {}
    sorties: NewSorties = []
    agent_id: AgentId | None = None
    start: bool = False
    briefing: OnOff = "on"


class MissionStart(Mutation[Mission], frozen=True):
    """Start a pending mission."""

    method: ClassVar[str] = "mission.start"
    mission_id: MissionId


class MissionUpdate(Mutation[Mission], frozen=True):
    """Change fields of a mission; omitted fields keep their values. ``agent_id`` is the caller.

    A mission that fleetd created for a session (``origin``) becomes a user's own with a ``title``:
    it no longer closes with the session, and is not deleted by itself. ``sorties`` are added to
    those of an open mission, all or none.
    """

    method: ClassVar[str] = "mission.update"
    mission_id: MissionId
    title: Title | None = None
    description: Text | None = None
    priority: Priority | None = None
    metadata: dict[str, Any] | None = None
    sorties: NewSorties = []
    agent_id: AgentId | None = None
    briefing: OnOff | None = None


class MissionComplete(Mutation[Mission], frozen=True):
    """Complete a mission and take its final checkpoint. Refused while a sortie is open."""

    method: ClassVar[str] = "mission.complete"
    mission_id: MissionId


class MissionFail(Mutation[Mission], frozen=True):
    """Mark a mission as failed."""

    method: ClassVar[str] = "mission.fail"
    mission_id: MissionId
    reason: Text


class MissionCancel(Mutation[Mission], frozen=True):
    """Cancel a mission."""

    method: ClassVar[str] = "mission.cancel"
    mission_id: MissionId
    reason: Text


class MissionGet(Query[Mission], frozen=True):
    """Return one mission."""

    method: ClassVar[str] = "mission.get"
    mission_id: MissionId


class MissionMoment(Record, frozen=True, kw_only=True):
    """The state of a mission at a moment, as a checkpoint taken then would have it.

    ``seq`` is the last event that counts, ``timestamp`` the time at which leases are judged.
    ``checkpoint_id`` is the checkpoint that it was made from; null if all of it comes from events.
    """

    mission_id: str
    seq: int
    timestamp: str
    checkpoint_id: str | None
    mission: MissionState
    total_sorties: int
    completed_sorties: int
    progress_percent: int
    sorties: list[SortieState]
    locks: list[Lock]
    messages: list[PendingMessage]


class MissionAt(Query[MissionMoment], frozen=True):
    """Return the state of a mission at a ``time``, or after the event with a ``seq``.

    A moment before the first one that is known is ``invalid_state``; ``data.since`` has that one.
    """

    method: ClassVar[str] = "mission.at"
    mission_id: MissionId
    time: Timestamp | None = None
    seq: Seq | None = None


class MissionPage(Record, frozen=True, kw_only=True):
    """Missions, newest first, and how many there are in all."""

    missions: list[Mission]
    total: int


class MissionList(Query[MissionPage], frozen=True):
    """List missions, newest first; ``after`` is the last one of the previous page."""

    method: ClassVar[str] = "mission.list"
    status: MissionStatus | None = None
    project_dir: Path | None = None
    limit: Limit = 50
    after: MissionId | None = None
    closed_reason: ClosedReason | None = None
    agent_id: AgentId | None = None


class CurrentMission(Record, frozen=True, kw_only=True):
    """The mission a directory belongs to, or null.

    With ``belongs`` its directory contains this one, or another machine started it for the same
    project: agents in this directory join it. Otherwise it is the agent's own, or the only one.
    """

    mission: Mission | None
    belongs: bool = False


class MissionCurrent(Query[CurrentMission], frozen=True):
    """Return the mission in progress of an agent, else of the directory ``cwd``, else the only one.

    A mission that somebody created for the directory takes precedence over one made for a session,
    and over one elsewhere that an agent of this directory works on. Several candidates are
    ``invalid_state`` and listed in ``data.candidates``.
    """

    method: ClassVar[str] = "mission.current"
    cwd: Path | None = None
    agent_id: AgentId | None = None


class SelectedMission(Record, frozen=True, kw_only=True):
    """The selected mission, and the reason for the selection.

    ``candidates`` are the missions of the directory that wait for recovery, this one first.
    """

    mission: Mission
    reason: SelectionReason
    candidates: list[RecoveryCandidate] = []


class MissionSelect(Query[SelectedMission], frozen=True):
    """Select the mission for a command that names none.

    The order is: the mission of ``take_over_from``; that of ``agent_id``; those of the directory,
    for a recovery the waiting ones first, else those of agents in the directory; the one that
    another machine has in progress for the same project. For ``work`` and ``briefing``, or without
    ``cwd``, the only mission is selected too. For ``report`` the one that ended last in the
    directory follows, and none of elsewhere. Without a match the error is ``invalid_state``, and
    ``data.candidates`` lists missions elsewhere.
    """

    method: ClassVar[str] = "mission.select"
    purpose: SelectionPurpose
    cwd: Path | None = None
    agent_id: AgentId | None = None
    take_over_from: AgentId | None = None
    threshold_ms: ThresholdMs | None = None


class Deleted(Record, frozen=True, kw_only=True):
    """Confirms a deletion."""

    deleted: bool


class MissionDelete(LongMutation[Deleted], frozen=True):
    """Delete a finished mission with everything that belongs to it, files included."""

    method: ClassVar[str] = "mission.delete"
    mission_id: MissionId
