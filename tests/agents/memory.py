"""What the daemon remembers, for tests to look at; must not change anything."""

import time
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from fleetd.protocol.records import Agent, Event, Mission, Recovery, Sortie
from fleetd.protocol.requests.agent import AgentGet, AgentList
from fleetd.protocol.requests.attention import AttentionList, RunningWork
from fleetd.protocol.requests.checkpoint import CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookStatusGet
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.recovery import RecoveryList
from fleetd.protocol.requests.sortie import SortieList

SOON_S = 10


class Memory:
    """Asks the daemon, each time anew: it may have been restarted."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def _ask(self, request: Any) -> Any:
        with Fleet(self._socket) as client:
            return client.call(request)

    def missions(self) -> list[Mission]:
        missions: list[Mission] = self._ask(MissionList()).missions
        return missions

    def agents(self) -> list[Agent]:
        agents: list[Agent] = self._ask(AgentList()).agents
        return agents

    def mission(self) -> Mission:
        """Return the one mission that there is."""
        (mission,) = self.missions()
        return mission

    def plan(self) -> list[tuple[str, str]]:
        """Return the titles and statuses of the sorties of the one mission, in order."""
        return [(sortie.title, sortie.status) for sortie in self.sorties()]

    def sorties(self, mission_id: str | None = None) -> list[Sortie]:
        """Return the sorties of a mission, by default of the one that there is."""
        sorties: list[Sortie] = self._ask(SortieList(mission_id or self.mission().id)).sorties
        return sorties

    def events(self, kind: str | None = None) -> list[Event]:
        events: list[Event] = self._ask(EventList(None, kind, limit=1_000)).events
        return events

    def log(self) -> str:
        """Return what happened, for whoever has to find out why a test failed."""
        return "\n".join(f"{each.timestamp} {each.type} {each.data}" for each in self.events())

    def told(self, kind: str, name: str) -> list[Any]:
        """Return one field of every event of a type."""
        return [event.data.get(name) for event in self.events(kind)]

    def commands(self) -> list[tuple[str, str | None]]:
        """Return every command that ended and how, as far as that became known, in order."""
        ended: dict[str | int, tuple[str, str | None]] = {}
        for number, event in enumerate(self.events("command_finished")):
            data = event.data
            ended[data.get("call_id", number)] = (data["command"], data.get("result"))
        return list(ended.values())

    def compactions(self) -> int:
        """Return how many checkpoints were taken because a window was about to be compacted."""
        page = self._ask(CheckpointList(self.mission().id, trigger="compaction", limit=1_000))
        return sum("compaction of" in (each.trigger_details or "") for each in page.checkpoints)

    def recoveries(self) -> list[Recovery]:
        recoveries: list[Recovery] = self._ask(RecoveryList()).recoveries
        return recoveries

    def deliveries(self) -> int:
        """Return how many hook calls were counted, whatever way they came."""
        return sum(each.deliveries for each in self._ask(HookStatusGet()).harnesses)

    def unknown(self) -> list[tuple[str, str, str]]:
        """Return what of the hooks fleetd does not know: the CLI, what it is, and its name."""
        heard = self._ask(HookStatusGet()).harnesses
        return [(each.harness, name.kind, name.name) for each in heard for name in each.unknown]

    def running(self) -> list[RunningWork]:
        """Return what runs for the agents."""
        return [each for agent in self._ask(AttentionList()).agents for each in agent.running]

    def needs(self) -> str:
        """Return what the one agent needs."""
        (agent,) = self._ask(AttentionList()).agents
        need: str = agent.needs
        return need

    def needs_by(self, deadline: float, need: str) -> None:
        """Wait until the one agent needs this; by a time of the monotonic clock it must."""
        while (now := self.needs()) != need:
            late = time.monotonic() - deadline
            assert late < 0, f"{now} instead of {need}\n{self.log()}"
            time.sleep(0.02)

    def soon_lost(self, agent_id: str) -> None:
        """Wait until the daemon has noticed that an agent's process is gone."""
        deadline = time.monotonic() + SOON_S
        while (status := self._ask(AgentGet(agent_id)).status) != "lost":
            assert time.monotonic() < deadline, f"{agent_id} is {status}\n{self.log()}"
            time.sleep(0.05)

    def soon_empty(self, directory: Path) -> None:
        """Wait until nothing lies in a directory any more."""
        deadline = time.monotonic() + SOON_S
        while left := [*directory.glob("*")]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
