"""Daemons with a defect that only a kill reveals; nothing else imports this.

``python -c "from tests.chaos import injected_bugs as bugs; bugs.serve('NAME')"`` runs one.
"""

import sys
import threading
import time
from typing import Any

import msgspec
import trio

from fleetd import __main__
from fleetd.domain.core import idempotency
from fleetd.domain.core.registry import REGISTERED
from fleetd.domain.recovery import restore as recovery
from fleetd.engine import engine
from fleetd.engine.files import outbox
from fleetd.engine.services import recovery as service
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.store import worker_thread
from fleetd.store.sqlite import group_commit
from fleetd.store.worker_thread import Job
from tests.chaos.plant import plant

# How long the daemon is in the wrong state, so that a kill can hit it there.
WINDOW_S = 0.02


def serve(defect: str) -> None:
    """Plant a defect and run the daemon."""
    DEFECTS[defect]()
    sys.exit(__main__.main([]))


def answer(restore: Any) -> None:
    """Replace the function that answers recoveries."""
    known = REGISTERED[RecoveryRestore]
    REGISTERED[RecoveryRestore] = msgspec.structs.replace(known, answer=restore)


def reply_before_commit() -> None:
    """Reply to clients, and commit a moment later."""
    told: set[int] = set()
    lanes: list[worker_thread.WorkerThread] = []
    committing = threading.Lock()

    def later(self: group_commit.SqliteReader, jobs: list[Job]) -> None:
        with committing:  # nobody notices who only asks
            read(self, jobs)

    def remember(self: worker_thread.WorkerThread) -> None:
        if "writ" in str(getattr(self._thread, "name", "")):
            lanes.append(self)
        run(self)

    def once(self: worker_thread.WorkerThread, batch: list[Job]) -> None:
        report(self, [job for job in batch if id(job) not in told])
        told.difference_update(id(job) for job in batch)

    def together(self: group_commit.SqliteCommitter, jobs: list[Job]) -> bool:
        done: list[tuple[Job, Any, int]] = []
        self._connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            self._one(job, done)
        for job, value, _ in done:
            job.succeed(value)
        told.update(id(job) for job in jobs)
        with committing:
            report(lanes[0], jobs)
            time.sleep(WINDOW_S)
            self._connection.execute("COMMIT")
        return True

    read = plant(group_commit.SqliteReader, "run", later)
    plant(worker_thread.WorkerThread, "_may_run_here", lambda *_: False)
    run = plant(worker_thread.WorkerThread, "_run", remember)
    report = plant(worker_thread.WorkerThread, "_report", once)
    plant(group_commit.SqliteCommitter, "_together", together)


def key_apart() -> None:
    """Store the answer of a request in a later transaction than its changes."""

    async def apart(self: engine.Engine, rule: Any, request: Any, *more: Any, **named: Any) -> Any:
        result = await run(self, rule, request, *more, **named)
        if getattr(request, "idempotency_key", None) is not None:
            await trio.sleep(5 * WINDOW_S)
            await self.write(idempotency.remember, request, result)
        return result

    plant(engine, "remember", lambda *_: None)
    run = plant(engine.Engine, "run", apart)


def no_catching_up() -> None:
    """Do not write the files that were pending when the daemon was killed."""

    async def nothing(self: outbox.Outbox) -> None:
        return

    plant(outbox.Outbox, "catch_up", nothing)


def no_key() -> None:
    """Recover again, whatever key a recovery has."""
    restore = service.restore

    async def anew(self: engine.Engine, request: Any, caller: Any) -> Any:
        bare = msgspec.structs.replace(request, idempotency_key=None)
        return await restore(self, bare, caller)

    answer(anew)


def told_twice() -> None:
    """Append the events of every recovery twice."""

    def twice(*given: Any) -> None:
        announce(*given)
        announce(*given)

    announce = plant(recovery, "_announce", twice)


def told_apart() -> None:
    """Append the event of a recovery in a later transaction than its changes."""
    restore = service.restore
    untold: list[tuple[Any, ...]] = []

    async def apart(self: engine.Engine, request: Any, caller: Any) -> Any:
        result = await restore(self, request, caller)
        await trio.sleep(5 * WINDOW_S)
        while untold:
            case, *more = untold.pop()
            await self.store.write(
                lambda tx, case=case, more=more: announce(
                    msgspec.structs.replace(case, tx=tx), *more
                )
            )
        return result

    def later(case: Any, *more: Any) -> None:
        if not case.request.dry_run:
            untold.append((case, *more))

    announce = plant(recovery, "_announce", later)
    answer(apart)


DEFECTS = {
    "reply-before-commit": reply_before_commit,
    "key-in-another-transaction": key_apart,
    "no-catching-up": no_catching_up,
    "no-key": no_key,
    "told-twice": told_twice,
    "told-in-another-transaction": told_apart,
}
