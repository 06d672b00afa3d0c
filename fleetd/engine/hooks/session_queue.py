"""Session queue: hooks of one session are served in order; also how long hooks took."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

T = TypeVar("T")

TIMED = 1_000
REMEMBERED = 1_000
# How long the hooks of one batch may keep the writer busy. Otherwise all hooks that arrive together
# would be in its queue together, and other requests would wait for all of them.
BATCH_US = 3_000
AT_LEAST, AT_MOST = 2, 16
# On a server, the hooks of a batch share the fleet's turn, a round trip and a sync, which take
# longer.
SHARED_AT_LEAST = 8
# How much one hook changes the average. The writer shares the interpreter: a slower hook may only
# have waited for it.
_FASTER, _SLOWER = 1 / 4, 1 / 64


class RecordingLimit:
    """Admits hooks while those recorded together keep the writer busy for ``BATCH_US``.

    Waiting hooks enter one after the other, in their order. The time of a hook is estimated from
    earlier ones, so the first few enter ``at_least`` at a time.
    """

    def __init__(self, at_least: int) -> None:
        self._at_least = at_least
        self._waiting = trio.lowlevel.ParkingLot()
        self._inside = 0
        self._hook_us = BATCH_US / at_least

    @property
    def most(self) -> int:
        """Return how many hooks may be recorded together now."""
        return max(self._at_least, min(AT_MOST, int(BATCH_US / self._hook_us)))

    def took(self, hook_us: float) -> None:
        """Note how long the writer was busy with a hook, in microseconds; on any thread."""
        share = _FASTER if hook_us < self._hook_us else _SLOWER
        self._hook_us += (max(hook_us, 1) - self._hook_us) * share

    async def __aenter__(self) -> None:
        """Wait for the turn, after all hooks that already wait."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._waiting or self._inside >= self.most:
            await self._waiting.park()  # the hook that unparks it counts it
        else:
            self._inside += 1

    async def __aexit__(self, *_: object) -> None:
        self._inside -= 1
        while self._waiting and self._inside < self.most:
            self._waiting.unpark()
            self._inside += 1


async def _acquire(lock: trio.StrictFIFOLock) -> None:
    """Take a lock; one that is free costs no round of the event loop."""
    if lock.locked():
        await lock.acquire()
    else:
        lock.acquire_nowait()


class SharedLookups:
    """Makes one lookup for all callers that asked for the same before it began.

    A lookup in progress may have missed a later change: callers that arrive meanwhile share the
    next one. The callers continue one by one, so that other tasks run in between.
    """

    def __init__(self) -> None:
        self._looking: dict[Hashable, tuple[trio.StrictFIFOLock, dict[int, list[Any]]]] = {}

    async def ask(self, name: Hashable, look: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a lookup that begins from now on, or raise its error.

        After an error, the next waiting caller makes another lookup.
        """
        lock, waiting = self._looking.setdefault(name, (trio.StrictFIFOLock(), {}))
        found: list[T] = []
        waiting[id(found)] = found
        try:
            await _acquire(lock)
            try:
                if not found:
                    served = [each for each in waiting.values() if not each]
                    seen = await look()
                    for each in served:
                        each.append(seen)
            finally:
                lock.release()
        finally:
            del waiting[id(found)]
            if not waiting:
                del self._looking[name]
        return found[0]


class SessionQueue:
    """Serves the hooks of one session one after the other, and times all hooks."""

    def __init__(self, *, shared: bool) -> None:
        self.spool = trio.StrictFIFOLock()
        """Held while the spool is recorded."""
        self.recording = RecordingLimit(SHARED_AT_LEAST if shared else AT_LEAST)
        """Held while a hook is recorded, and never while it waits for files or for Git.

        A slow hook of one session must not delay the hooks of all others.
        """
        self.lookups = SharedLookups()
        """Lookups of hooks in the file system."""
        self._turns: dict[Hashable, tuple[trio.StrictFIFOLock, list[None]]] = {}
        self._complaints: dict[str, None] = {}
        self._latencies_us: dict[str, deque[int]] = {}

    @asynccontextmanager
    async def turn(self, name: Hashable) -> AsyncIterator[None]:
        """Wait for the turn of a name: hooks of one session run in parallel, and order matters."""
        lock, waiting = self._turns.setdefault(name, (trio.StrictFIFOLock(), []))
        waiting.append(None)
        try:
            await _acquire(lock)
            try:
                yield
            finally:
                lock.release()
        finally:
            waiting.pop()
            if not waiting:
                del self._turns[name]

    def first_time(self, complaint: str) -> bool:
        """Return whether a complaint is new: each is logged once, not with every call.

        Beyond a limit, the complaint that was repeated longest ago is forgotten.
        """
        known = complaint in self._complaints
        self._complaints.pop(complaint, None)
        self._complaints[complaint] = None
        if len(self._complaints) > REMEMBERED:
            del self._complaints[next(iter(self._complaints))]
        return not known

    def timed(self, harness: str, latency_us: int) -> None:
        """Note how long a hook took, from its client's start to the reply, in microseconds."""
        self._latencies_us.setdefault(harness, deque(maxlen=TIMED)).append(latency_us)

    def timing(self, harness: str) -> dict[str, Any]:
        """Return the median and 95th percentile of the newest thousand hooks of a harness."""
        times = sorted(self._latencies_us.get(harness, ()))
        if not times:
            return {"p50_ms": None, "p95_ms": None}
        median, late = times[len(times) // 2], times[len(times) * 19 // 20]
        return {"p50_ms": median / 1_000, "p95_ms": late / 1_000}
