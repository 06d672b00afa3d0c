"""Transport of the blocking client: dial the socket, check who listens, send and receive.

The C module below ``socket`` has all that a client needs, and loads in a tenth of the time.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from _socket import AF_UNIX, SOCK_STREAM, socket

from fleetd.host import socket_place
from fleetd.protocol.errors import Denied, FleetError, Unavailable
from fleetd.protocol.framing import credentials

from .protocol import TooSlow, connection_lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOT_RUNNING = "fleetd is not running."
# This directory exists only where systemd has booted the machine.
BOOTED = "/run/systemd/system"
START = "fleetctl daemon start does whichever of the two this machine has."
LOOK = "fleetctl doctor checks whether fleetd can start."
PAUSE_S = 0.02


def dial(path: str | os.PathLike[str], deadline: float) -> socket:
    """Return a socket connected to this user's daemon; ``deadline`` is in monotonic seconds.

    Raises Unavailable when nobody listens, Denied when another user does.
    """
    while (sock := try_dial(path, deadline - time.monotonic())) is None:
        time.sleep(PAUSE_S)
    return sock


def try_dial(path: str | os.PathLike[str], left_s: float) -> socket | None:
    """Return a connected socket; None when the daemon has no room yet, and there is time left."""
    path = os.fspath(path)
    sock = socket(AF_UNIX, SOCK_STREAM)
    sock.settimeout(max(left_s, PAUSE_S))
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        # A full backlog is not a refusal: the daemon accepts as soon as it has room.
        if error.errno != errno.EAGAIN or left_s < 0:
            raise _connect_error(path, error) from error
        return None
    try:
        uid, _ = credentials(sock)
    except OSError as error:  # the owner is unknown
        sock.close()
        raise _foreign_socket(path) from error
    if uid != os.getuid():  # it could answer anything
        sock.close()
        raise _foreign_socket(path, uid=uid)
    return sock


def _connect_error(path: str, error: OSError) -> FleetError:
    if isinstance(error, PermissionError):
        return _foreign_socket(path)
    if error.errno == errno.EAGAIN or isinstance(error, TimeoutError):
        return Unavailable("fleetd is too busy to take a connection.", hint="Try again later.")
    if _is_no_socket(path):
        return Unavailable(
            f"{path} is not a socket, so fleetd cannot listen there.",
            hint="Check FLEET_SOCKET and XDG_RUNTIME_DIR.",
        )
    systemd = os.path.isdir(BOOTED)  # noqa: PTH112 - for every client
    start = "systemctl --user start fleetd" if systemd else "fleetctl daemon start"
    hint = START if systemd else LOOK
    if path != socket_place.socket_path():
        hint = f"Nobody listens at {path}."
    return Unavailable(f"{NOT_RUNNING} Start it with: {start} (or run: fleetd)", hint=hint)


def _is_no_socket(path: str) -> bool:
    """Return whether the path exists and is no socket."""
    try:
        return not stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 - as above
    except OSError:
        return False


def _foreign_socket(path: str, **values: Any) -> Denied:
    return Denied(
        f"The socket {path} belongs to another user.",
        hint="Use your own daemon: check FLEET_SOCKET and XDG_RUNTIME_DIR.",
        socket=path,
        **values,
    )


# Python raises KeyboardInterrupt only between its own steps. A signal just before recv blocks waits
# as long as recv does, so no recv waits longer than this.
SIGNAL_S = 1.0


class SocketTransport:
    """A blocking socket, one connection at a time; a forked process does not use its parent's."""

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

    async def dial(self, path: str, deadline: float) -> None:
        """Open a connection after closing the previous one; raises Unavailable or Denied."""
        self.close()
        self._socket = dial(path, deadline)
        self._process = os.getpid()

    async def send(self, data: bytes, wait_s: float) -> None:
        """Send all data; raises TooSlow, ConnectionLost."""
        sock = self._current()
        sock.settimeout(wait_s)
        try:
            sock.sendall(data)
        except TimeoutError as error:
            raise TooSlow from error
        except (BrokenPipeError, ConnectionResetError):
            # A daemon that refuses the line sends the reason before it closes: read it next.
            return

    async def receive(self, wait_s: float) -> bytes:
        """Return the next bytes; raises TooSlow when none come, ConnectionLost at the end."""
        sock, until = self._current(), time.monotonic() + wait_s
        data = None
        while data is None:
            sock.settimeout(max(min(until - time.monotonic(), SIGNAL_S), 0.0))
            try:
                data = sock.recv(262_144)
            except (TimeoutError, BlockingIOError) as error:
                if time.monotonic() >= until:
                    raise TooSlow from error
            except OSError as error:  # another thread may have closed it
                raise connection_lost() from error
        if not data:
            raise connection_lost()
        return data

    def _current(self) -> socket:
        sock = self._socket
        if sock is None or not self.open:
            raise connection_lost()
        return sock

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
