"""What computes for long does so beside the loop, one piece after the other; must not know what.

Threads share one interpreter, so this is no quicker; but whoever waits for something else gets his
turn in between.
"""

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")
# From here on, in bytes, looking through a text takes longer than going to a thread and back.
LONG = 32_768


class CpuWorker:
    """A thread for long computations; ``inline`` has them made on the spot, for virtual time."""

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        # Two at once would each have half of what is left to the others.
        self._one = trio.CapacityLimiter(1)

    async def run(
        self, work: Callable[[], T], size: int, behind: trio.StrictFIFOLock | None = None
    ) -> T:
        """Do a piece of work on ``size`` bytes, at once when these are few.

        Pieces that name the same lock to stay ``behind`` are done in their order, long or short.
        Cancelled before it has begun, it is not done; once begun, it is waited for.
        """
        if behind is None or (size < LONG and not behind.locked()):
            return await self._run(work, size)
        async with behind:
            return await self._run(work, size)

    async def _run(self, work: Callable[[], T], size: int) -> T:
        if size < LONG:
            return work()
        if self._inline:
            await trio.lowlevel.checkpoint()
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._one)
