"""Writes lines to a client, in bounds of time and memory."""

import os
from collections.abc import Callable

import trio

# What clients were slow to take may wait in so much memory, in the whole daemon.
UNSENT_BYTES = 32 * 1024 * 1024


class SendBudget:
    """Everything that waits to be sent, of all clients.

    A client that asks for much and reads nothing would fill the memory within the time that it has.
    """

    def __init__(self) -> None:
        self._writers: set[LineWriter] = set()

    def add(self, writer: "LineWriter") -> None:
        """Count a writer in; when all together hold too much, whoever holds most is cut off.

        A single reply that is longer than the bound is no reason: it could never be sent.
        """
        self._writers.add(writer)
        while self._too_much():
            most = max(self._writers, key=lambda each: each.unsent)
            self._writers.remove(most)
            most.give_up()

    def remove(self, writer: "LineWriter") -> None:
        """Forget a writer with nothing to send."""
        self._writers.discard(writer)

    def _too_much(self) -> bool:
        lines = sum(each.lines for each in self._writers)
        return lines > 1 and sum(each.unsent for each in self._writers) > UNSENT_BYTES


class LineWriter:
    """Sends whole lines, one after the other.

    ``give_up`` is called when the client has not taken a line within ``seconds``, is gone, or
    holds up too much; it must end the tasks that send.
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
        """Bytes that wait."""
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
        """Send a line if there is room for it now, else not at all."""
        if self._sending.locked() or self._begun:
            return
        rest = self._send_now(data)
        if len(rest) < len(data):
            self._begun = rest  # a kernel that took a part of it: the next line brings the rest

    async def taken(self) -> None:
        """Wait until nothing waits to be sent."""
        while self.lines:
            async with self._sending:
                pass

    def _send_now(self, data: bytes) -> bytes:
        """Send what fits now, nearly always all, without the scheduler; return the rest."""
        try:
            return data[os.write(self._stream.socket.fileno(), data) :]
        except OSError:  # full, or broken: whoever waits on the stream learns which
            return data

    async def _send_rest(self, data: bytes) -> None:
        with trio.move_on_after(self._seconds) as taking:
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._gone()
        if taking.cancelled_caught:
            self.give_up()
