"""Listens for the commits of other daemons, notices that the server is gone, and reconnects.

Whoever may connect to the database may notify, and say what they like: a notification is a bell
and no more. Connecting takes a thread, as it takes as long as a network likes.
"""

import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import psycopg
import trio

from ..api import Availability, Away
from .batch import CHANNEL
from .connection import ServerConnection
from .errors import ServerAway, ServerBehind, as_away
from .server import PostgresServer

_NAME = f"SELECT {CHANNEL}".encode()


def listen(connection: ServerConnection, heard: Callable[[int], None]) -> None:
    """Ask to be told of every commit, and by which process at the server.

    ``heard`` is told what arrives while something else is asked.
    """
    row = connection.execute(_NAME).fetchone()
    connection.add_notify_handler(lambda notice: heard(notice.pid))
    connection.execute(f'LISTEN "{row[0] if row else ""}"'.encode())


class NotificationListener:
    """Waits for what the server says by itself on a connection that listens."""

    def __init__(self, connection: ServerConnection, heard: Callable[[int], None]) -> None:
        self._connection = connection
        self._heard = heard
        # A descriptor of our own: libpq closes its own when the server goes, and trio must not be
        # waiting for a number that means another file by then.
        self._descriptor = os.dup(connection.fileno())

    async def wait(self) -> None:
        """Wait until something was said; raises psycopg.Error once the server is gone."""
        await trio.lowlevel.wait_readable(self._descriptor)
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        while (notice := pgconn.notifies()) is not None:
            self._heard(notice.be_pid)
        if pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the server closed the connection")

    def close(self) -> None:
        """Let go of the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


T = TypeVar("T")
log = logging.getLogger("fleetd")
# The fleet's clock is looked at as often, and a server that went without a word is missed.
HEARTBEAT_S = 10.0
# How often the server is asked how far the log has come, while others commit.
_FOLLOW_S = 0.25
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0


async def on_abandonable_thread(work: Callable[[], T]) -> T:
    """Run ``work`` on a thread; cancelled, it goes on there and nobody hears how it ended."""
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


class Reconnector:
    """Tells ``availability`` whether the server is there, and sees to it that it is again.

    ``heard`` is called on the trio thread when anybody has committed.
    """

    def __init__(
        self, availability: Availability, server: PostgresServer, heard: Callable[[], None]
    ) -> None:
        self._where = server.address
        self.availability = availability
        self._server = server
        self._heard = heard
        self._attending: trio.CancelScope | None = None
        self._closed = threading.Event()
        self._handing = threading.Lock()
        self._connected: ServerConnection | None = None
        """What a thread has connected and nobody has taken yet."""
        self._at_work = threading.Lock()
        self._left: ServerConnection | None = None
        self._said = False

    def message(self, gone: ServerAway) -> str:
        """Return the sentence that names the server, the step and what was said."""
        return f"{self._where.name} cannot be used ({gone.step}): {gone.said}"

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
                        "%s disconnected (%s)", self._where.name, as_away(error, "listening").said
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
        connection = await on_abandonable_thread(connect)
        self._connected = None
        try:
            if self.availability.away is not None:
                back()
                log.warning("%s is back", self._where.name)
                self.availability.regain()
            self._heard()  # what was committed before we listened
            await self._attend(connection)
        finally:
            self._closing(connection)

    def _connect(self, bring: Callable[[], None] | None) -> ServerConnection:
        """Connect, on a thread that nobody may be waiting for any more."""
        if bring is not None:
            bring()  # the writer comes first: the schema may have to be made
        connection = self._server.open("listener")
        try:
            listen(connection, self._overheard)
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

    async def _attend(self, connection: ServerConnection) -> None:
        ear = NotificationListener(connection, self._overheard)
        beat, soon = trio.current_time() + HEARTBEAT_S, 0.0
        rung = False
        try:
            with trio.CancelScope() as self._attending:
                while True:
                    await self._hear(ear, min(beat, soon) if rung else beat, soon)
                    soon = trio.current_time() + _FOLLOW_S
                    due = trio.current_time() >= beat
                    ask = self._server.beat if due else self._server.lost_commits.follow
                    await on_abandonable_thread(partial(self._look, connection, ask))
                    if due:
                        beat = trio.current_time() + HEARTBEAT_S
                    rung = self._pass_on()
        finally:
            self._attending = None
            ear.close()

    async def _hear(self, ear: NotificationListener, until: float, soon: float) -> None:
        """Ring for what others commit until it is time to look at the server.

        That is soon once anybody has committed: what is read then must not be unknown here when a
        server without it takes the place of this one.
        """
        with trio.CancelScope(deadline=until) as scope:
            while True:
                await ear.wait()
                if self._pass_on():
                    scope.deadline = min(scope.deadline, max(soon, trio.current_time()))

    def _look(self, connection: ServerConnection, ask: Callable[[ServerConnection], None]) -> None:
        try:
            with self._at_work:
                if self._left is not connection:
                    ask(connection)
        finally:
            if self._left is connection:
                connection.close()

    def _closing(self, connection: ServerConnection) -> None:
        """Close a connection, unless a thread still waits on it: then it closes when that ends."""
        self._left = connection
        if self._at_work.acquire(blocking=False):
            connection.close()
            self._at_work.release()

    def _overheard(self, pid: int) -> None:
        """Note that others committed, on whatever thread; our writer has rung the bell itself."""
        if pid != self._server.writer_pid:
            self._said = True

    def _pass_on(self) -> bool:
        said, self._said = self._said, False
        if said:
            self._heard()
        return said


def _pauses() -> Iterator[float]:
    """Yield growing pauses in seconds; those of many machines do not fall together."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause * random.uniform(0.7, 1.3)  # noqa: S311 - nobody has to be kept from guessing
        pause = min(pause * 2, _LONGEST_PAUSE_S)
