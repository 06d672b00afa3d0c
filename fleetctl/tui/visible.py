"""Selection of what is shown: missions in order, their agents, and what waits.

``View`` contains the user's choices: which mission, and whether only that one.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fleetd.protocol import endings
from fleetd.protocol.event_types import event_type
from fleetd.protocol.patterns import CLOSED_SORTIE

from ..client.models import RecoveryCandidate
from ..output import console
from ..output.views.agent_state import doing_of, project_of
from .state import LOST_MS, WatchState, moment


@dataclass
class View:
    """The user's choices, and the two clocks (see ``state``).

    ``only`` hides what does not belong to the chosen mission. ``marked`` is the checkpoint to
    compare another one with. ``search`` are words that an agent's line must contain.
    """

    mission_id: str | None = None
    only: bool = False
    paused: bool = False
    now_ms: int = 0
    tick_ms: int = 0
    marked: str | None = None
    search: str = ""


@dataclass
class MissionSeen:
    """One mission as it is shown.

    ``waits`` means for recovery, ``silent`` is by the daemon's rules. ``left`` is the number of its
    open sorties, if known.
    """

    id: str
    title: str
    status: str
    percent: int
    done: int
    total: int
    silence_ms: int | None = None
    agents: int = 0
    locks: int = 0
    waits: bool = False
    silent: bool = False
    left: int | None = None
    record: Any = None


def missions(state: WatchState, view: View) -> list[MissionSeen]:
    """Return missions in progress, then pending ones, then ended ones; newest first."""
    running = {line.mission_id: line for line in state.status.missions} if state.status else {}
    passed = view.tick_ms - state.status_at
    found = []
    for mission in state.listed:
        line = running.pop(mission.id, None)
        # For a mission that has ended since, the list may be older than the status.
        seen = _running(line, passed) if line else _listed(mission)
        seen.record = mission
        found.append(seen)
    found += [_running(line, passed) for line in running.values()]
    waiting = {each.mission_id: each.reason for each in candidates(state)}
    for seen in found:
        seen.waits = seen.id in waiting
        seen.silent = waiting.get(seen.id) == "silent"
        if state.sorties_of == seen.id:
            seen.left = sum(each.status not in CLOSED_SORTIE for each in state.sorties)
    return sorted(found, key=lambda seen: _RANK.get(seen.status, 2))


_RANK = {"in_progress": 0, "pending": 1}


def _running(line: Any, passed: int) -> MissionSeen:
    return MissionSeen(
        id=line.mission_id,
        title=console.titled(line.title, automatic=line.automatic),
        status="in_progress",
        percent=line.progress_percent,
        done=line.completed_sorties,
        total=line.total_sorties,
        silence_ms=line.silence_ms + max(passed, 0),
        agents=line.agents,
        locks=line.locks,
    )


def _listed(mission: Any) -> MissionSeen:
    return MissionSeen(
        id=mission.id,
        title=mission.title,
        # Ended according to the status, which is read more often than the list.
        status="ended"
        if mission.status == "in_progress"
        else endings.state(mission.status, mission.closed_reason),
        percent=mission.progress_percent,
        done=mission.completed_sorties,
        total=mission.total_sorties,
    )


def selected(state: WatchState, view: View) -> MissionSeen | None:
    """Return the mission that was chosen, or nothing."""
    return next((each for each in missions(state, view) if each.id == view.mission_id), None)


def sorties(state: WatchState, view: View) -> list[Any]:
    """Return the known sorties of the chosen mission, current work first."""
    return state.sorties if state.sorties_of == view.mission_id else []


def checkpoints(state: WatchState, view: View) -> list[Any]:
    """Return the newest checkpoints of the chosen mission, newest first."""
    return state.checkpoints if state.checkpoints_of == view.mission_id else []


def _concerned(view: View, mission_id: str | None) -> bool:
    return not view.only or mission_id == view.mission_id


def agents(state: WatchState, view: View) -> list[Any]:
    """Return agents that need a user, then working ones, then finished ones.

    Agents lost long ago are left out, and so are those that do not match the search.
    """
    return sorted(
        (
            agent
            for agent in state.agents
            if _concerned(view, agent.mission_id)
            and _is_searched(state, view, agent)
            and (agent.status != "lost" or view.now_ms - moment(agent.last_seen_at) < LOST_MS)
        ),
        key=lambda agent: (_urgency(agent), agent.role != "dispatch", str(agent.id)),
    )


_NEEDS = ("permission", "question", "plan_approval", "failed", "limit", "lost")


def _urgency(agent: Any) -> int:
    """Return an agent's rank: by what it needs; finished agents come last."""
    if agent.needs == "finished":
        return len(_NEEDS) + 1
    return _NEEDS.index(agent.needs) if agent.needs in _NEEDS else len(_NEEDS)


def _is_searched(state: WatchState, view: View, agent: Any) -> bool:
    """Return whether an agent's line, or what is known about its work, matches the search."""
    parts = (agent.id, agent.harness, agent.needs or agent.status, *work_of(agent))
    text = " ".join(filter(None, (*parts, title_of(state, agent.mission_id)))).casefold()
    return all(word in text for word in view.search.casefold().split())


def work_of(agent: Any) -> tuple[str, str]:
    """Return the project of an agent and what it does or needs; empty if unknown."""
    agent_state = agent.get("state")
    return ("", "") if agent_state is None else (project_of(agent_state), doing_of(agent_state))


def locks(state: WatchState, view: View) -> list[Any]:
    """Return the running leases, by file; expired ones are left out even without an event."""
    return sorted(
        (
            lock
            for lock in state.locks
            if _concerned(view, lock.mission_id) and lease_left(lock, view) > 0
        ),
        key=lambda lock: str(lock.file),
    )


def lease_left(lock: Any, view: View) -> int:
    """Return for how many ms a lease still runs."""
    until = (
        moment(lock.expires_at) if lock.expires_at else moment(lock.acquired_at) + lock.timeout_ms
    )
    return until - view.now_ms


def messages(state: WatchState, view: View) -> list[Any]:
    """Return the newest messages, newest first."""
    return [message for message in state.messages if _concerned(view, message.mission_id)]


def deliveries(messages: list[Any]) -> dict[str, int]:
    """Return how many deliveries of these messages are in which state."""
    states = [delivery.status for message in messages for delivery in message.deliveries]
    return {"queued": 0, "delivered": 0, "acked": 0, "failed": 0, **Counter(states)}


def message_state(message: Any) -> str:
    """Return the state of the least advanced delivery."""
    order = ("failed", "queued", "delivered", "acked")
    states = {delivery.status for delivery in message.deliveries}
    return next((state for state in order if state in states), "acked")


def events(state: WatchState, view: View) -> list[Any]:
    """Return the newest events, newest first."""
    return [
        event
        for event in reversed(state.events)
        if _concerned(view, event.mission_id) and event_type(event.type).shown != "log"
    ]


def candidates(state: WatchState) -> list[RecoveryCandidate]:
    """Return the missions that wait for recovery, the longest silence last."""
    return list(state.status.candidates) if state.status else []


def under_way(state: WatchState) -> list[Any]:
    """Return the recoveries after which no agent has continued yet."""
    waiting = {each.mission_id for each in candidates(state)}
    recoveries = state.status.recoveries if state.status else []
    return [each for each in recoveries if each.mission_id not in waiting]


def title_of(state: WatchState, mission_id: str | None) -> str:
    """Return the title of a known mission, else its ID."""
    known = [(each.id, each.title) for each in state.listed]
    if state.status:
        known += [(each.mission_id, each.title) for each in state.status.missions]
    return next((title for found, title in known if found == mission_id), mission_id or "")


def directory_of(state: WatchState, mission_id: str | None) -> str | None:
    """Return the project directory of a known mission."""
    return next((each.project_dir for each in state.listed if each.id == mission_id), None)


def over(seen: MissionSeen) -> bool:
    """Return whether a mission has ended."""
    return seen.status not in _RANK
