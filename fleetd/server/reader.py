"""Reads lines from a socket, in bounds of size and time."""

import math
import os

import trio

from ..protocol.errors import LimitExceeded
from ..protocol.framing import FrameTooLong, Line, LineDecoder

_CHUNK = 65_536
_LARGE_AT_ONCE = 2


class LargeLineLimit:
    """Room for lines of the hook client that are longer than others may be.

    There is room for few in the whole daemon: text of 16 MiB takes several times that while it is
    read and understood, and every connection could send one.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._room = trio.Semaphore(_LARGE_AT_ONCE)

    async def enter(self) -> float:
        """Wait for room, and return how many seconds that took."""
        begun = trio.current_time()
        await self._room.acquire()
        return trio.current_time() - begun

    def leave(self) -> None:
        """Give the room to the next in line."""
        self._room.release()


class LineReader:
    """Cuts what a client sends into lines and minds how long each of them takes."""

    def __init__(
        self, stream: trio.SocketStream, *, limit: int, timeout_ms: int, large: LargeLineLimit
    ) -> None:
        self._stream = stream
        self._limit = limit
        self._decoder = LineDecoder(limit, large.limit)
        self._timeout_ms = timeout_ms
        self._large = large

    async def next_line(self) -> Line | None:
        """Return the next line, None at the end; raises LimitExceeded when it breaks a bound.

        The clock runs from the first byte that is waited on. Trickling does not prolong it, and
        time that the daemon spends between two calls, or a large line waits for room, is not
        counted. Whoever gets a line that is longer than the limit has room for it, and leaves
        when it is dealt with.
        """
        deadline = math.inf
        entered = False
        line = None
        try:
            while True:
                if self._decoder.outgrown and not entered:
                    deadline += await self._large.enter()
                    entered = True
                if (line := self._finished_line()) is not None:
                    return line
                if self._decoder.partial and deadline == math.inf:
                    deadline = trio.current_time() + self._timeout_ms / 1000
                if not (data := await self._receive(deadline)):
                    return None
                self._decoder.feed(data)
        finally:
            if entered and (line is None or len(line) <= self._limit):
                self._large.leave()

    async def discard(self, at_most: int) -> None:
        """Read and forget, until the client stops or ``at_most`` bytes have come."""
        while at_most > 0 and (data := await self._receive(math.inf)):
            at_most -= len(data)

    def _finished_line(self) -> Line | None:
        try:
            return self._decoder.next_line()
        except FrameTooLong as error:
            raise LimitExceeded(
                f"A line is longer than {error.limit} bytes.",
                hint="Send less at once; limits.line_bytes in the configuration sets the limit, "
                "hooks.line_bytes that of hook.deliver.",
                limit="line_bytes",
                allowed=error.limit,
            ) from error

    async def _receive(self, deadline: float) -> bytes:
        """Return what has come, nothing when the client stopped sending or is gone."""
        if deadline == math.inf:
            return await self._come()
        with trio.CancelScope(deadline=deadline):
            return await self._come()
        raise self._too_slow()

    async def _come(self) -> bytes:
        # Clients send a line and wait: to try before anything has come is in vain nearly always.
        descriptor = self._stream.socket.fileno()
        while True:
            try:
                await trio.lowlevel.wait_readable(descriptor)
                return os.read(descriptor, _CHUNK)
            except BlockingIOError:
                continue  # the kernel was wrong
            except (OSError, trio.ClosedResourceError):
                return b""

    def _too_slow(self) -> LimitExceeded:
        return LimitExceeded(
            f"A line was begun and not finished within {self._timeout_ms} ms.",
            hint="Send each line in one go, ended by a line feed.",
            limit="line_timeout_ms",
            allowed=self._timeout_ms,
        )
