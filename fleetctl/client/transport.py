"""A connection that blocks; must not know what it carries."""

import os
import time
from _socket import socket
from pathlib import Path

from .dial import dial
from .protocol import TooSlow, lost

# Python raises KeyboardInterrupt between two of its own steps only. A signal that comes just before
# recv blocks would wait as long as recv does, so no recv waits longer than this.
SIGNAL_S = 1.0


class SocketCarrier:
    """A socket that blocks, one connection at a time; a process that was forked has its own."""

    def __init__(self) -> None:
        self._socket: socket | None = None
        self._process = 0

    @property
    def open(self) -> bool:
        """Return whether there is a connection, and it is this process's."""
        return self._socket is not None and self._process == os.getpid()

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: ASYNC251

    async def dial(self, path: Path, deadline: float) -> None:
        """Open a connection, after closing the one before; raises Unavailable or Denied."""
        self.close()
        self._socket = dial(path, deadline)
        self._process = os.getpid()

    async def send(self, data: bytes, wait_s: float) -> None:
        """Send all; raises TooSlow, ConnectionLost."""
        sock = self._mine()
        sock.settimeout(wait_s)
        try:
            sock.sendall(data)
        except TimeoutError as error:
            raise TooSlow from error
        except (BrokenPipeError, ConnectionResetError):
            # A daemon that refused the line says why before it closes: go on to read that.
            return

    async def receive(self, wait_s: float) -> bytes:
        """Return what comes next; raises TooSlow when nothing does, ConnectionLost at the end."""
        sock, until = self._mine(), time.monotonic() + wait_s
        data = None
        while data is None:
            sock.settimeout(max(min(until - time.monotonic(), SIGNAL_S), 0.0))
            try:
                data = sock.recv(262_144)
            except (TimeoutError, BlockingIOError) as error:
                if time.monotonic() >= until:
                    raise TooSlow from error
            except OSError as error:  # another thread may have closed it
                raise lost() from error
        if not data:
            raise lost()
        return data

    def _mine(self) -> socket:
        sock = self._socket
        if sock is None or not self.open:
            raise lost()
        return sock

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
