"""Clients disconnect, the daemon stops, or a request is cancelled: at every single await.

One program runs the server, the engine and the client under virtual time. So a disturbance after
the n-th step always hits the same place.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import trio

from fleetd.domain.core.idempotency import remember
from fleetd.engine.engine import Engine
from fleetd.server.server import ConnectionLimit
from fleetd.store.worker_thread import Job, WorkerThread
from tests.chaos.attempts import Attempt, Undisturbed
from tests.chaos.campaign import Campaign, Run
from tests.chaos.inflight import KINDS
from tests.chaos.served import instead

WAYS = ("dropped", "gone", "reset", "half", "stop")
# How many places of one kind the short form tests.
PLACES = 1


@contextmanager
def _a_place_is_kept() -> Iterator[None]:
    """Serve a client and never release its connection slot."""

    with instead(ConnectionLimit, "release", lambda _: None):
        yield


@contextmanager
def _cut_between_two() -> Iterator[None]:
    """Let a disconnect cancel an operation between its work and the record that it is done."""

    async def remembered(engine: Engine, request: Any, work: Callable[[], Any]) -> Any:
        known = await engine.earlier_answer(request)
        if known is None:
            known = await work()
            if request.idempotency_key is None:
                return known
            await trio.lowlevel.checkpoint()
            await engine.write(remember, request, known)
        return known

    with instead(Engine, "run_once", remembered):
        yield


@contextmanager
def _commits_are_cancelled() -> Iterator[None]:
    """Do not tell a caller that is cancelled during its commit that the commit happened."""

    async def submit(lane: WorkerThread, fn: Callable[..., Any], _kind: Any) -> Any:
        job = Job(fn, None)
        lane._work([job])
        lane._finished([job])
        await trio.lowlevel.checkpoint()
        return job.result.unwrap()

    with instead(WorkerThread, "submit", submit):
        yield


# Each defect with the case that detects it, to save the time of the others.
PLANTED = {
    "place_kept": (_a_place_is_kept, "append", "gone"),
    "cut_between_two": (_cut_between_two, "backup", "dropped"),
    "cancelled_commit": (_commits_are_cancelled, "wait", "dropped"),
}
# The two lengths are coprime: every kind meets every way, and neighbours differ in both.
CASES = [
    (KINDS[number % len(KINDS)], WAYS[number % len(WAYS)])
    for number in range(len(KINDS) * len(WAYS))
]


def run(run: Run) -> None:
    """Disturb one kind of request in one way, at every place; the short form takes some places."""
    usual: dict[str, Undisturbed] = {}
    cases, plant = CASES, nullcontext
    if run.planted:
        plant, name, way = PLANTED[run.planted]
        cases = [(kind, way) for kind in KINDS if kind.name == name]
    for number in run.rounds():
        kind, way = cases[number % len(cases)]
        with plant():
            if kind.name not in usual:
                usual[kind.name] = Attempt(kind, way, None).carry_out(None)
            known = usual[kind.name]
            places = range(1, known.steps + 1)
            some = places if run.judged or run.planted else run.chance.sample(places, PLACES)
            for step in some:
                Attempt(kind, way, step).carry_out(known)
                run.add("awaits")


CAMPAIGN = Campaign(
    "awaits",
    "clients that go, a daemon that is stopped, requests that are cancelled, at every await",
    "kinds of requests in one way each",
    run,
    short=6,
    long=len(CASES),
    planted=dict.fromkeys(PLANTED, 1),
)
