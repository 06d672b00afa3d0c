"""The client goes, the daemon is told to stop, or a request is cancelled: at every single await.

One program holds the server, the engine and the client, under virtual time, so that what is
disturbed after its n-th step is disturbed at the same place every time.
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
# At how many places of one kind the short form looks.
PLACES = 1


@contextmanager
def _a_place_is_kept() -> Iterator[None]:
    """Serve a client and do not give its place to the next."""

    with instead(ConnectionLimit, "release", lambda _: None):
        yield


@contextmanager
def _cut_between_two() -> Iterator[None]:
    """Let a client that goes end an operation between its work and the note that it is done."""

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
    """Let whoever is cancelled while its commit is under way not learn of it."""

    async def submit(lane: WorkerThread, fn: Callable[..., Any], _kind: Any) -> Any:
        job = Job(fn, None)
        lane._work([job])
        lane._finished([job])
        await trio.lowlevel.checkpoint()
        return job.result.unwrap()

    with instead(WorkerThread, "submit", submit):
        yield


# What is planted, and the case that it is looked for in: it is not worth the others' time.
PLANTED = {
    "place_kept": (_a_place_is_kept, "append", "gone"),
    "cut_between_two": (_cut_between_two, "backup", "dropped"),
    "cancelled_commit": (_commits_are_cancelled, "wait", "dropped"),
}
# Both numbers have no common divisor: every kind meets every way, and neighbours differ in both.
CASES = [
    (KINDS[number % len(KINDS)], WAYS[number % len(WAYS)])
    for number in range(len(KINDS) * len(WAYS))
]


def run(run: Run) -> None:
    """Disturb one kind of request in one way, at every place, or in the short form at some."""
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
