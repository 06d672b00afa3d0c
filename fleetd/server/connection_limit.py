"""Connection limit, with idle eviction: who has a connection, and who gives one up.

Somebody who connects and says nothing may stay for as long as he likes, until the place is wanted.
"""

import contextlib
import logging
import select
from typing import Protocol

import trio

log = logging.getLogger(__name__)

# Nobody gives up a place sooner: what he has to say may be on its way.
REST_S = 0.1
# What has come is read at once, unless the daemon is late; who sends junk always has sent some.
UNREAD_S = 1.0
_TELL_S = 60.0


class Evictable(Protocol):
    """A connection, as far as its place is concerned."""

    heard: bool
    """Whether a request of the client was ever answered."""

    @property
    def socket(self) -> trio.socket.SocketType:
        """Return the client's socket."""

    @property
    def idle_since(self) -> float | None:
        """Return since when nothing is done for the client, None while something is."""

    def evict(self) -> None:
        """Close the connection."""

    def drain(self) -> None:
        """Close the connection as soon as nothing is in flight, and refuse what comes."""


class ConnectionLimit:
    """So many places, and who has them."""

    def __init__(self, count: int) -> None:
        self.connections: set[Evictable] = set()
        self._count = count
        self._free = trio.Semaphore(count)
        self._evicted: set[Evictable] = set()
        self._told = float("-inf")

    async def take(self, listener: trio.socket.SocketType) -> None:
        """Wait for a place, and have one vacated when somebody wants it."""
        try:
            self._free.acquire_nowait()
        except trio.WouldBlock:
            # Nobody has to leave for nobody.
            await trio.lowlevel.wait_readable(listener.fileno())
            await self._evict_one()

    def release(self) -> None:
        """Give a place to the next in line."""
        self._free.release()

    def enter(self, connection: Evictable) -> None:
        """Note who has a place."""
        self.connections.add(connection)

    def leave(self, connection: Evictable) -> None:
        """Note who has none any more."""
        self.connections.discard(connection)
        self._evicted.discard(connection)

    async def _evict_one(self) -> None:
        while True:
            # Asked anew each time: meanwhile somebody may have left by himself.
            with contextlib.suppress(trio.WouldBlock):
                return self._free.acquire_nowait()
            if not self._evicted and (found := self._longest_idle()):
                self._evicted.add(found)
                found.evict()
                self._tell()
            with trio.move_on_after(REST_S / 4):
                return await self._free.acquire()

    def _longest_idle(self) -> Evictable | None:
        """Return who rests longest; those who never said anything come first.

        As long as one of these may have to leave soon, nobody who was heard has to.
        """
        idle = [each for each in self.connections if each.idle_since is not None]
        silent = [each for each in idle if not each.heard]
        found = min(silent or idle, key=_since, default=None)
        return found if found and _may_be_evicted(found) else None

    def _tell(self) -> None:
        if trio.current_time() - self._told >= _TELL_S:
            self._told = trio.current_time()
            log.warning(
                "All %d connections are taken; those that rest longest are closed for new ones",
                self._count,
            )


def _since(connection: Evictable) -> float:
    since = connection.idle_since
    return float("inf") if since is None else since


def _may_be_evicted(connection: Evictable) -> bool:
    rest = trio.current_time() - _since(connection)
    return rest >= UNREAD_S or (rest >= REST_S and not _has_sent(connection.socket))


def _has_sent(sock: trio.socket.SocketType) -> bool:
    """Whether something has come that was not read yet."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
