"""The everyday requests of a fleet, each on stores of any size; must not fill them."""

import itertools
import json
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from ..fleet import Fleet
from ..measure import Samples, timed
from .filling import mission_id
from .process import Process

# Enough for a median; a slow request has fewer.
RUNS, BUDGET_S = 60, 1.2


class Cost(msgspec.Struct, frozen=True):
    """The cost of a call: in ms for the client, and in microseconds of the daemon's CPU time.

    ``fsync_ms`` and ``hello_us`` are for the operations measured in turn with it: an fsync, and a
    call without work, which shows how fast the processor was at that time.
    """

    p50_ms: float
    p95_ms: float
    cpu_us: float
    fsync_ms: float
    hello_us: float


Question = Callable[[], object]


def questions(fleet: Fleet, events: int) -> Iterator[tuple[str, Question]]:
    """Yield the requests with their names; the log contains so many events."""
    own = fleet.mission(4)
    yield from _writing(fleet, own)
    yield from _missions(fleet)
    yield from _log(fleet, events)
    yield from _mail_and_locks(fleet, own)
    yield from _system(fleet)
    yield "hook.deliver", _hooks(fleet)


def _writing(fleet: Fleet, own: str) -> Iterator[tuple[str, Question]]:
    sortie = fleet.call("sortie.list", mission_id=own)["sorties"][0]["id"]
    fleet.call("sortie.start", sortie_id=sortie, agent_id="dispatch")
    percent = itertools.cycle(range(1, 20))
    yield (
        "event.append",
        lambda: fleet.call(
            "event.append", type="file_read", mission_id=own, agent_id="agent-0", data={"n": 1}
        ),
    )
    yield (
        "sortie.progress",
        lambda: fleet.call(
            "sortie.progress", sortie_id=sortie, percent=next(percent), notes="Working"
        ),
    )
    yield (
        "checkpoint.create, 4 sorties",
        lambda: fleet.call("checkpoint.create", mission_id=own, wait_for_backup=False),
    )
    yield "recovery.restore, 4 sorties", lambda: fleet.call("recovery.restore", mission_id=own)
    yield "recovery.context", lambda: fleet.call("recovery.context", mission_id=own)
    yield "mission.create", lambda: fleet.call("mission.create", title="Port the tree")


def _missions(fleet: Fleet) -> Iterator[tuple[str, Question]]:
    yield "mission.get", lambda: fleet.call("mission.get", mission_id=mission_id(3))
    yield (
        "mission.get, by a prefix",
        lambda: fleet.call("mission.get", mission_id=mission_id(3)[:11]),
    )
    yield "mission.list, 10", lambda: fleet.call("mission.list", limit=10)
    yield (
        "mission.list, 10 of a status",
        lambda: fleet.call("mission.list", limit=10, status="completed"),
    )
    yield (
        "mission.list, 10 of a project",
        lambda: fleet.call("mission.list", limit=10, project_dir="/srv/project-3"),
    )
    yield "mission.current", lambda: fleet.call("mission.current", cwd="/srv/project-3/src")
    yield "sortie.list", lambda: fleet.call("sortie.list", mission_id=mission_id(3))
    yield "agent.list, of a mission", lambda: fleet.call("agent.list", mission_id=mission_id(3))
    yield "agent.list, idle", lambda: fleet.call("agent.list", status="idle")
    yield "recovery.detect", lambda: fleet.call("recovery.detect")
    yield "recovery.list, 10", lambda: fleet.call("recovery.list", limit=10)
    yield (
        "recovery.list, of a mission",
        lambda: fleet.call("recovery.list", mission_id=mission_id(3)),
    )
    yield "checkpoint.list, 10", lambda: fleet.call("checkpoint.list", limit=10)


def _log(fleet: Fleet, events: int) -> Iterator[tuple[str, Question]]:
    end = fleet.call("system.status")["position"]
    asked: dict[str, dict[str, Any]] = {
        "newest 50": {"since": end - 50},
        "50 from the middle": {"since": events // 2},
        "50 of a mission": {"mission_id": mission_id(0)},
        "50 of a rare type": {"type": "build_failed"},
        "50 of a mission and a type": {"mission_id": mission_id(0), "type": "build_failed"},
        "a type that never was": {"type": "never_was"},
    }
    for name, params in asked.items():
        yield f"event.list, {name}", partial(fleet.call, "event.list", limit=50, **params)
    yield "event.subscribe", lambda: _subscribe(fleet)
    yield (
        "cursor.advance",
        lambda: fleet.call("cursor.advance", consumer="bench", stream="fleet", position=end),
    )


def _subscribe(fleet: Fleet) -> None:
    made = fleet.call("event.subscribe")
    fleet.call("event.unsubscribe", subscription_id=made["subscription_id"])


def _mail_and_locks(fleet: Fleet, own: str) -> Iterator[tuple[str, Question]]:
    file = str(fleet.directory / "locked.py")

    def lock() -> None:
        held = fleet.call("lock.acquire", file=file, agent_id="agent-0", mission_id=own)
        fleet.call("lock.release", lock_id=held["id"], agent_id="agent-0")

    def letter() -> None:
        content = {"subject": "Ready?", "mission_id": own}
        sent = fleet.call("message.send", **{"from": "agent-0"}, to=["agent-1"], **content)
        fleet.call("message.inbox", agent_id="agent-1")
        fleet.call("message.ack", message_id=sent["id"], agent_id="agent-1")

    yield "lock.acquire, lock.release", lock
    yield "lock.list", lambda: fleet.call("lock.list")
    yield "lock.list, of a mission", lambda: fleet.call("lock.list", mission_id=mission_id(3))
    yield "message.send, inbox, ack", letter
    yield "message.list, of a mission", lambda: fleet.call("message.list", mission_id=mission_id(3))
    yield "message.list, pending", lambda: fleet.call("message.list", pending=True)


def _system(fleet: Fleet) -> Iterator[tuple[str, Question]]:
    for method in ("status", "health", "metrics"):
        yield f"system.{method}", partial(fleet.call, f"system.{method}")
    yield "hook.status", lambda: fleet.call("hook.status")


def _hooks(fleet: Fleet) -> Question:
    number = itertools.count(1)

    def call() -> None:
        payload = {
            "session_id": "grown",
            "cwd": str(fleet.directory),
            "hook_event_name": "PostToolUse",
            "tool_name": "Write",
            "tool_input": {"file_path": str(fleet.directory / "edited.py"), "content": "x"},
            "tool_use_id": f"toolu_{next(number)}",
        }
        fleet.call(
            "hook.deliver",
            delivery_id=secrets.token_hex(8),
            harness="claude",
            payload=json.dumps(payload),
        )

    return call


def cost(fleet: Fleet, process: Process, question: Question, fsync: Question) -> Cost:
    """Send a request several times, in turn with an fsync and a call without work.

    The first time finds cold caches and does not count.
    """
    question()
    samples, beside = Samples([]), Samples([])
    cpu_ms, hello_ms, spent_ms = 0.0, 0.0, 0.0
    while len(samples.times_ms) < RUNS and (
        spent_ms < BUDGET_S * 1_000 or len(samples.times_ms) < 3
    ):
        before = process.cpu_ms()
        samples.times_ms.append(timed(question))
        asked = process.cpu_ms()
        fleet.call("system.hello")
        hello_ms += process.cpu_ms() - asked
        cpu_ms += asked - before
        beside.times_ms.append(timed(fsync))
        spent_ms += samples.times_ms[-1]
    micros = 1_000 / len(samples.times_ms)
    return Cost(samples.p50, samples.p95, cpu_ms * micros, beside.p50, hello_ms * micros)
