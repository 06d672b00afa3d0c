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
    def resting_since(self) -> float | None:
        """Return since when nothing is done for the client, None while something is."""

    def give_way(self) -> None:
        """Close the connection."""

    def drain(self) -> None:
        """Close the connection as soon as nothing is in flight, and refuse what comes."""


class ConnectionLimit:
    """So many places, and who has them."""

    def __init__(self, count: int) -> None:
        self.occupants: set[Evictable] = set()
        self._count = count
        self._free = trio.Semaphore(count)
        self._leaving: set[Evictable] = set()
        self._told = float("-inf")

    async def take(self, listener: trio.socket.SocketType) -> None:
        """Wait for a place, and have one vacated when somebody wants it."""
        try:
            self._free.acquire_nowait()
        except trio.WouldBlock:
            # Nobody has to leave for nobody.
            await trio.lowlevel.wait_readable(listener.fileno())
            await self._vacated()

    def release(self) -> None:
        """Give a place to the next in line."""
        self._free.release()

    def enter(self, occupant: Evictable) -> None:
        """Note who has a place."""
        self.occupants.add(occupant)

    def leave(self, occupant: Evictable) -> None:
        """Note who has none any more."""
        self.occupants.discard(occupant)
        self._leaving.discard(occupant)

    async def _vacated(self) -> None:
        while True:
            # Asked anew each time: meanwhile somebody may have left by himself.
            with contextlib.suppress(trio.WouldBlock):
                return self._free.acquire_nowait()
            if not self._leaving and (found := self._most_dispensable()):
                self._leaving.add(found)
                found.give_way()
                self._tell()
            with trio.move_on_after(REST_S / 4):
                return await self._free.acquire()

    def _most_dispensable(self) -> Evictable | None:
        """Return who rests longest; those who never said anything come first.

        As long as one of these may have to leave soon, nobody who was heard has to.
        """
        resting = [each for each in self.occupants if each.resting_since is not None]
        silent = [each for each in resting if not each.heard]
        found = min(silent or resting, key=_since, default=None)
        return found if found and _rested(found) else None

    def _tell(self) -> None:
        if trio.current_time() - self._told >= _TELL_S:
            self._told = trio.current_time()
            log.warning(
                "All %d connections are taken; those that rest longest are closed for new ones",
                self._count,
            )


def _since(occupant: Evictable) -> float:
    since = occupant.resting_since
    return float("inf") if since is None else since


def _rested(occupant: Evictable) -> bool:
    rest = trio.current_time() - _since(occupant)
    return rest >= UNREAD_S or (rest >= REST_S and not _has_sent(occupant.socket))


def _has_sent(sock: trio.socket.SocketType) -> bool:
    """Whether something has come that was not read yet."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
