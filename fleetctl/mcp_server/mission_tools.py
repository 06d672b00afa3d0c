"""The tools for an agent's own work: its mission, sorties, notes, checkpoints, its briefing."""

from typing import Annotated, Literal

from msgspec import Meta

from fleetd.protocol.errors import FleetError, InvalidParams, InvalidState
from fleetd.protocol.records import Agent, Mission, Sortie
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentNote, Lines
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionFail,
    MissionGet,
    MissionUpdate,
    NewSortie,
)
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.sortie import (
    SortieBlock,
    SortieComplete,
    SortieFail,
    SortieProgress,
    SortieStart,
    SortieUnblock,
)
from fleetd.protocol.types import AgentId, Files, MissionId, Percent, SortieId, Text, Title

from . import formatting
from .schema import Arguments
from .session import Desk, is_automatic

# What a harness takes whole, in characters.
BRIEFING_CHARS = 9_500


class WhichMission(Arguments, frozen=True, kw_only=True):
    """The mission to show, by default the agent's own."""

    mission_id: MissionId | None = None


async def mission(desk: Desk, asked: WhichMission) -> str:
    """Show a mission and its sorties."""
    agent = await desk.known()
    if asked.mission_id:
        found = await desk.ask(MissionGet(asked.mission_id))
    else:
        found = await desk.my_mission(agent)
    me = agent.id if agent else None
    you = f"You are {agent.id} ({agent.role}).\n" if agent else ""
    return you + formatting.mission_text(found, await desk.sorties(found), me)


class Piece(Arguments, frozen=True, kw_only=True):
    """A piece of work to add."""

    title: Title
    description: Text | None = None
    files: Files | None = None
    assigned_to: AgentId | None = None


class Plan(Arguments, frozen=True, kw_only=True):
    """What a mission is made of."""

    goal: Title | None = None
    sorties: Annotated[list[Piece], Meta(max_length=200)] | None = None


async def plan(desk: Desk, asked: Plan) -> str:
    """Begin a mission, or add to the one that there is, by one request: all of it or nothing."""
    if not asked.goal and not asked.sorties:
        raise InvalidParams("There is nothing to plan.", hint="Give a goal, sorties, or both.")
    agent = await desk.me()
    pieces = [
        NewSortie(each.title, each.description, each.files or [], each.assigned_to)
        for each in asked.sorties or ()
    ]
    if asked.goal:
        request = await _for_goal(desk, agent, asked.goal, pieces)
    else:
        mission_id = (await desk.my_mission(agent)).id
        request = MissionUpdate(mission_id, sorties=pieces, agent_id=agent.id)
    return await _planned(desk, agent, await desk.ask(request, once=True))


async def _for_goal(
    desk: Desk, agent: Agent, goal: str, pieces: list[NewSortie]
) -> Request[Mission]:
    """Return what begins a mission, or gives its goal to the one made by itself for this session.

    Whoever plans the same goal again adds only what is new: they may not know what became of it.
    """
    mission = await desk.mission(agent)
    if mission is None:
        return MissionCreate(
            goal, project_dir=desk.cwd, sorties=pieces, agent_id=agent.id, start=True
        )
    new = pieces
    if mission.title == goal:
        there = [_piece(each) for each in await desk.sorties(mission)]
        new = [each for each in pieces if _piece(each) not in there]
    if is_automatic(mission) and agent.mission_id == mission.id:
        return MissionUpdate(mission.id, title=goal, sorties=new, agent_id=agent.id)
    if mission.title != goal:
        raise InvalidState(
            f"You have a mission already: {mission.id}, {_goal(mission, agent)}.",
            hint="Leave goal out to add sorties to it, or end it with finish first.",
        )
    if not new:
        return MissionGet(mission.id)
    return MissionUpdate(mission.id, sorties=new, agent_id=agent.id)


def _piece(each: Sortie | NewSortie) -> tuple[str, str | None, list[str]]:
    return each.title, each.description, each.files


async def _planned(desk: Desk, agent: Agent, mission: Mission) -> str:
    """Return a mission with its sorties; that they cannot be read undoes no plan."""
    try:
        sorties = await desk.sorties(mission)
    except FleetError:
        return f"{formatting.mission_head(mission, agent.id)}\nPlanned; mission shows its sorties."
    return formatting.mission_text(mission, sorties, agent.id)


class Standing(Arguments, frozen=True, kw_only=True):
    """How a sortie stands."""

    sortie_id: SortieId
    state: Literal["start", "progress", "block", "unblock", "complete", "fail"]
    percent: Percent | None = None
    text: Annotated[Text, Meta(description="notes, result, or why")] | None = None


async def sortie(desk: Desk, asked: Standing) -> str:
    """Start, report, block, unblock, complete or fail a sortie."""
    if asked.state in ("block", "fail") and not asked.text:
        raise InvalidParams("text is missing.", hint=f"To {asked.state} a sortie, say why in text.")
    agent = await desk.me()
    changed = await _changed(desk, agent.id, asked)
    mission = await desk.ask(MissionGet(changed.mission_id))
    line = formatting.sortie_line(changed, agent.id)
    after = f"Mission {mission.progress_percent}% ({mission.completed_sorties}"
    after += f"/{mission.total_sorties} sorties)."
    if asked.state in ("complete", "fail"):
        after += _next(await desk.sorties(mission), agent.id)
    return f"{line}\n{after}"


async def _changed(desk: Desk, agent_id: str, asked: Standing) -> Sortie:
    ident, text = asked.sortie_id, asked.text
    match asked.state:
        case "start":
            started = await desk.ask(SortieStart(ident, agent_id))
            if asked.percent is None and text is None:
                return started
            return await desk.ask(
                SortieProgress(ident, asked.percent, notes=text, agent_id=agent_id)
            )
        case "progress":
            request = SortieProgress(ident, asked.percent, notes=text, agent_id=agent_id)
            return await desk.ask(request)
        case "block":
            return await desk.ask(SortieBlock(ident, text or "", agent_id=agent_id))
        case "unblock":
            return await desk.ask(SortieUnblock(ident, agent_id=agent_id))
        case "complete":
            return await desk.ask(SortieComplete(ident, result=text, agent_id=agent_id))
        case "fail":
            return await desk.ask(SortieFail(ident, text or "", agent_id=agent_id))


def _next(sorties: list[Sortie], me: str) -> str:
    """Say what there is to do next: the agent's own work first, then what nobody has begun."""
    mine = [each for each in sorties if each.assigned_to == me]
    for state, whose in (("in_progress", mine), ("assigned", mine), ("pending", sorties)):
        for each in whose:
            if each.status == state:
                return f"\nNext: {formatting.sortie_line(each, me)}"
    if all(each.status in ("completed", "failed") for each in sorties):
        return "\nNo sortie is open: plan more, or finish the mission."
    return ""


class Ending(Arguments, frozen=True, kw_only=True):
    """How a mission ends."""

    outcome: Literal["complete", "fail", "cancel"]
    reason: Annotated[Text, Meta(description="for fail, cancel")] | None = None


async def finish(desk: Desk, asked: Ending) -> str:
    """End the mission."""
    if asked.outcome != "complete" and not asked.reason:
        raise InvalidParams("reason is missing.", hint=f"To {asked.outcome} a mission, say why.")
    agent = await desk.me()
    mission = await desk.my_mission(agent)
    await _refuse_others(desk, agent, mission)
    if asked.outcome == "complete":
        ended = await desk.ask(MissionComplete(mission.id))
    elif asked.outcome == "fail":
        ended = await desk.ask(MissionFail(mission.id, asked.reason or ""))
    else:
        ended = await desk.ask(MissionCancel(mission.id, asked.reason or ""))
    return formatting.mission_head(ended, agent.id)


def _goal(mission: Mission, agent: Agent) -> str:
    return formatting.words(mission.title, mission.author, agent.id)


async def _refuse_others(desk: Desk, agent: Agent, mission: Mission) -> None:
    """Raise InvalidState for a mission that the agent had no part in.

    Whoever says twice that its mission is over must not end the next one of the directory.
    """
    if agent.mission_id == mission.id:
        return
    if all(each.assigned_to != agent.id for each in await desk.sorties(mission)):
        raise InvalidState(
            f"{mission.id} ({_goal(mission, agent)}) is not yours to end: no sortie is yours.",
            hint="Take one with sortie start, or leave the mission to its agents.",
        )


class Noting(Arguments, frozen=True, kw_only=True):
    """What an agent declares."""

    last_action: Text | None = None
    next_steps: Lines | None = None
    blockers: Lines | None = None


async def note(desk: Desk, asked: Noting) -> str:
    """Keep what the agent declares."""
    given = (asked.last_action, asked.next_steps, asked.blockers)
    if given == (None, None, None):
        raise InvalidParams("There is nothing to note.", hint="Give at least one field.")
    agent = await desk.me()
    kept = (await desk.ask(AgentNote(agent.id, *given))).note
    lines = [f"Noted for {agent.id}."]
    if kept is not None:
        lines += [f"Last action: {formatting.cut(kept.last_action)}"] * bool(kept.last_action)
        lines += [f"Next: {formatting.cut(each)}" for each in kept.next_steps]
        lines += [f"Blocker: {formatting.cut(each)}" for each in kept.blockers]
    return formatting.listed(lines)


class Saving(Arguments, frozen=True, kw_only=True):
    """What a checkpoint is for."""

    reason: Text | None = None


async def checkpoint(desk: Desk, asked: Saving) -> str:
    """Take a checkpoint of the mission."""
    agent = await desk.me()
    mission = await desk.my_mission(agent)
    made = await desk.ask(
        CheckpointCreate(mission_id=mission.id, trigger_details=asked.reason, created_by=agent.id),
        once=True,
    )
    return f"Checkpoint {made.id} of {mission.id} at {mission.progress_percent}%."


async def briefing(desk: Desk, _asked: Arguments) -> str:
    """Tell the agent where it is; what it reads changes nothing."""
    return await briefed(desk)


async def briefed(desk: Desk) -> str:
    """Return the briefing of this agent, or of the mission where nobody knows the agent."""
    agent = await desk.known()
    mission = await desk.my_mission(agent)
    told = await desk.ask(
        RecoveryContextGet(
            mission_id=mission.id,
            agent_id=agent.id if agent else None,
            max_chars=BRIEFING_CHARS,
        )
    )
    return told.prompt
