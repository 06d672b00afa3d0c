"""Clients that lock files at random, each a process that may be stopped or killed, and its diary.

A client writes each call to its diary before and after: a kill leaves a call without an answer.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fleetctl.client import Fleet, TooSlow
from fleetd.protocol.errors import FleetError, Unavailable
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import (
    LockAcquire,
    LockCheck,
    LockForceRelease,
    LockRelease,
    LockRenew,
)
from fleetd.protocol.requests.recovery import RecoveryRestore

PAUSE_S = 0.012
REPLY_S = 20.0


@dataclass(frozen=True)
class LockCall:
    """One call as its client saw it; times in ms of the wall clock, ``answered`` may be None."""

    key: str
    agent: str
    request: dict[str, Any]
    method: str
    called: float
    answered: float | None
    result: Any
    error: str | None


def now_ms() -> float:
    return time.time_ns() / 1e6


@dataclass
class Plan:
    """The task of a client: ``names`` are the ways to name each file, ``mission_id`` is shared."""

    socket: Path
    agent: str
    mission_id: str
    names: dict[str, list[dict[str, str]]]
    lease_ms: int
    calls: int
    seed: str


def process(work: Callable[[], None]) -> int:
    """Run a function in a separate process and return its pid; the caller ends it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    finally:
        os._exit(0)


class Diary:
    """The file in which a client records its calls and their answers.

    ``lost`` is whether the outcome of a call is unknown.
    """

    def __init__(self, path: Path, client: Fleet, agent: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._client, self._agent, self._number = client, agent, 0
        self.lost = False

    def call(self, key: str, request: Request[Any]) -> Any:
        """Make a call; return None when it was refused, or its outcome is unknown."""
        self._number += 1
        told = {"n": f"{os.getpid()}-{self._number}", "key": key, "agent": self._agent}
        told |= {"method": request.method, "request": msgspec.to_builtins(request)}
        self._write(told | {"called": now_ms()})
        try:
            result = self._client.call(request, reply_s=REPLY_S)
        except (Unavailable, TooSlow):
            self._client.close()
            self.lost = True
            return None  # its outcome is unknown
        except FleetError as error:
            held = error.values.get("existing_lock")
            self._write({"n": told["n"], "answered": now_ms(), "error": error.kind, "result": held})
            return None
        answer = msgspec.to_builtins(result)
        self._write({"n": told["n"], "answered": now_ms(), "result": answer})
        return result

    def _write(self, entry: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")


def work(plan: Plan, diary: Path) -> None:
    """Lock, check, renew and release files at random."""
    chance = random.Random(plan.seed)
    with Fleet(plan.socket) as client:
        notes = Diary(diary, client, plan.agent)
        agent = AgentRegister(plan.agent, "specialist", pid=os.getpid(), mission_id=plan.mission_id)
        notes.call("", agent)
        known: dict[str, Any] = {}
        for _ in range(plan.calls):
            key = chance.choice(list(plan.names))
            request = _choose(plan, chance, key, known)
            result = notes.call(key if not isinstance(request, EventAppend) else "", request)
            if isinstance(request, LockAcquire) and result is not None:
                known[key] = result
            time.sleep(chance.random() * PAUSE_S)


def _choose(plan: Plan, chance: random.Random, key: str, known: dict[str, Any]) -> Request[Any]:
    name = chance.choice(plan.names[key])
    lock = known.get(key)
    luck = chance.random()
    if lock is None or luck < 0.3:
        wait = chance.choice([0, 0, 30, 120])
        return LockAcquire(
            agent_id=plan.agent,
            mission_id=plan.mission_id,
            timeout_ms=plan.lease_ms,
            wait_ms=wait,
            **name,
        )
    if luck < 0.55:
        path = lock.normalized_path
        # The key of a project's file is not a valid name for it; the first name is absolute.
        file = path if path.startswith("/") else plan.names[key][0]["file"]
        return LockCheck(file, lock.fencing_token)
    if luck < 0.65:
        return LockRenew(lock.id, plan.agent)
    if luck < 0.85:
        return LockRelease(lock.id, plan.agent)
    if luck < 0.95:
        return EventAppend("step_taken", plan.mission_id, plan.agent)
    if luck < 0.98:
        return LockForceRelease(lock.id, plan.agent, "it is needed")
    return RecoveryRestore(mission_id=plan.mission_id)


def read(diaries: list[Path]) -> Iterator[LockCall]:
    """Return every call of the diaries."""
    for diary in diaries:
        calls: dict[str, dict[str, Any]] = {}
        for line in diary.read_text().splitlines():
            entry = json.loads(line)
            calls.setdefault(entry["n"], {}).update(entry)
        for each in calls.values():
            yield LockCall(
                each["key"],
                each["agent"],
                each["request"],
                each["method"],
                each["called"],
                each.get("answered"),
                each.get("result"),
                each.get("error"),
            )
