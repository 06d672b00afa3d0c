"""Stores on a real server, and what tests write into them and read back."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import trio

from fleetd.domain.core.tx import Effect, Ring, Tx
from fleetd.store.api import Followers, Optimistic
from fleetd.store.postgres.batch import LOCK
from fleetd.store.postgres.connection import connect
from fleetd.store.postgres.store import PostgresStore

PATIENCE_S = 30


class Opened:
    """A store that runs, and what it called back with."""

    def __init__(self, url: str, directory: Path, *, optimistic: bool = False) -> None:
        self.optimistic = optimistic
        """Whether events are appended before the turn, all in one message."""
        self.effects: list[Effect] = []
        self.news = 0
        self._rung = trio.Event()
        self.followers = Followers()
        self.store = PostgresStore(url, directory, self.effects.extend, self._heard, self.followers)

    def _heard(self) -> None:
        self.news += 1
        self._rung.set()
        self._rung = trio.Event()

    async def hears(self, times: int) -> None:
        """Wait until the bell has rung so often."""
        with trio.fail_after(PATIENCE_S), self.followers.waiting():
            while self.news < times:
                await self._rung.wait()

    async def listens(self, *, listens: bool = True) -> None:
        """Wait until the store listens for the commits of others, or does not."""
        with trio.fail_after(PATIENCE_S):
            while self.store._signal._listening is not listens:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.01)

    async def event(self, kind: str = "said") -> int:
        """Append an event, and return its number."""
        rule = appends(kind)
        return await self.store.write(Optimistic(rule) if self.optimistic else rule)

    async def kinds(self) -> list[str]:
        """Return what the events are called, in order."""
        return await self.store.read(kinds)

    async def until(self, *, away: bool) -> None:
        """Wait until the store is away, or there."""
        with trio.fail_after(PATIENCE_S):
            await (self.store.availability.down if away else self.store.availability.up).wait()


def appends(kind: str) -> Callable[[Tx], int]:
    """Return a rule that appends an event."""

    def rule(tx: Tx) -> int:
        tx.after_commit(Ring())
        seq: int = tx.value(
            "INSERT INTO events (type, stream, timestamp, activity, data_json)"
            " VALUES (:kind, 'fleet', '', 0, '{}') RETURNING seq",
            kind=kind,
        )
        return seq

    return rule


def kinds(tx: Tx) -> list[str]:
    return [row["type"] for row in tx.all("SELECT type FROM events ORDER BY seq")]


@contextmanager
def turn_taken(url: str) -> Iterator[None]:
    """Keep the fleet's turn while the block runs."""
    with closing(connect(url, "holder")) as holder:
        holder.execute("SET idle_in_transaction_session_timeout = 0")
        holder.execute("BEGIN")
        holder.execute(LOCK.encode())
        yield
        holder.execute("ROLLBACK")  # fails if the server has ended it meanwhile


@asynccontextmanager
async def running(url: str, directory: Path, *, optimistic: bool = False) -> AsyncIterator[Opened]:
    """Open a store and have it listen and reconnect until the block ends."""
    opened = Opened(url, directory, optimistic=optimistic)
    opened.store.start()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened.store.run)
            yield opened
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await opened.store.aclose()
