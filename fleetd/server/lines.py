"""Lines in and out of a socket, within limits of size, time and memory."""

import math
import os
from collections.abc import Callable

import trio

from ..protocol.errors import LimitExceeded
from ..protocol.framing import FrameTooLong, Line, LineDecoder

_CHUNK = 65_536
_LARGE_AT_ONCE = 2


class LargeLineLimit:
    """Room for lines of the hook client that are longer than other lines may be.

    The whole daemon has room for few: text of 16 MiB takes several times that while it is read and
    parsed, and every connection could send one.
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
    """Splits the input of a client into lines, and limits the time of each."""

    def __init__(
        self, stream: trio.SocketStream, *, limit: int, timeout_ms: int, large: LargeLineLimit
    ) -> None:
        self._stream = stream
        self._limit = limit
        self._decoder = LineDecoder(limit, large.limit)
        self._timeout_ms = timeout_ms
        self._large = large

    async def next_line(self) -> Line | None:
        """Return the next line, None at the end; raises LimitExceeded when it breaks a limit.

        The timeout runs from the first byte of an unfinished line, and further bytes do not extend
        it. Time that the daemon spends between two calls, or that a large line waits for room, is
        not counted. A caller that gets a line above the limit has room for it, and calls
        ``LargeLineLimit.leave`` when it is done.
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
        """Read and discard, until the client stops or ``at_most`` bytes have arrived."""
        while at_most > 0 and (data := await self._receive(math.inf)):
            at_most -= len(data)

    def _finished_line(self) -> Line | None:
        try:
            return self._decoder.next_line()
        except FrameTooLong as error:
            raise LimitExceeded(
                f"A line is longer than {error.limit} bytes.",
                hint="Send less at once, or raise the setting limits.line_bytes (for hook.deliver: "
                "hooks.line_bytes).",
                limit="line_bytes",
                allowed=error.limit,
            ) from error

    async def _receive(self, deadline: float) -> bytes:
        """Return the received bytes, none when the client stopped sending or is gone."""
        if deadline == math.inf:
            return await self._read_some()
        with trio.CancelScope(deadline=deadline):
            return await self._read_some()
        raise LimitExceeded(
            f"A line was started but not completed within {self._timeout_ms} ms.",
            hint="Send each line at once, with a line feed at its end.",
            limit="line_timeout_ms",
            allowed=self._timeout_ms,
        )

    async def _read_some(self) -> bytes:
        # Clients send a line and wait: a read before data has arrived nearly always fails.
        descriptor = self._stream.socket.fileno()
        while True:
            try:
                await trio.lowlevel.wait_readable(descriptor)
                return os.read(descriptor, _CHUNK)
            except BlockingIOError:
                continue  # there was no data after all
            except (OSError, trio.ClosedResourceError):
                return b""


# The memory in the whole daemon for lines that clients were too slow to take.
UNSENT_BYTES = 32 * 1024 * 1024


class SendBudget:
    """Everything that waits to be sent, for all clients.

    A client that asks for much and reads nothing would fill the memory before its timeout.
    """

    def __init__(self) -> None:
        self._writers: set[LineWriter] = set()

    def add(self, writer: "LineWriter") -> None:
        """Add a writer; if all together hold too much, cut off the one that holds most.

        A single reply above the limit cuts nobody off: otherwise it could never be sent.
        """
        self._writers.add(writer)
        while (
            sum(each.lines for each in self._writers) > 1
            and sum(each.unsent for each in self._writers) > UNSENT_BYTES
        ):
            most = max(self._writers, key=lambda each: each.unsent)
            self._writers.remove(most)
            most.give_up()

    def remove(self, writer: "LineWriter") -> None:
        """Remove a writer that has nothing to send."""
        self._writers.discard(writer)


class LineWriter:
    """Sends whole lines, one after the other.

    ``too_slow`` is called when the client has not taken a line within ``seconds`` or holds up too
    much, and ``gone`` when it has disconnected. Both must end the tasks that send.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        *,
        seconds: float,
        unsent: SendBudget,
        too_slow: Callable[[], None],
        gone: Callable[[], None],
    ) -> None:
        self.unsent = 0
        """Bytes that wait to be sent."""
        self.lines = 0
        self._stream = stream
        self._seconds = seconds
        self._all = unsent
        self.give_up = too_slow
        self._gone = gone
        self._sending = trio.StrictFIFOLock()
        self._begun = b""

    async def send(self, data: bytes) -> None:
        """Send whole lines; a client that does not take them in time loses its connection."""
        # While another reply is on its way, this one waits its turn: lines must not mix.
        data, self._begun = self._begun + data, b""
        if not self._sending.locked() and not (data := self._send_now(data)):
            return
        self.unsent += len(data)
        self.lines += 1
        self._all.add(self)
        try:
            async with self._sending:
                await self._send_rest(data)
        finally:
            self.unsent -= len(data)
            self.lines -= 1
            if not self.lines:
                self._all.remove(self)

    def offer(self, data: bytes) -> None:
        """Send a line if there is room for it now, else drop it."""
        if self._sending.locked() or self._begun:
            return
        rest = self._send_now(data)
        if len(rest) < len(data):
            self._begun = rest  # the kernel took only a part: the next line sends the rest

    async def drained(self) -> None:
        """Wait until nothing waits to be sent."""
        while self.lines:
            async with self._sending:
                pass

    def _send_now(self, data: bytes) -> bytes:
        """Send what fits now, nearly always all, without the scheduler; return the rest."""
        try:
            return data[os.write(self._stream.socket.fileno(), data) :]
        except OSError:  # full or broken: waiting on the stream shows which
            return data

    async def _send_rest(self, data: bytes) -> None:
        with trio.move_on_after(self._seconds) as taking:
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._gone()
        if taking.cancelled_caught:
            self.give_up()
