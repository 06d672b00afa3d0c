"""Daemons with a defect that only somebody notices who kills them; nothing else imports this.

``python -c "from tests.campaigns import misbehaving; misbehaving.serve('NAME')"`` runs one.
"""

import sys
import threading
import time
from typing import Any

import trio

from fleetd import __main__, domain, engine, outbox
from fleetd.store import commit, lane, sqlite
from fleetd.store.lane import Job

# How long the daemon is in the wrong state, so that somebody kills it there.
WINDOW_S = 0.02


def serve(defect: str) -> None:
    """Plant a defect and run the daemon."""
    DEFECTS[defect]()
    sys.exit(__main__.main([]))


def reply_before_commit() -> None:
    """Tell clients that it is done, and commit a moment later."""
    told: set[int] = set()
    lanes: list[lane.Lane] = []
    report, run, read = lane.Lane._report, lane.Lane._run, sqlite.Store._read
    committing = threading.Lock()

    def later(self: sqlite.Store, jobs: list[Job]) -> None:
        with committing:  # nobody notices who only asks
            read(self, jobs)

    def remember(self: lane.Lane) -> None:
        if "writ" in str(getattr(self._thread, "name", "")):
            lanes.append(self)
        run(self)

    def once(self: lane.Lane, batch: list[Job]) -> None:
        report(self, [job for job in batch if id(job) not in told])
        told.difference_update(id(job) for job in batch)

    def together(self: commit.Committer, jobs: list[Job]) -> bool:
        done: list[tuple[Job, Any]] = []
        self._connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            self._one(job, done)
        for job, value in done:
            job.succeed(value)
        told.update(id(job) for job in jobs)
        with committing:
            report(lanes[0], jobs)
            time.sleep(WINDOW_S)
            self._connection.execute("COMMIT")
        return True

    sqlite.Store._read = later  # type: ignore[method-assign]
    lane.Lane._run = remember  # type: ignore[method-assign]
    lane.Lane._report = once  # type: ignore[method-assign]
    commit.Committer._together = together  # type: ignore[method-assign]


def key_apart() -> None:
    """Remember what a request was answered in a transaction after its own."""
    execute, remember = engine.Engine.execute, domain.idempotency.remember

    async def apart(self: engine.Engine, request: Any, *more: Any) -> Any:
        result = await execute(self, request, *more)
        if getattr(request, "idempotency_key", None) is not None:
            await trio.sleep(5 * WINDOW_S)
            ctx = self._context(engine.DAEMON, engine.Facts())
            await self.store.write(lambda tx: remember(tx, ctx, request, result))
        return result

    engine.remember = lambda *_: None  # type: ignore[attr-defined,assignment]
    engine.Engine.execute = apart  # type: ignore[method-assign,assignment]


def no_catching_up() -> None:
    """Leave the files alone that were not written when the daemon was killed."""

    async def nothing(self: outbox.Outbox) -> None:
        return

    outbox.Outbox.catch_up = nothing  # type: ignore[method-assign]


DEFECTS = {
    "reply-before-commit": reply_before_commit,
    "key-in-another-transaction": key_apart,
    "no-catching-up": no_catching_up,
}
