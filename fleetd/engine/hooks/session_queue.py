"""Session queue: hooks of one session are served in order; also how long hooks took."""

from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any

import trio

TIMED = 1_000
REMEMBERED = 1_000
# Hooks that are recorded at once. All that come together would be in the writer's queue together,
# and whoever asks for something else would wait for all of them.
AT_ONCE = 2


class SessionQueue:
    """Serves those who come in the same name one after the other, and times them all."""

    def __init__(self) -> None:
        self.spool = trio.StrictFIFOLock()
        """Held by whoever takes in what waits in the spool."""
        self.recording = trio.Semaphore(AT_ONCE)
        """Held while a hook is recorded, and never while it waits for files or for Git.

        What is slow for one session must not keep the hooks of all others waiting.
        """
        self._turns: dict[Hashable, tuple[trio.StrictFIFOLock, list[None]]] = {}
        self._complaints: dict[str, None] = {}
        self._latencies_us: dict[str, deque[int]] = {}

    @asynccontextmanager
    async def turn(self, name: Hashable) -> AsyncIterator[None]:
        """Wait for the turn of a name: hooks of one session run side by side, and order matters."""
        lock, waiting = self._turns.setdefault(name, (trio.StrictFIFOLock(), []))
        waiting.append(None)
        try:
            async with lock:
                yield
        finally:
            waiting.pop()
            if not waiting:
                del self._turns[name]

    def first_time(self, complaint: str) -> bool:
        """Whether a complaint is new: what a vendor changed is said once, not with every call.

        Of very many different ones that which was not heard for longest is forgotten.
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
