"""Requests about the past of the whole fleet: its timeline, and how it was at a moment."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ..records import Lock, Record
from ..request import Query
from ..types import (
    AgentId,
    AgentNeed,
    AgentStatus,
    MissionId,
    MissionStatus,
    Role,
    Seq,
    SortieStatus,
    Timestamp,
)
from .attention import Doing, EditConflict, PlanStep

MarkKind = Literal[
    "compaction",
    "briefing",
    "checkpoint",
    "recovery",
    "lock_wait",
    "mail",
    "needs",
    "error",
]
Slots = Annotated[int, Meta(ge=1, le=2_000)]
RowLimit = Annotated[int, Meta(ge=1, le=500)]


class TimelineBar(Record, frozen=True, kw_only=True):
    """A sortie in the hands of its agent, from its start to its end.

    ``ended_at`` is null while it is open; ``status`` and agent are the present ones.
    """

    sortie_id: str
    title: str
    mission_id: str
    status: SortieStatus
    started_at: str
    ended_at: str | None


class TimelineMark(Record, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Events of one kind in one slot: the first was ``at``, and ``seq`` is its number.

    Of several, ``count`` says how many, and the last was at ``until``; of one both are left out.
    """

    kind: MarkKind
    at: str
    seq: int
    until: str | None = None
    count: int = 1


class TimelineRow(Record, frozen=True, kw_only=True):
    """An agent on the timeline: its sorties as bars, and what happened to it as marks.

    Mission, machine and status are the present ones; ``machine`` is null in a store of one machine.
    ``led_by`` names the agent of the session of a subagent. What a mission met and no agent, such
    as a checkpoint or a recovery, is marked in the first row of the mission.
    """

    agent_id: str
    led_by: str | None
    harness: str | None
    mission_id: str | None
    mission: str | None
    machine: str | None
    machine_name: str | None
    status: AgentStatus
    bars: list[TimelineBar]
    marks: list[TimelineMark]


class Timeline(Record, frozen=True, kw_only=True):
    """Rows of agents, by machine, then by mission, then by their first event in the span.

    A subagent is below the agent of its session. ``first_at`` is the time of the first event in the
    log, ``position`` the ``seq`` of the newest one. ``more`` counts the agents behind ``limit``.
    """

    since: str
    until: str
    position: int
    first_at: str | None
    rows: list[TimelineRow]
    more: int


class TimelineGet(Query[Timeline], frozen=True):
    """Return what each agent did in a span of time, as bars and marks.

    The span is cut into ``width`` equal slots, and what happened in one slot is one mark of each
    kind. Rows are agents with an event or a bar in the span. With ``mission_id`` those are rows,
    bars and marks of this mission only.
    """

    method: ClassVar[str] = "timeline.get"
    since: Timestamp
    until: Timestamp
    width: Slots = 400
    mission_id: MissionId | None = None
    agent_id: AgentId | None = None
    limit: RowLimit = 200


class AgentMoment(Record, frozen=True, kw_only=True):
    """What an agent did and needed at a moment, as ``attention.list`` had it then."""

    agent_id: str
    role: Role
    harness: str | None
    session_id: str | None
    status: AgentStatus
    needs: AgentNeed | Literal["none"]
    since: str
    text: str | None
    reset_at: str | None
    prompted_at: str | None
    mission_id: str | None
    mission: str | None
    doing: Doing | None
    step: PlanStep | None
    files_changed: int
    cwd: str | None
    machine: str | None


class MissionAtMoment(Record, frozen=True, kw_only=True):
    """A mission that was open at a moment, and how far it was."""

    id: str
    title: str
    status: MissionStatus
    total_sorties: int
    completed_sorties: int
    progress_percent: int


class FleetMoment(Record, frozen=True, kw_only=True):
    """The fleet at a moment.

    ``seq`` is the last event that counts, ``timestamp`` the time at which leases are judged.
    ``agents`` have the order of ``attention.list``, ``locks`` and ``missions`` those of their
    lists. A mission whose state at the moment is not known is not listed.
    """

    seq: int
    timestamp: str
    agents: list[AgentMoment]
    locks: list[Lock]
    missions: list[MissionAtMoment]
    conflicts: list[EditConflict]


class FleetAt(Query[FleetMoment], frozen=True):
    """Return the fleet at a ``time``, or after the event with a ``seq``.

    What it tells is what ``attention.list``, ``lock.list``, ``mission.list`` and
    ``attention.conflicts`` told then. Heartbeats leave no event: they do not count for the order of
    agents. A moment before the first one that is known is ``invalid_state``; ``data.since`` has
    that one.
    """

    method: ClassVar[str] = "fleet.at"
    time: Timestamp | None = None
    seq: Seq | None = None
