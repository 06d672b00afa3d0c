"""Requests about missions."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from ..records import Mission, Record, RecoveryCandidate
from ..request import LongMutation, Mutation, Query
from ..types import (
    AgentId,
    ClosedReason,
    Files,
    Limit,
    MissionId,
    MissionStatus,
    Path,
    Priority,
    SelectionPurpose,
    SelectionReason,
    Text,
    ThresholdMs,
    Title,
)


class NewSortie(Struct, frozen=True, forbid_unknown_fields=True):
    """A sortie to create together with others."""

    title: Title
    description: Text | None = None
    files: Files = []
    assigned_to: AgentId | None = None
    priority: Priority = "medium"


NewSorties = Annotated[list[NewSortie], Meta(max_length=10_000)]


class MissionCreate(Mutation[Mission], frozen=True):
    """Create a pending mission, with its sorties if they are known; ``agent_id`` is who asks.

    With ``start`` it is started at once, and that agent works in it from then on.
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


class MissionStart(Mutation[Mission], frozen=True):
    """Start a pending mission."""

    method: ClassVar[str] = "mission.start"
    mission_id: MissionId


class MissionUpdate(Mutation[Mission], frozen=True):
    """Change fields of a mission; a field that is left out stays. ``agent_id`` is who asks.

    A ``title`` makes a mission that fleetd made for a session (``origin``) somebody's own: it is no
    more closed with the session, nor deleted by itself. ``sorties`` are added to those of an open
    mission, all or none.
    """

    method: ClassVar[str] = "mission.update"
    mission_id: MissionId
    title: Title | None = None
    description: Text | None = None
    priority: Priority | None = None
    metadata: dict[str, Any] | None = None
    sorties: NewSorties = []
    agent_id: AgentId | None = None


class MissionComplete(Mutation[Mission], frozen=True):
    """Complete a mission; takes its final checkpoint. Refused while a sortie is open."""

    method: ClassVar[str] = "mission.complete"
    mission_id: MissionId


class MissionFail(Mutation[Mission], frozen=True):
    """Give a mission up as failed."""

    method: ClassVar[str] = "mission.fail"
    mission_id: MissionId
    reason: Text


class MissionCancel(Mutation[Mission], frozen=True):
    """Call a mission off."""

    method: ClassVar[str] = "mission.cancel"
    mission_id: MissionId
    reason: Text


class MissionGet(Query[Mission], frozen=True):
    """Return one mission."""

    method: ClassVar[str] = "mission.get"
    mission_id: MissionId


class MissionPage(Record, frozen=True, kw_only=True):
    """Missions, newest first, and how many there are in all."""

    missions: list[Mission]
    total: int


class MissionList(Query[MissionPage], frozen=True):
    """List missions, newest first; ``after`` is the last one of the page before."""

    method: ClassVar[str] = "mission.list"
    status: MissionStatus | None = None
    project_dir: Path | None = None
    limit: Limit = 50
    after: MissionId | None = None
    closed_reason: ClosedReason | None = None


class CurrentMission(Record, frozen=True, kw_only=True):
    """The mission a directory belongs to, or null.

    ``belongs`` says that its directory is around this one, or that another machine began it for the
    same project: whoever works here joins it. Otherwise it is the agent's own, or the only one.
    """

    mission: Mission | None
    belongs: bool = False


class MissionCurrent(Query[CurrentMission], frozen=True):
    """The mission in progress of an agent, else of a directory around ``cwd``, else the only one.

    What somebody created for the directory comes before what was made for a session, and what an
    agent that lives there works on elsewhere. Several candidates are
    ``invalid_state`` and listed in ``data.candidates``.
    """

    method: ClassVar[str] = "mission.current"
    cwd: Path | None = None
    agent_id: AgentId | None = None


class SelectedMission(Record, frozen=True, kw_only=True):
    """The mission that is meant, and what says so.

    ``candidates`` are the missions of the directory that wait for recovery, this one first.
    """

    mission: Mission
    reason: SelectionReason
    candidates: list[RecoveryCandidate] = []


class MissionSelect(Query[SelectedMission], frozen=True):
    """The mission that is meant where none is named.

    That of ``take_over_from``; that of ``agent_id``; those of the directory, to be recovered the
    ones that wait for it first, else those that agents who live there work on; the one that another
    machine has in progress for the same project.
    For ``work`` and ``briefing``, or without ``cwd``, also the only one that there is. Missions
    elsewhere only are ``invalid_state`` and listed in ``data.candidates``; so is none at all.
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
    """Delete a finished mission with everything that belongs to it, files too."""

    method: ClassVar[str] = "mission.delete"
    mission_id: MissionId
