"""CPU worker: a thread for long computations, so that the event loop serves others meanwhile."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

T = TypeVar("T")
# From this size on, scanning a text takes longer than a hop to a thread and back.
LONG_BYTES = 32_768
# How long a thread keeps the interpreter while others wait for it, in seconds. A small request
# releases it some twenty times, and SQLite's writer with each statement. At Python's own 5 ms, a
# small request took 75 ms while a long text was scanned.
SWITCH_S = 0.000_1
# The same for a store on a server, whose writer computes for ms: with 0.1 ms, a hook took a quarter
# more CPU when 16 arrived together.
SHARED_SWITCH_S = 0.001


class _ShortTurns:
    """Makes threads switch after ``SWITCH_S``, as long as any thread is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._usual = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, SWITCH_S))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._usual)


_short_turns = _ShortTurns()


def in_short_turns(work: Callable[[], T]) -> T:
    """Do a piece of work on this thread, and let the others switch with it often."""
    with _short_turns:
        return work()


class CpuWorker:
    """Runs long computations one after the other on a thread, so that others are served meanwhile.

    Threads share one interpreter, so this is no faster. With ``inline``, work runs in the calling
    task, for virtual time.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        # Two concurrent computations would leave the others even less of the interpreter.
        self._one = trio.CapacityLimiter(1)

    async def run(
        self, work: Callable[[], T], size: int, behind: trio.StrictFIFOLock | None = None
    ) -> T:
        """Do a piece of work on ``size`` bytes, immediately when these are few.

        Pieces with the same lock ``behind`` run in their order, long or short. Work that is
        cancelled before it begins is not done; once begun, it is waited for.
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
        return await trio.to_thread.run_sync(partial(in_short_turns, work), limiter=self._one)
