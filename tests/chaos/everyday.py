"""Agents at their everyday work, at a pace, who delete what is over; must not judge it."""

import json
import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError
from tests.chaos.hostile import hook_line

# Errors that a daemon may return though nothing is wrong: agents block each other.
USUAL = {"lock_conflict", "limit", "not_found", "invalid_state", "conflict"}


class EverydayAgent:
    """One agent: mission after mission, with locks, messages, records and an agent CLI's sessions.

    ``pause_s`` is the pause between two requests. The mission before the last is deleted.
    """

    def __init__(
        self, name: str, others: list[str], path: Path, place: Path, pause_s: float
    ) -> None:
        self.name, self.others, self.path, self.place = name, others, path, place
        self.pause_s = pause_s
        self.chance = random.Random(name)
        self.times: list[float] = []
        self.broken: BaseException | None = None
        self.stop = threading.Event()
        self.over: list[str] = []
        self.session = ""

    def run(self) -> None:
        """Work until stopped; ``broken`` keeps an unexpected error."""
        try:
            with Fleet(self.path) as self.client:
                number = 0
                while not self.stop.is_set():
                    number += 1
                    self.mission(number)
        except Exception as error:  # noqa: BLE001 - told by the campaign
            self.broken = None if self.stop.is_set() else error

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, {} when it was refused for a usual reason; pause afterwards."""
        if self.stop.is_set():
            raise InterruptedError
        begun = time.monotonic()
        try:
            found: dict[str, Any] = self.client.call_raw(method, params)
        except FleetError as error:
            if error.kind not in USUAL:
                raise
            found = {}
        self.times.append(time.monotonic() - begun)
        self.rest()
        return found

    def hook(self, event: str, **said: Any) -> None:
        """Report an event as a hook of the agent's session does, on a separate connection."""
        payload = {"hook_event_name": event, "session_id": self.session, "cwd": str(self.place)}
        delivery = f"{self.chance.getrandbits(128):032x}"
        begun = time.monotonic()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(60)
            sock.connect(str(self.path))
            sock.sendall(hook_line(json.dumps(payload | said), delivery=delivery) + b"\n")
            sock.shutdown(socket.SHUT_WR)
            reply = b""
            while data := sock.recv(1 << 16):
                reply += data
        if b'"result"' not in reply:
            raise AssertionError(f"a hook was answered {reply[:300]!r}")
        self.times.append(time.monotonic() - begun)
        self.rest()

    def rest(self) -> None:
        self.stop.wait(self.pause_s * self.chance.random() * 2)

    def mission(self, number: int) -> None:
        """Do one mission from beginning to end."""
        self.session = f"{self.name}-{number}"
        sorties = [{"title": f"step {n} of {number}"} for n in range(3)]
        made = self.ask("mission.create", title=f"Everyday {number}", sorties=sorties)
        mission = made["id"]
        self.ask("agent.register", agent_id=self.name, role="specialist", mission_id=mission)
        self.ask("mission.start", mission_id=mission)
        self.hook("SessionStart", source="startup")
        self.hook("UserPromptSubmit", prompt=f"go on with {number}")
        for sortie in self.ask("sortie.list", mission_id=mission).get("sorties", ()):
            self.step(mission, sortie["id"])
        self.ask("checkpoint.create", mission_id=mission)
        self.ask("checkpoint.latest", mission_id=mission)
        self.hook("PreCompact", trigger="auto")
        self.hook("SessionStart", source="compact")
        self.ask("mission.complete", mission_id=mission)
        self.hook("SessionEnd", reason="other")
        self.ask("system.status")
        self.over.append(mission)
        if len(self.over) > 2:
            self.ask("mission.delete", mission_id=self.over.pop(0))

    def step(self, mission: str, sortie: str) -> None:
        file = str(self.place / f"{self.chance.randrange(100)}.py")
        self.ask("sortie.start", sortie_id=sortie, agent_id=self.name)
        lock = self.ask("lock.acquire", file=file, agent_id=self.name, timeout_ms=60_000)
        for _ in range(2):
            edit = {"file_path": file, "old_string": "a", "new_string": "b" * 500}
            self.hook("PreToolUse", tool_name="Edit", tool_input=edit)
            self.hook("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={"ok": True})
        long = {"text": "what a command said " * 2_000}
        self.ask("event.append", type="notes_taken", agent_id=self.name, data=long)
        self.ask("sortie.progress", sortie_id=sortie, percent=50, notes="half of it")
        self.ask("message.send", **self.letter())
        for letter in self.ask("message.inbox", agent_id=self.name).get("messages", ()):
            self.ask("message.ack", message_id=letter["id"], agent_id=self.name)
        if lock:
            self.ask("lock.release", lock_id=lock["id"], agent_id=self.name)
        self.ask("sortie.complete", sortie_id=sortie)
        self.ask("event.list", mission_id=mission, limit=20)

    def letter(self) -> dict[str, Any]:
        to = self.chance.choice(self.others)
        return {"from": self.name, "to": [to], "subject": "a word", "body": "x" * 200}


class Everybody:
    """Agents, each on its own thread."""

    def __init__(self, path: Path, home: Path, number: int, per_second: float) -> None:
        names = [f"everyday-{n}" for n in range(number)]
        self.agents = []
        for name in names:
            place = home / "project" / name
            place.mkdir(parents=True, exist_ok=True)
            self.agents.append(EverydayAgent(name, names, path, place, number / per_second))
        self._threads = [threading.Thread(target=agent.run) for agent in self.agents]

    def start(self) -> None:
        """Start all agents."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all agents, in the middle of whatever they do."""
        for agent in self.agents:
            agent.stop.set()
        for thread in self._threads:
            thread.join(60)

    def trouble(self) -> str | None:
        """Return the error of one of them, if any."""
        broken = [agent for agent in self.agents if agent.broken]
        return f"{broken[0].name}: {broken[0].broken!r}" if broken else None

    def times(self) -> list[float]:
        """Return how long all requests took since the last call, in seconds."""
        found: list[float] = []
        for agent in self.agents:
            taken, agent.times = agent.times, []
            found += taken
        return found
