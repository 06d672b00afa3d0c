"""The demo's checks: read the final state, and report which requirements it meets."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fleetd.protocol.records import Agent, Checkpoint, Event, Lock, Message, Mission, Sortie
from fleetd.protocol.requests.agent import AgentList
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.lock import LockList
from fleetd.protocol.requests.message import MessageList
from fleetd.protocol.requests.mission import MissionGet
from fleetd.protocol.requests.sortie import SortieList

from ..client import Fleet
from .project import SECOND, SUCCESSOR

PAGE = 1_000


class Observations(msgspec.Struct, kw_only=True):
    """What the operator saw during the demo; all of it must become true."""

    tests_failed_before: bool = False
    tests_pass: bool = False
    all_committed: bool = False
    checkpoints_intact: bool = False
    stale_token_refused: bool = False
    new_token_accepted: bool = False


class FinalState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the checks look at."""

    mission: Mission
    sorties: list[Sortie]
    agents: list[Agent]
    locks: list[Lock]
    messages: list[Message]
    checkpoints: list[Checkpoint]
    events: list[Event]
    files: frozenset[str]
    """IDs of the checkpoints that have a file."""
    seen: Observations

    @property
    def completions(self) -> list[Event]:
        """Return the events of completed sorties."""
        return [each for each in self.events if each.type == "sortie_completed"]


def read(client: Fleet, mission_id: str, files: Path, seen: Observations) -> FinalState:
    """Ask the daemon for everything it knows; ``files`` is its checkpoint directory."""
    page = client.call(CheckpointList(mission_id=mission_id, limit=PAGE))
    checkpoints = [client.call(CheckpointGet(checkpoint_id=each.id)) for each in page.checkpoints]
    return FinalState(
        mission=client.call(MissionGet(mission_id=mission_id)),
        sorties=client.call(SortieList(mission_id=mission_id)).sorties,
        agents=client.call(AgentList(mission_id=mission_id)).agents,
        locks=client.call(LockList()).locks,
        messages=client.call(MessageList(mission_id=mission_id)).messages,
        checkpoints=checkpoints,
        events=client.call(EventList(mission_id=mission_id, limit=PAGE)).events,
        files=frozenset(file.stem for file in (files / mission_id).glob("chk-*.json")),
        seen=seen,
    )


MILESTONES = (25, 50, 75)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One check: the requirement, whether it is met, and what was found instead."""

    check: str
    ok: bool
    detail: str = ""


Check = Callable[[FinalState], str]
"""Returns what is wrong; empty when nothing is."""


def _tests(final: FinalState) -> str:
    if not final.seen.tests_failed_before:
        return "they passed already before the agents began"
    return "" if final.seen.tests_pass else "they fail"


def _committed(final: FinalState) -> str:
    return "" if final.seen.all_committed else "git status shows changes"


def _mission(final: FinalState) -> str:
    mission = final.mission
    whole = mission.status == "completed" and mission.progress_percent == 100
    return "" if whole else f"it is {mission.status} at {mission.progress_percent}%"


def _sorties_once(final: FinalState) -> str:
    wrong = []
    for sortie in final.sorties:
        times = [e.data["sortie_id"] for e in final.completions].count(sortie.id)
        if sortie.status != "completed" or times != 1:
            wrong.append(f"{sortie.title} is {sortie.status}, completed {times} times")
    return "; ".join(wrong) or ("" if final.sorties else "there are no sorties")


def _nothing_reopened(final: FinalState) -> str:
    done: set[str] = set()
    later = []
    for event in final.events:
        sortie_id = str(event.data.get("sortie_id", ""))
        if event.type == "sortie_completed":
            done.add(sortie_id)
        elif sortie_id in done:
            later.append(f"{sortie_id} by {event.type}")
    return "; ".join(later)


def _credit(final: FinalState) -> str:
    by = {e.data["sortie_id"]: e.agent_id for e in final.completions}
    wrong = [
        f"{sortie.title} was completed by {by[sortie.id]}, but is with {sortie.assigned_to}"
        for sortie in final.sorties
        if sortie.id in by and by[sortie.id] != sortie.assigned_to
    ]
    return "; ".join(wrong)


def _checkpoints(final: FinalState) -> str:
    details = [each.trigger_details for each in final.checkpoints]
    wanted = [*(f"Reached {percent}% milestone" for percent in MILESTONES), "Mission completed"]
    counts = ((text, details.count(text)) for text in wanted)
    return "; ".join(f"{count} of {text!r}" for text, count in counts if count != 1)


def _files(final: FinalState) -> str:
    missing = [each.id for each in final.checkpoints if each.id not in final.files]
    if missing:
        return f"no file for {', '.join(missing)}"
    return "" if final.seen.checkpoints_intact else "fleetctl checkpoint verify found damage"


def _locks(final: FinalState) -> str:
    return ", ".join(f"{lock.file} is held by {lock.held_by}" for lock in final.locks)


def _mail(final: FinalState) -> str:
    open_ones = [
        f"{message.id} is {delivery.status} for {delivery.agent_id}"
        for message in final.messages
        for delivery in message.deliveries
        if delivery.status != "acked"
    ]
    return "; ".join(open_ones) or ("" if final.messages else "there is no mail at all")


def _agents(final: FinalState) -> str:
    wrong = [
        f"{agent.id} is {agent.status}"
        for agent in final.agents
        if agent.status != ("lost" if agent.id == SECOND else "gone")
    ]
    absent = {SECOND, SUCCESSOR} - {agent.id for agent in final.agents}
    return "; ".join([*wrong, *(f"{name} is unknown" for name in sorted(absent))])


def _successor(final: FinalState) -> str:
    by = {e.data["sortie_id"]: e.agent_id for e in final.completions}
    left = [each.title for each in final.sorties if by.get(each.id) is None]
    return ", ".join(left) or ("" if SUCCESSOR in by.values() else f"{SUCCESSOR} completed none")


def _recovered_once(final: FinalState) -> str:
    times = sum(event.type == "fleet_recovered" for event in final.events)
    return "" if times == 1 else f"{times} times"


def _stale_token(final: FinalState) -> str:
    if not final.seen.stale_token_refused:
        return "the killed agent's token is still accepted"
    return "" if final.seen.new_token_accepted else "the successor's token is refused too"


CHECKS: tuple[tuple[str, Check], ...] = (
    ("every unit test passes; at the beginning they failed", _tests),
    ("everything is committed", _committed),
    ("the mission is completed at 100%", _mission),
    ("every sortie was completed exactly once", _sorties_once),
    ("no finished sortie was opened again", _nothing_reopened),
    ("finished sorties stay with the agent that did them", _credit),
    ("the successor finished what the killed agent left", _successor),
    ("checkpoints at 25, 50, 75 and 100%, one each", _checkpoints),
    ("every checkpoint has its file, all checksums match", _files),
    ("there was one recovery", _recovered_once),
    ("the killed agent's fencing token is refused", _stale_token),
    ("no lock is left", _locks),
    ("every message is acknowledged", _mail),
    ("the killed agent is lost, the others left in order", _agents),
)


def examine(final: FinalState) -> Iterator[Verdict]:
    """Yield the verdict of every check."""
    for text, check in CHECKS:
        wrong = check(final)
        yield Verdict(check=text, ok=not wrong, detail=wrong)
