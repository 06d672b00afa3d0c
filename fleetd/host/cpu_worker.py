"""CPU worker: a thread for long computations, so that the event loop serves others meanwhile."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

T = TypeVar("T")
# From here on, looking through a text takes longer than going to a thread and back.
LONG_BYTES = 32_768
# How long a thread keeps the interpreter while others wait for it, in seconds. The event loop and
# the writer both work on many hooks at once: if they took turns every 0.1 ms, a hook of a shared
# store would take a quarter more CPU.
SWITCH_S = 0.001
# The same while a long text is looked through. A small request lets go of the interpreter some
# twenty times, and waits that long to have it back.
LONG_SWITCH_S = 0.000_1


def _sharing(work: Callable[[], T]) -> T:
    """Do a piece of work, and let the other threads change places with it more often."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, LONG_SWITCH_S))
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
