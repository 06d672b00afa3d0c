"""Lines from a socket, in bounds of size and time; must not know what a line means."""

import math

import trio

from .wire.errors import LimitExceeded
from .wire.frames import FrameTooLong, LineDecoder

_CHUNK = 65_536


class LineReader:
    """Cuts what a client sends into lines and minds how long each of them takes."""

    def __init__(self, stream: trio.SocketStream, *, limit: int, timeout_ms: int) -> None:
        self._stream = stream
        self._decoder = LineDecoder(limit)
        self._timeout_ms = timeout_ms

    async def next_line(self) -> bytes | None:
        """Return the next line, None at the end; raises LimitExceeded when it breaks a bound.

        The clock runs from the first byte that is waited on. Trickling does not prolong it, and
        time that the daemon spends between two calls is not counted.
        """
        deadline = math.inf
        while (line := self._finished_line()) is None:
            if self._decoder.partial and deadline == math.inf:
                deadline = trio.current_time() + self._timeout_ms / 1000
            data = await self._receive(deadline)
            if not data:
                return None
            self._decoder.feed(data)
        return line

    async def discard(self, at_most: int) -> None:
        """Read and forget, until the client stops or ``at_most`` bytes have come."""
        while at_most > 0 and (data := await self._receive(math.inf)):
            at_most -= len(data)

    def _finished_line(self) -> bytes | None:
        try:
            return self._decoder.next_line()
        except FrameTooLong as error:
            raise LimitExceeded(
                f"A line is longer than {error.limit} bytes.",
                hint="Send less at once; limits.line_bytes in the configuration sets the limit.",
                limit="line_bytes",
                allowed=error.limit,
            ) from error

    async def _receive(self, deadline: float) -> bytes:
        """Return what has come, nothing when the client stopped sending or is gone."""
        with trio.CancelScope(deadline=deadline):
            try:
                return bytes(await self._stream.receive_some(_CHUNK))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
        raise self._too_slow()

    def _too_slow(self) -> LimitExceeded:
        return LimitExceeded(
            f"A line was begun and not finished within {self._timeout_ms} ms.",
            hint="Send each line in one go, ended by a line feed.",
            limit="line_timeout_ms",
            allowed=self._timeout_ms,
        )
