"""Users of machines whose daemon and store fail again and again; must not judge the results.

Each user is a thread. A request without an answer is retried under the same key until it has one.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, Unavailable
from tests.chaos.machines import NAME, FleetMachine
from tests.chaos.view import check
from tests.chaos.work import ERRANDS, User
from tests.chaos.worker import Gone
from tests.support.hook_client import COMMAND

# The log must stay complete, so no user forgets anything.
FORGETTING = ("delete_mission", "forget_mission", "forget_session")
OWN = {name: often for name, often in ERRANDS.items() if name not in FORGETTING} | {"mutter": 24}
AWAY_S = 0.25
PATIENCE_S = 60.0
# A process that runs hooks, each of which reads a file, and reports their exit statuses. It uses no
# shell, because fleetd would look for the agent CLI behind a shell.
_AGENT_CLI = """
import subprocess, sys
for line in sys.stdin:
    with open(line.strip()) as payload:
        done = subprocess.run(sys.argv[1:], stdin=payload, stdout=subprocess.DEVNULL)
    print(done.returncode, flush=True)
"""


class Townsman(User):
    """A user who continues to work while daemons and the server fail and restart."""

    def __init__(self, name: str, machine: FleetMachine, chance: random.Random) -> None:
        super().__init__(name, machine.socket, machine.home, chance)
        self.machine = machine
        self.muttered: dict[str, bool] = {}
        """The events sent without a key, and whether each was acknowledged."""
        self.forgets_locks = threading.Event()
        """Set when the machine was away for so long that its leases may have ended."""

    def live(self, stop: threading.Event, pause_s: float) -> None:
        """Work until stopped; ``broken`` keeps an unexpected error."""
        try:
            while not stop.is_set():
                self._go_on(stop)
                stop.wait(pause_s * self.chance.random() * 2)
        except Exception as error:  # noqa: BLE001 - raised again by whoever judges
            self.broken = error

    def _go_on(self, stop: threading.Event) -> None:
        try:
            if self.open is not None:
                self.again()
            elif self.forgets_locks.is_set():
                self.forgets_locks.clear()
                self._forget_locks()
            else:
                self.errand()
        except Gone:
            stop.wait(AWAY_S * (1 + self.chance.random()))

    def _forget_locks(self) -> None:
        for lock in self.own("lock"):
            del self.facts["lock", lock["id"]]

    def errand(self) -> None:
        """Do one of the actions that are possible now."""
        while self.stale:
            self.look_again(next(iter(self.stale)))
        (name,) = self.chance.choices([*OWN], [*OWN.values()])
        getattr(self, name)()

    def ask(self, method: str, params: dict[str, Any], **more: Any) -> None:
        """Send a request that changes something; see Worker.

        A snapshot whose file has to wait for the server is stored, and its sender gets an error.
        """
        if method == "snapshot.record":
            more["may"] = ("checkpoint_atomic_write_failed",)
        super().ask(method, params, **more)

    def mutter(self) -> None:
        """Append an event without a key: it is not retried, whatever its outcome."""
        mark = f"~{self.name}.muttered.{len(self.muttered)}~"
        self.muttered[mark] = False
        try:
            said = {"type": "test_muttered", "data": {"mark": mark}}
            self._connected().call_raw("event.append", said)
        except (FleetError, OSError) as error:
            if isinstance(error, FleetError) and error.kind not in ("unavailable", "storage"):
                raise
            raise self._lost(error) from error
        self.muttered[mark] = True

    def _acquire(self, agent: str, file: str, mission: str | None, **more: Any) -> None:
        """Lock a file by its name that is valid on every machine."""
        path = (self.project / file).resolve()
        key = f"project:{NAME}:{path.relative_to(self.machine.project)}"
        mark = self.mark()
        said = {"file": file, "agent_id": agent, "cwd": str(self.project), "purpose": mark}
        said |= {"mission_id": mission} if mission else {}
        held = [one["id"] for one in self.own("lock", normalized_path=[key, str(path)])]
        self.ask(
            "lock.acquire",
            {**said, "timeout_ms": 3_600_000, **more},
            may=("lock_conflict",),
            touches=[key, str(path), *held],
            mission=mission,
            then=lambda told: self.note("lock", told),
        )

    def file_of(self, lock: dict[str, Any]) -> str:
        """Return the path of a lock's file on this machine: its key is no valid name."""
        return str((self.project / lock["file"]).resolve())


class HookingUser:
    """A session whose hooks are real processes, which spool what no daemon takes."""

    def __init__(self, machine: FleetMachine) -> None:
        self._machine = machine
        self._payload = machine.home / "payload"
        self.marks: list[str] = []
        self.broken: BaseException | None = None
        command = [sys.executable, "-c", _AGENT_CLI, *COMMAND, "claude"]
        self._agent = subprocess.Popen(
            command, env=machine.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def live(self, stop: threading.Event, pause_s: float) -> None:
        """Run hook after hook, all of one agent CLI."""
        try:
            self._run("SessionStart", source="startup")
            while not stop.wait(pause_s):
                mark = f"~{self._machine.name}.hook.{len(self.marks)}~"
                self.marks.append(mark)
                tool = {"tool_name": "Bash", "tool_input": {"command": f"make '{mark}'"}}
                self._run("PostToolUse", tool_use_id=mark, tool_response={"stdout": ""}, **tool)
        except Exception as error:  # noqa: BLE001 - raised again by whoever judges
            self.broken = error

    def close(self) -> None:
        """End the agent CLI."""
        self._agent.kill()
        self._agent.communicate()

    def _run(self, event: str, **told: Any) -> None:
        payload = {"session_id": f"hooked-{self._machine.name}", "hook_event_name": event}
        payload |= {"cwd": str(self._machine.project), **told}
        self._payload.write_text(json.dumps(payload))
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        self._agent.stdin.write(f"{self._payload}\n")
        self._agent.stdin.flush()
        status = self._agent.stdout.readline().strip()
        check(status == "0", f"a hook ended with {status}")


class Subscriber:
    """A subscriber to all events, over kills and outages: each once, in order, without gaps.

    ``digests`` summarizes the events up to each thousandth, and up to the last.
    """

    def __init__(self, machine: FleetMachine) -> None:
        self._machine = machine
        self.position = 0
        self.resumed = -1
        self.digest = Digest()
        self.broken: BaseException | None = None
        self._client: Fleet | None = None

    def live(self, stop: threading.Event, _: float) -> None:
        """Read events until stopped."""
        while not stop.is_set() and self.broken is None:
            try:
                self._listen(stop)
            except (Unavailable, OSError):
                stop.wait(AWAY_S)
            except Exception as error:  # noqa: BLE001 - raised again by whoever judges
                self.broken = error

    def _listen(self, stop: threading.Event) -> None:
        with (
            Fleet(self._machine.socket, connect_s=1.0) as client,
            client.events(since=self.position, away_s=0) as events,
        ):
            self.resumed += 1
            while not stop.is_set():
                if (event := events.next(AWAY_S)) is not None:
                    self._take(event.seq, event)

    def _take(self, seq: int, event: Any) -> None:
        name = self._machine.name
        check(seq == self.position + 1, f"{name} told {seq} after {self.position}")
        self.digest.add(msgspec.to_builtins(event))
        self.position = seq


class Digest:
    """The content of a sequence of events, as a short text for each requested prefix."""

    def __init__(self) -> None:
        self._state = blake2b(digest_size=8)
        self.at: dict[int, str] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Add the next event."""
        said = [event[name] for name in ("seq", "type", "timestamp", "mission_id", "agent_id")]
        text = json.dumps([said, event["data"]], sort_keys=True)
        self._state.update(text.encode())
        self.at[event["seq"]] = self._state.hexdigest()


class Town:
    """All users of all machines, with the interface that a checker expects of a Crew."""

    def __init__(
        self, machines: Iterable[FleetMachine], seed: str, users: int, listeners: int
    ) -> None:
        machines = list(machines)
        self.workers = [
            Townsman(f"m{each.number}w{n}", each, random.Random(f"{seed}/{each.number}/{n}"))
            for each in machines
            for n in range(users)
        ]
        names = [each.name for each in self.workers]
        for worker in self.workers:
            worker.others = names
        self.subscribers = [Subscriber(each) for each in machines for _ in range(listeners)]
        self.hooked = [HookingUser(each) for each in machines]
        # Subscribers are judged separately: see ``Subscriber``.
        self.follower = SimpleNamespace(told={})
        self._stop, self._leave = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._listening: list[threading.Thread] = []

    def start(self, pause_s: float) -> None:
        """Start all users."""
        self._listening = [self._begin(each.live, self._leave, 0.0) for each in self.subscribers]
        self._threads = [self._begin(each.live, self._stop, pause_s) for each in self.workers]
        self._threads += [self._begin(each.live, self._stop, 1.0) for each in self.hooked]

    def _begin(self, live: Callable[..., None], *given: Any) -> threading.Thread:
        thread = threading.Thread(target=live, args=given, daemon=True)
        thread.start()
        return thread

    def well(self) -> None:
        """Raise Red with the first unexpected error of a user."""
        for each in (*self.workers, *self.hooked, *self.subscribers):
            if each.broken is not None:
                last = getattr(each, "said", [None])[-1]
                name = getattr(each, "name", type(each).__name__)
                raise AssertionError(f"{name}, {last}: {each.broken!r}") from each.broken

    def finish(self) -> None:
        """Stop the workers; subscribers continue."""
        self._stop.set()
        _join(self._threads)
        self.well()

    def leave(self) -> None:
        """Stop all users."""
        self._stop.set()
        self._leave.set()
        _join([*self._threads, *self._listening])
        for each in (*self.workers, *self.hooked):
            each.close()

    def again(self) -> int:
        """Retry requests in flight until they are answered; return how many there were."""
        retried = [worker for worker in self.workers if worker.open is not None]
        deadline = time.monotonic() + PATIENCE_S
        for worker in retried:
            while worker.open is not None:
                check(time.monotonic() < deadline, f"{worker.name} gets no answer: {worker.open}")
                try:
                    worker.again()
                except Gone:
                    time.sleep(AWAY_S)
                except FleetError as error:
                    raise AssertionError(f"sent again: {worker.said[-1]}: {error!r}") from error
        return len(retried)

    def check_said(self, words: Counter[tuple[str, str]]) -> None:
        """Check that the log has each event without a key, and each hook's event, once."""
        for worker in self.workers:
            for mark, told in worker.muttered.items():
                seen = words["test_muttered", mark]
                check(told <= seen <= 1, f"{mark}: acknowledged {told}, {seen} times in the log")
        for each in self.hooked:
            for mark in each.marks:
                seen = words["command_finished", mark]
                check(seen == 1, f"a hook told {mark}, {seen} times in the log")

    def check_heard(self, events: Iterable[dict[str, Any]]) -> None:
        """Check that every subscriber received all events as they are in the log."""
        whole = Digest()
        for event in events:
            whole.add(event)
        for each in self.subscribers:
            name = f"a subscriber of {each._machine.name}"
            check(each.digest.at.keys() == whole.at.keys(), f"{name} ended at {each.position}")
            for seq, digest in each.digest.at.items():
                check(whole.at[seq] == digest, f"{name} was told another event {seq}")


def _join(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        check(not thread.is_alive(), "somebody got no answer")


def home_of(machine: FleetMachine) -> Path:
    """Return the directory of a machine's checkpoint files."""
    return machine.home / "flightline" / "checkpoints"
