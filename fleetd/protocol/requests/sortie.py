"""Requests about sorties.

``agent_id``, where it is optional, says who reports; without it the sortie's own agent does.
Who adds one is, without it, the agent in whose process the caller runs.
"""

from typing import ClassVar

from ..records import Record, Sortie
from ..request import Mutation, Query
from ..types import (
    AgentId,
    DependsOn,
    Files,
    MissionId,
    Percent,
    Priority,
    SortieId,
    SortieStatus,
    Text,
    Title,
)
from .mission import Deleted


class SortieCreate(Mutation[Sortie], frozen=True):
    """Add a sortie to an open mission; ``agent_id`` is the caller."""

    method: ClassVar[str] = "sortie.create"
    mission_id: MissionId
    title: Title
    description: Text | None = None
    files: Files = []
    assigned_to: AgentId | None = None
    priority: Priority = "medium"
    agent_id: AgentId | None = None
    depends_on: DependsOn = []


class SortieUpdate(Mutation[Sortie], frozen=True):
    """Change fields of an open sortie; omitted fields keep their values.

    ``depends_on`` replaces what it depended on. Sorties that would wait for each other are
    ``invalid_params``; ``data.cycle`` names them.
    """

    method: ClassVar[str] = "sortie.update"
    sortie_id: SortieId
    title: Title | None = None
    description: Text | None = None
    priority: Priority | None = None
    depends_on: DependsOn | None = None
    agent_id: AgentId | None = None


class SortieAssign(Mutation[Sortie], frozen=True):
    """Assign an open sortie to an agent."""

    method: ClassVar[str] = "sortie.assign"
    sortie_id: SortieId
    agent_id: AgentId


class SortieStart(Mutation[Sortie], frozen=True):
    """Start a sortie, and its mission if that is pending. Another agent's sortie is refused."""

    method: ClassVar[str] = "sortie.start"
    sortie_id: SortieId
    agent_id: AgentId


class SortieProgress(Mutation[Sortie], frozen=True):
    """Report the progress of a sortie; omitted fields keep their values."""

    method: ClassVar[str] = "sortie.progress"
    sortie_id: SortieId
    percent: Percent | None = None
    notes: Text | None = None
    files: Files | None = None
    agent_id: AgentId | None = None


class SortieBlock(Mutation[Sortie], frozen=True):
    """Mark a sortie as blocked, with the reason."""

    method: ClassVar[str] = "sortie.block"
    sortie_id: SortieId
    reason: Text
    agent_id: AgentId | None = None


class SortieUnblock(Mutation[Sortie], frozen=True):
    """Unblock a sortie."""

    method: ClassVar[str] = "sortie.unblock"
    sortie_id: SortieId
    agent_id: AgentId | None = None


class SortieComplete(Mutation[Sortie], frozen=True):
    """Complete a sortie. A second call is refused; the error names the agent of the first."""

    method: ClassVar[str] = "sortie.complete"
    sortie_id: SortieId
    result: Text | None = None
    agent_id: AgentId | None = None


class SortieFail(Mutation[Sortie], frozen=True):
    """Mark a sortie as failed."""

    method: ClassVar[str] = "sortie.fail"
    sortie_id: SortieId
    reason: Text
    agent_id: AgentId | None = None


class SortieGet(Query[Sortie], frozen=True):
    """Return one sortie."""

    method: ClassVar[str] = "sortie.get"
    sortie_id: SortieId


class SortiePage(Record, frozen=True, kw_only=True):
    """Sorties in their order within the mission."""

    sorties: list[Sortie]


class SortieList(Query[SortiePage], frozen=True):
    """List the sorties of a mission.

    ``ready`` ones are open, not blocked, and all that they depend on is completed.
    """

    method: ClassVar[str] = "sortie.list"
    mission_id: MissionId
    status: SortieStatus | None = None
    assigned_to: AgentId | None = None
    ready: bool = False


class SortieRemove(Mutation[Deleted], frozen=True):
    """Remove a sortie that nobody has started."""

    method: ClassVar[str] = "sortie.remove"
    sortie_id: SortieId
