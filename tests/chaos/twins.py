"""Identical missions, each with its own agents, so that their recoveries can be compared.

Must not recover anything itself.
"""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet

SORTIES = 5
AGENTS = ("one", "two", "three")
HOUR_MS = 3_600_000


class Twin:
    """A mission of three agents that worked before and after a checkpoint; one of them is dead.

    Its history comes from ``story`` alone: two twins of one story differ only in their ids.
    """

    def __init__(self, client: Fleet, name: str, project: Path, story: str) -> None:
        self._client, self.name = client, name
        self._project = project / name
        self._project.mkdir(parents=True)
        self._chance = random.Random(story)
        self._processes = {agent: subprocess.Popen(["sleep", "600"]) for agent in AGENTS}
        try:
            self._live()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End its agents."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def agent(self, name: str) -> str:
        """Return the id of one of its agents."""
        return f"{self.name}-{name}"

    def _call(self, method: str, **params: Any) -> Any:
        return self._client.call_raw(method, params)

    def _live(self) -> None:
        chance = self._chance
        sorties = [{"title": f"S{n}"} for n in range(SORTIES)]
        said = {"title": "Twin", "project_dir": str(self._project), "sorties": sorties}
        self.mission: str = self._call("mission.create", **said)["id"]
        listed = self._call("sortie.list", mission_id=self.mission)["sorties"]
        self._sorties = [one["id"] for one in listed]
        for name, process in self._processes.items():
            agent = {"agent_id": self.agent(name), "pid": process.pid, "role": "specialist"}
            self._call("agent.register", **agent, mission_id=self.mission)
        for number, name in enumerate(AGENTS):
            self._call("sortie.start", sortie_id=self._sorties[number], agent_id=self.agent(name))
            self._progress(number)
            self._lock(name, f"{name}.py")
            self._write(name)
        if chance.random() < 0.5:
            self._read("one", 1)
        self.checkpoint: str = self._call("checkpoint.create", mission_id=self.mission)["id"]
        for _ in range(chance.randrange(2, 7)):
            self._go_on()
        self._processes["one"].kill()
        self._processes["one"].wait()
        self._wait_until_lost()

    def _wait_until_lost(self) -> None:
        """Wait until the death of an agent is noticed."""
        while self._call("agent.get", agent_id=self.agent("one"))["status"] == "active":
            time.sleep(0.005)

    def _go_on(self) -> None:
        """Let something happen after the checkpoint."""
        name, number = self._chance.choice(AGENTS), self._chance.randrange(3)
        happening = self._chance.randrange(6)
        if happening == 0:
            self._progress(number)
        elif happening == 1:
            self._write(name)
        elif happening == 2:
            self._read(name, 5)
        elif happening == 3:
            self._lock(name, f"new-{name}.py")
        elif happening == 4:
            self._hand_on(name)
        else:
            self._call(
                "sortie.create", mission_id=self.mission, title=f"More {self._chance.random()}"
            )

    def _progress(self, number: int) -> None:
        percent, notes = self._chance.randrange(100), f"note {self._chance.random()}"
        said = {"sortie_id": self._sorties[number], "percent": percent, "notes": notes}
        self._call("sortie.progress", **said)

    def _lock(self, name: str, file: str) -> dict[str, Any]:
        said = {"file": file, "agent_id": self.agent(name), "mission_id": self.mission}
        taken: dict[str, Any] = self._call("lock.acquire", **said, timeout_ms=HOUR_MS)
        return taken

    def _hand_on(self, name: str) -> None:
        """Release a lock that the checkpoint contains, and let another agent take it."""
        for lock in self._call("lock.list", mission_id=self.mission)["locks"]:
            if lock["held_by"] == self.agent(name) and lock["file"] == f"{name}.py":
                self._call("lock.release", lock_id=lock["id"], agent_id=lock["held_by"])
                self._lock(self._chance.choice(AGENTS), f"{name}.py")

    def _write(self, name: str) -> None:
        others = [self.agent(each) for each in AGENTS if each != name]
        said = {"from": self.agent(name), "to": others, "subject": f"{self._chance.random()}"}
        self._call("message.send", **said, mission_id=self.mission)

    def _read(self, name: str, limit: int) -> None:
        self._call("message.inbox", agent_id=self.agent(name), limit=limit)

    # Results

    def state(self) -> dict[str, Any]:
        """Return the whole state, without values that differ between twins."""
        sorties = self._call("sortie.list", mission_id=self.mission)["sorties"]
        locks = self._call("lock.list", mission_id=self.mission)["locks"]
        letters = self._call("message.list", mission_id=self.mission)["messages"]
        agents = [self._call("agent.get", agent_id=self.agent(name)) for name in AGENTS]
        return {
            "mission": self._call("mission.get", mission_id=self.mission)["status"],
            "sorties": {one["title"]: self._work(one) for one in sorties},
            "locks": sorted((lock["file"], self._plain(lock["held_by"])) for lock in locks),
            "letters": {
                letter["subject"]: sorted(
                    (self._plain(to["agent_id"]), to["status"]) for to in letter["deliveries"]
                )
                for letter in letters
            },
            "agents": {self._plain(agent["id"]): agent["status"] for agent in agents},
        }

    def _work(self, sortie: dict[str, Any]) -> tuple[Any, ...]:
        fields = ("status", "progress", "progress_notes", "position")
        return (self._plain(sortie["assigned_to"]), *(sortie[field] for field in fields))

    def _plain(self, agent: str | None) -> str | None:
        return agent and agent.removeprefix(f"{self.name}-")

    def locks(self, *, active: bool) -> list[dict[str, Any]]:
        """Return its locks."""
        said = {"mission_id": self.mission, "active": active}
        found: list[dict[str, Any]] = self._call("lock.list", **said)["locks"]
        return found

    def events(self) -> list[dict[str, Any]]:
        """Return its part of the log."""
        said = {"mission_id": self.mission, "limit": 1_000}
        found: list[dict[str, Any]] = self._call("event.list", **said)["events"]
        return found

    def delivered_too_often(self) -> list[tuple[str, str]]:
        """Return messages that an agent received more often than they were queued for it."""
        given, queued = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for event in self.events():
            data, letter = event["data"], event["data"].get("message_id", "")
            if event["type"] == "message_delivered":
                given[letter, event["agent_id"]] += 1
            elif event["type"] in ("message_sent", "message_requeued"):
                queued.update((letter, to) for to in data["to"])
        return [each for each, number in given.items() if number > max(1, queued[each])]

    def reconnect(self, client: Fleet) -> None:
        """Switch to another connection."""
        self._client = client
