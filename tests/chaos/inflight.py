"""Requests of every kind, ready to be disturbed while they are under way; must not disturb any."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from fleetd.protocol.request import Mutation, Request
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate, CheckpointPrune, ErrorReport
from fleetd.protocol.requests.event import EventAppend, EventSubscribe
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionDelete,
    MissionStart,
    NewSortie,
)
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.snapshot import SnapshotRecord
from fleetd.protocol.requests.sortie import SortieComplete
from fleetd.protocol.requests.system import SystemBackup, SystemForget
from tests.support.fleet import SECOND, Fleet

SESSION = "777e68b4-1ad1-4f6c-9d81-64d0cae95a84"
LINE_BYTES, LARGE_BYTES = 4_096, 65_536
LEASE_MS = 2 * SECOND


@dataclass(frozen=True)
class Kind:
    """One kind of request.

    ``prepare`` creates what it needs and returns it, more than one for a batch. ``whole`` says that
    its changes are one transaction: otherwise each change is atomic, and a retry does the rest.
    ``refused`` is the error that it ends with when nothing disturbs it. ``then`` is sent at the
    end and does what the disturbance may have left for later. ``varies`` names tables that
    may differ then; the log may also have more events, for changes undone and done again.
    ``unfinished`` says that the next start may finish it: a retry then finds nothing.
    """

    name: str
    prepare: Callable[[Fleet], Awaitable[list[Request[Any]]]]
    whole: bool = True
    refused: str | None = None
    then: Callable[[], Request[Any]] | None = None
    varies: tuple[str, ...] = ()
    unfinished: bool = False


async def _mission(fleet: Fleet) -> Any:
    """Create a mission without a directory: otherwise fleetd runs Git, which takes real time."""
    sorties = [NewSortie(f"S{number}", files=[f"src/{number}.py"]) for number in range(4)]
    made = await fleet.do(MissionCreate("Login", sorties=sorties))
    return await fleet.do(MissionStart(made.id))


async def _append(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    return [EventAppend("step_taken", mission.id, "worker")]


async def _batch(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    first, *_ = await fleet.sorties(mission)
    return [
        EventAppend("step_taken", mission.id, "worker"),
        SortieComplete(first.id),
        LockAcquire("worker", "/tmp/a.py", mission_id=mission.id),
    ]


async def _complete(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    first, *_ = await fleet.sorties(mission)
    return [SortieComplete(first.id)]


async def _checkpoint(fleet: Fleet) -> list[Request[Any]]:
    return [CheckpointCreate((await _mission(fleet)).id)]


async def _snapshot(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    await fleet.agents(mission, "worker")
    return [SnapshotRecord(agent_id="worker", run_id="run-1")]


async def _error(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    await fleet.agents(mission, "worker")
    return [ErrorReport("worker", "exception", "Broken", "it broke", mission_id=mission.id)]


async def _message(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    await fleet.agents(mission, "dispatch", "one", "two")
    return [MessageSend("dispatch", ["one", "two"], "Review", mission_id=mission.id)]


async def _register(fleet: Fleet) -> list[Request[Any]]:
    return [AgentRegister("worker", "specialist", mission_id=(await _mission(fleet)).id)]


async def _wait(fleet: Fleet) -> list[Request[Any]]:
    """Wait for a lock until the holder's lease has expired."""
    await fleet.do(LockAcquire("holder", "/tmp/a.py", timeout_ms=LEASE_MS))
    return [LockAcquire("waiter", "/tmp/a.py", timeout_ms=60 * SECOND, wait_ms=2 * LEASE_MS)]


async def _wait_in_vain(fleet: Fleet) -> list[Request[Any]]:
    await fleet.do(LockAcquire("holder", "/tmp/a.py", timeout_ms=60 * SECOND))
    return [LockAcquire("waiter", "/tmp/a.py", wait_ms=SECOND)]


async def _restore(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    await fleet.agents(mission, "worker")
    await fleet.lock(mission, "/tmp/a.py", "worker", timeout_ms=600 * SECOND)
    await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "worker")
    return [RecoveryRestore(mission_id=mission.id, rewind=True)]


async def _hook(fleet: Fleet, **more: Any) -> list[Request[Any]]:
    """Let a session be compacted: the answer to the next hook is its briefing."""
    await fleet.do(_delivery("one-00000", "UserPromptSubmit", prompt="Add login"))
    await fleet.do(_delivery("two-00000", "PreCompact", trigger="auto"))
    return [_delivery("three-000", "SessionStart", source="compact", **more)]


async def _large_line(fleet: Fleet) -> list[Request[Any]]:
    return await _hook(fleet, padding="x" * (3 * LINE_BYTES))


def _next_hook() -> Request[Any]:
    return _delivery("four-0000", "UserPromptSubmit", prompt="Go on")


def _delivery(delivery_id: str, event: str, **fields: Any) -> HookDeliver:
    payload = {"session_id": SESSION, "cwd": "/tmp", "hook_event_name": event, **fields}
    return HookDeliver(delivery_id, "claude", json.dumps(payload))


async def _prune(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    for _ in range(4):
        await fleet.checkpoint(mission)
    fleet.clock.pass_by(SECOND)
    return [CheckpointPrune(older_than_days=0, keep_per_mission=1, mission_id=mission.id)]


async def _forget(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    await fleet.checkpoint(mission)
    return [SystemForget(mission_id=mission.id)]


async def _delete(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    await fleet.checkpoint(mission)
    await fleet.do(MissionCancel(mission.id, "Not needed"))
    return [MissionDelete(mission.id)]


async def _follow(fleet: Fleet) -> list[Request[Any]]:
    mission = await _mission(fleet)
    return [EventSubscribe(since=0, mission_id=mission.id)]


async def _backup(fleet: Fleet) -> list[Request[Any]]:
    await _mission(fleet)
    return [SystemBackup(str(fleet.project / "copy.db"))]


# A session that missed the briefing gets it with the next hook, and confirms it later.
_BRIEFED = ("recoveries",)
KINDS = (
    Kind("append", _append),
    Kind("complete", _complete),
    Kind("checkpoint", _checkpoint),
    Kind("snapshot", _snapshot),
    Kind("error", _error),
    Kind("message", _message),
    Kind("register", _register, whole=False),
    Kind("batch", _batch, whole=False),
    Kind("wait", _wait, whole=False, varies=("locks",)),
    Kind("wait_in_vain", _wait_in_vain, whole=False, refused="lock_conflict"),
    Kind("restore", _restore),
    Kind("hook", _hook, whole=False, then=_next_hook, varies=_BRIEFED),
    Kind("large_line", _large_line, whole=False, then=_next_hook, varies=_BRIEFED),
    Kind("prune", _prune, whole=False),
    Kind("forget", _forget, whole=False, unfinished=True),
    Kind("delete", _delete, whole=False, unfinished=True),
    Kind("backup", _backup, whole=False),
    Kind("follow", _follow),
)


def line_of(requests: list[Request[Any]]) -> bytes:
    """Return the line that a client sends, with an idempotency key for each request.

    A hook's key is its delivery id, and its payload comes last.
    """
    elements = [_element(number, request) for number, request in enumerate(requests)]
    return msgspec.json.encode(elements if len(elements) > 1 else elements[0]) + b"\n"


def _element(number: int, request: Request[Any]) -> dict[str, Any]:
    params: Any = request
    if isinstance(request, HookDeliver):
        named = ("delivery_id", "harness", "payload")
        params = {name: getattr(request, name) for name in named}
    elif isinstance(request, Mutation):
        params = msgspec.structs.replace(request, idempotency_key=f"key-{number}")
    return {"jsonrpc": "2.0", "method": request.method, "params": params, "id": number}
