"""Clients on several machines that lock the same files, and the search for an order of all calls.

A series is some clients of each machine, for a few seconds, on separate files: a search takes
longer the more calls there are.
"""

import math
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, Unavailable
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire, LockList
from fleetd.protocol.timestamps import to_ms
from tests.chaos import lock_clients
from tests.chaos.campaign import Red
from tests.chaos.lock_clients import Diary, LockCall, Plan
from tests.chaos.lock_history import LockHistory, check_rows
from tests.chaos.lock_model import unexplained
from tests.chaos.machines import FleetMachine

LEASES_MS = (250, 500, 1_000)
CALLS = 25
PAUSE_S = 0.15
# The machines of a fleet agree on the time up to half of a round trip to the server.
SLACK_MS = 25
# How long a client retries: longer than the server or a daemon is away.
INSISTS_S = 30.0
# The long absence of a machine is shorter than this.
AWAY_S = 180.0
STOPS = 0.08


@dataclass
class Series:
    """The clients of one series, and their diaries."""

    number: int
    place: Path
    plans: list[Plan]
    threads: list[threading.Thread]
    broken: list[BaseException]

    def over(self) -> bool:
        """Return whether all its clients are done."""
        return not any(thread.is_alive() for thread in self.threads)


def begin(
    machines: Iterable[FleetMachine], number: int, place: Path, seed: str, clients: int
) -> Series | None:
    """Start so many clients of each machine; return None when the fleet does not answer now."""
    machines = list(machines)
    chance = random.Random(f"{seed}/locks/{number}")
    try:
        with Fleet(machines[0].socket, connect_s=1.0) as client:
            # A separate directory: users who work elsewhere do not join this mission.
            apart = f"{machines[0].project}/{_folder(number)}"
            said = {"title": f"Locks {number}", "project_dir": apart}
            mission = client.call_raw("mission.create", said, reply_s=5)["id"]
            client.call_raw("mission.start", {"mission_id": mission}, reply_s=5)
    except (FleetError, OSError):
        return None
    plans = [
        Plan(
            machine.socket,
            f"locker-{number}-{machine.number}-{n}",
            mission,
            _names(machine, number),
            chance.choice(LEASES_MS),
            CALLS,
            f"{seed}/{number}/{machine.number}/{n}",
        )
        for machine in machines
        for n in range(clients)
    ]
    series = Series(number, place, plans, [], [])
    for plan in plans:
        thread = threading.Thread(target=_work, args=(series, plan), daemon=True)
        thread.start()
        series.threads.append(thread)
    return series


def _folder(number: int) -> str:
    return f"series-{number}"


def _names(machine: FleetMachine, number: int) -> dict[str, list[dict[str, str]]]:
    """Return some names of each file on a machine."""
    folder = _folder(number)
    return {
        key: [
            {"file": f"{machine.project}/{folder}/{key}.py"},
            {"file": f"{folder}/{key}.py", "cwd": str(machine.project)},
        ]
        for key in "ab"
    }


def _work(series: Series, plan: Plan) -> None:
    """Lock, check, renew and release; sometimes pause for longer than the lease."""
    chance = random.Random(plan.seed)
    known: dict[str, Any] = {}
    life, left = 0, plan.calls
    try:
        while left > 0:
            diary = series.place / f"{plan.agent}-{life}"
            life += 1
            with _opened(plan) as client:
                left = _live(Diary(diary, client, plan.agent), plan, chance, known, left)
    except Exception as error:  # noqa: BLE001 - raised again by whoever judges
        series.broken.append(error)


def _opened(plan: Plan) -> Fleet:
    """Return a client once there is a daemon; its machine may be away for a long time."""
    deadline = time.monotonic() + AWAY_S
    while True:
        try:
            return Fleet(plan.socket, restart_s=INSISTS_S)
        except Unavailable:
            if time.monotonic() > deadline:
                raise


def _live(notes: Diary, plan: Plan, chance: random.Random, known: dict[str, Any], left: int) -> int:
    """Make calls until all are done or an outcome is unknown; return how many are left."""
    agent = AgentRegister(plan.agent, "specialist", mission_id=plan.mission_id)
    notes.call("", agent)
    while left > 0 and not notes.lost:
        key = chance.choice(list(plan.names))
        request = lock_clients._choose(plan, chance, key, known)
        if isinstance(request, LockAcquire):
            request = _waiting(request, plan.lease_ms * 2)
        result = notes.call("" if isinstance(request, EventAppend) else key, request)
        if isinstance(request, LockAcquire) and result is not None:
            known[key] = result
        time.sleep(chance.random() * PAUSE_S)
        if chance.random() < STOPS:
            time.sleep(plan.lease_ms * 1.5 / 1_000)
        left -= 1
    return left


def _waiting(request: LockAcquire, wait_ms: int) -> LockAcquire:
    """Return a request with another wait, if it waits at all."""
    return msgspec.structs.replace(request, wait_ms=wait_ms) if request.wait_ms else request


def judge(series: Series, client: Fleet) -> int:
    """Search for an order that explains a series; return how many calls it made."""
    if series.broken:
        raise Red(f"a client of locks could not go on: {series.broken[0]!r}")
    folder = f"{_folder(series.number)}/"
    rows = [row for row in _every_lock(client) if folder in row["normalized_path"]]
    keys = {row["normalized_path"] for row in rows}
    if len(keys) > 2:
        raise Red(f"a file has several keys: {keys}")
    diaries = [path for plan in series.plans for path in series.place.glob(f"{plan.agent}-*")]
    calls = list(lock_clients.read(diaries))
    check_rows(rows, slack_ms=SLACK_MS + _longest_wait(calls))
    history = LockHistory(calls, rows, slack_ms=SLACK_MS)
    for key, ops in sorted(history.ops.items()):
        missed = unexplained(ops)
        if missed is not None:
            around = sorted(ops, key=lambda op: op.called)
            place = around.index(missed)
            told = "\n    ".join(map(str, around[max(0, place - 8) : place + 4]))
            raise Red(
                f"no order of {len(ops)} operations on {key} explains\n  {missed}\n    {told}"
            )
    return len(calls)


def _longest_wait(calls: Iterable[LockCall]) -> int:
    """Return the longest time from a grant to its answer, in ms: the commit may have waited."""
    waits = [
        call.answered - granted
        for call in calls
        if call.method == "lock.acquire" and call.answered and call.error is None
        if (granted := to_ms(call.result["acquired_at"])) >= call.called - SLACK_MS
    ]
    return math.ceil(max(waits, default=0))


def _every_lock(client: Fleet) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["id"] if found else None
        page = client.call(LockList(active=False, after=after))
        found += msgspec.to_builtins(page.locks)
        if len(page.locks) < 1_000:
            return found
