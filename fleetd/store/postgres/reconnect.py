"""Notices that the server is gone, and finds it again.

Connecting takes a thread, as it takes as long as a network likes.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import psycopg
import trio

from ..api import Availability, Away
from .commit_signal import CommitSignal
from .connection import ServerConnection
from .errors import ServerAway, ServerBehind, as_away
from .server import PostgresServer

T = TypeVar("T")
log = logging.getLogger("fleetd")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0


async def on_abandonable_thread(work: Callable[[], T]) -> T:
    """Run ``work`` on a thread; cancelled, it goes on there and nobody hears how it ended."""
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


class Reconnector:
    """Tells ``availability`` whether the server is there, and sees to it that it is again."""

    def __init__(
        self, availability: Availability, server: PostgresServer, signal: CommitSignal
    ) -> None:
        self._where = server.address
        self.availability = availability
        self._server = server
        self._signal = signal
        self._attending: trio.CancelScope | None = None
        self._closed = threading.Event()
        self._handing = threading.Lock()
        self._connected: ServerConnection | None = None
        """What a thread has connected and nobody has taken yet."""

    def message(self, gone: ServerAway) -> str:
        """Return the sentence that names the server, the step and the message."""
        return f"{self._where.name} cannot be used ({gone.step}): {gone.message}"

    def describe(self, gone: ServerAway) -> Away:
        """Return the same as the store tells it, from now on."""
        return Away(self._server.clock.now_ms(), gone.step, self.message(gone), gone.final)

    def lose(self, gone: ServerAway) -> None:
        """Note that the server is away, and look for it; called on the trio thread."""
        if self.availability.away is None:
            log.warning("%s. fleetd tries again until it is back", self.message(gone))
        self.availability.lose(self.describe(gone))
        if self._attending is not None:
            self._attending.cancel()

    async def run(self, bring: Callable[[], None], back: Callable[[], None]) -> None:
        """Listen while the server is there, look for it while it is away; until cancelled.

        ``bring`` gives the threads new connections, on a thread; ``back`` is called before
        others may use them.
        """
        pauses = _pauses()
        in_vain = 0
        try:
            while True:
                begun = trio.current_time()
                try:
                    await self._once(bring, back)
                except ServerAway as gone:
                    in_vain += 1
                    # Others find it at work: a connection may fail alone, and one that is ended
                    # is made again before anybody hears of it.
                    if (
                        in_vain > 1
                        or gone.final
                        or isinstance(gone, ServerBehind)
                        or self.availability.away
                    ):
                        self.lose(gone)
                except psycopg.Error as error:
                    in_vain = 0
                    log.info(
                        "%s disconnected (%s)",
                        self._where.name,
                        as_away(error, "listening").message,
                    )
                else:
                    in_vain = 0
                if trio.current_time() - begun > _LONGEST_PAUSE_S:
                    pauses = _pauses()
                else:
                    await trio.sleep(next(pauses))
        finally:
            self._close_untaken()

    def _close_untaken(self) -> None:
        """Take no more connections, and close one that came when nobody waited for it any more."""
        with self._handing:
            self._closed.set()
            untaken, self._connected = self._connected, None
        if untaken is not None:
            untaken.close()

    async def _once(self, bring: Callable[[], None], back: Callable[[], None]) -> None:
        connect = partial(self._connect, bring if self.availability.away else None)
        listener = _ListenerConnection(await on_abandonable_thread(connect))
        self._connected = None
        try:
            if self.availability.away is not None:
                back()
                log.warning("%s is back", self._where.name)
                self.availability.regain()
            self._signal.on_commits()  # of what was committed meanwhile
            with trio.CancelScope() as self._attending:
                await self._signal.attend(listener.connection, listener.on_thread)
        finally:
            self._attending = None
            listener.leave()

    def _connect(self, bring: Callable[[], None] | None) -> ServerConnection:
        """Connect, on a thread that nobody may be waiting for any more."""
        if bring is not None:
            bring()  # the writer comes first: the schema may have to be made
        connection = self._server.open("listener")
        try:
            self._signal.take(connection)
            with self._handing:
                if self._closed.is_set():
                    raise ServerAway("connecting", "fleetd stops")
                self._connected = connection
        except psycopg.Error as error:
            connection.close()
            raise as_away(error, "connecting") from error
        except BaseException:
            connection.close()
            raise
        return connection


class _ListenerConnection:
    """A connection that one thread at a time works on, and that closes when none does any more."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self._at_work = threading.Lock()
        self._left = False

    async def on_thread(self, work: Callable[[ServerConnection], T]) -> T:
        """Work on a thread, which goes on there when nobody waits for it any more."""
        return await on_abandonable_thread(partial(self._work, work))

    def _work(self, work: Callable[[ServerConnection], T]) -> T:
        try:
            with self._at_work:
                if self._left:
                    raise ServerAway("working", "fleetd stops")
                return work(self.connection)
        finally:
            if self._left:
                self.connection.close()

    def leave(self) -> None:
        """Close the connection, unless a thread still waits on it: then it closes with that."""
        self._left = True
        if self._at_work.acquire(blocking=False):
            self.connection.close()
            self._at_work.release()


def _pauses() -> Iterator[float]:
    """Yield growing pauses in seconds; those of many machines do not fall together."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause * random.uniform(0.7, 1.3)  # noqa: S311 - nobody has to be kept from guessing
        pause = min(pause * 2, _LONGEST_PAUSE_S)
