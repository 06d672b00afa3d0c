"""A connection that trio waits for; must not know what it carries."""

import socket
from pathlib import Path

import trio

from .dial import PAUSE_S, attempt
from .protocol import TooSlow, lost


class TrioCarrier:
    """A Unix socket, one connection at a time, in trio's time."""

    def __init__(self) -> None:
        self._stream: trio.SocketStream | None = None

    def now(self) -> float:
        """Return trio's seconds."""
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)

    async def dial(self, path: Path, deadline: float) -> None:
        """Open a connection, after closing the one before; raises Unavailable or Denied."""
        self.close()
        while (found := attempt(path, deadline - trio.current_time())) is None:  # noqa: ASYNC110
            await trio.sleep(PAUSE_S)
        connected = trio.socket.from_stdlib_socket(socket.socket(fileno=found.detach()))
        self._stream = trio.SocketStream(connected)

    async def send(self, data: bytes, wait_s: float) -> None:
        """Send all; raises TooSlow, ConnectionLost."""
        stream = self._mine()
        with trio.move_on_after(wait_s) as waiting:
            try:
                await stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # A daemon that refused the line says why before it closes: go on to read that.
                return
        if waiting.cancelled_caught:
            raise TooSlow

    async def receive(self, wait_s: float) -> bytes:
        """Return what comes next; raises TooSlow when nothing does, ConnectionLost at the end."""
        stream = self._mine()
        with trio.move_on_after(wait_s):
            try:
                data = await stream.receive_some(262_144)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise lost() from error
            if not data:
                raise lost()
            return bytes(data)
        raise TooSlow

    def _mine(self) -> trio.SocketStream:
        if self._stream is None:
            raise lost()
        return self._stream

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""
        if self._stream is not None:
            self._stream.socket.close()
            self._stream = None
