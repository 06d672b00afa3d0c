"""CPU worker: a thread for long computations, so that the event loop serves others meanwhile."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

T = TypeVar("T")
# From here on, looking through a text takes longer than going to a thread and back.
LONG_BYTES = 32_768
# How long a thread keeps the interpreter while others wait for it, in seconds. A small request lets
# go of it some twenty times, and SQLite's writer with each statement: at Python's own 5 ms, a small
# request took 75 ms while a long text was looked through.
SWITCH_S = 0.000_1
# The same where the store is on a server, whose writer computes for ms: with 0.1 ms, a hook took a
# quarter more CPU when 16 came at once.
SHARED_SWITCH_S = 0.001


def _sharing(work: Callable[[], T]) -> T:
    """Do a piece of work, and let the other threads change places with it more often."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, SWITCH_S))
    try:
        return work()
    finally:
        sys.setswitchinterval(usual)


class CpuWorker:
    """Runs long computations one after the other on a thread, so that others are served meanwhile.

    Threads share one interpreter, so this is no quicker. ``inline`` computes on the spot, for
    virtual time.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        # Two at once would leave the others even less of the interpreter.
        self._one = trio.CapacityLimiter(1)

    async def run(
        self, work: Callable[[], T], size: int, behind: trio.StrictFIFOLock | None = None
    ) -> T:
        """Do a piece of work on ``size`` bytes, at once when these are few.

        Pieces that name the same lock to stay ``behind`` are done in their order, long or short.
        Cancelled before it has begun, it is not done; once begun, it is waited for.
        """
        if behind is None or (size < LONG_BYTES and not behind.locked()):
            return await self._run(work, size)
        async with behind:
            return await self._run(work, size)

    async def _run(self, work: Callable[[], T], size: int) -> T:
        if size < LONG_BYTES:
            return work()
        if self._inline:
            await trio.lowlevel.checkpoint()
            return work()
        return await trio.to_thread.run_sync(partial(_sharing, work), limiter=self._one)
