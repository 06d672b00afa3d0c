"""One server for each daemon: a second one finds the first by a private socket.

A lock shows whether a server runs, since a socket outlives a server that was killed. The socket
gives links to processes of this user only.
"""

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import trio

from fleetd.host import permissions, socket_place
from fleetd.protocol.errors import FleetError, InvalidState, Unavailable
from fleetd.protocol.framing import credentials

from ..client.transport import try_dial

# How long a server that was just started may take to answer.
START_S = 5.0
PAUSE_S = 0.05
WAIT_S = 1.0
ANSWER_BYTES = 4_096
PRIVATE = 0o600
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class RunningServer(msgspec.Struct, frozen=True):
    """A running server, with a new link to it.

    ``url`` has no token when only the server was asked for. ``socket`` is the one that it listens
    on, None for a port.
    """

    pid: int
    version: str
    url: str
    ssh: str
    socket: str | None = None
    service: bool = False


def private_socket(daemon_socket: str) -> Path:
    """Return the socket where a daemon's server gives links; raises InvalidState for a bad path.

    Several daemons may have their sockets in one directory.
    """
    path = Path(daemon_socket)
    path = path.with_name(f"{path.stem}-web.sock")
    try:
        socket_place.check_socket_length(path)
    except socket_place.PathRefused as error:
        raise InvalidState(str(error), hint="A socket path must fit the kernel's limit.") from error
    return path


class Claim:
    """The right to be the server for a daemon, until the process ends."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        self._made: tuple[int, int] | None = None

    def listener(self) -> trio.SocketListener:
        """Return a listener at the private socket; it replaces that of a killed server."""
        if self.path.is_socket():
            self.path.unlink()
        sock = unix_listener(self.path)
        self._made = _identity(self.path)
        return sock

    def release(self) -> None:
        """Let another process be the server."""
        if self._made is not None and _identity(self.path) == self._made:
            self.path.unlink(missing_ok=True)
        os.close(self._handle)


def unix_listener(path: Path) -> trio.SocketListener:
    """Return a listener at a path that is free, for this user only; raises InvalidState."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode must be right when the name appears; a chmod would come too late.
    umask = os.umask(0o177)
    try:
        sock.bind(os.fspath(path))
        sock.listen()
    except OSError as error:
        sock.close()
        raise InvalidState(
            f"The socket {path} cannot be created: {error.strerror or error}.",
            hint="Name a path in a directory of your own.",
        ) from error
    finally:
        os.umask(umask)
    mode = stat.S_IMODE(path.lstat().st_mode)
    if mode != PRIVATE:
        sock.close()
        path.unlink()
        raise InvalidState(
            f"The socket {path} was created with mode {mode:04o} instead of 0600: its file system "
            "does not keep permissions.",
            hint="Name a path on another file system.",
        )
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def find_or_claim(path: Path) -> RunningServer | Claim:
    """Return the running server, or the right to be it; of several that start, one gets it.

    Raises InvalidState for a directory that others may write to, Unavailable for a server that
    does not answer.
    """
    _check_directory(path)
    until = time.monotonic() + START_S
    while (claim := _try_to_claim(path)) is None:
        if (found := ask(path, new_link=True)) is not None:
            return found
        if time.monotonic() > until:
            raise Unavailable(
                f"Another server{_holder(path)} shows this fleet, and does not answer.",
                hint="End that process, then try again.",
            )
        time.sleep(PAUSE_S)
    return claim


def wait_to_claim(path: Path, on_wait: Callable[[RunningServer], None]) -> Claim:
    """Return the right to be the server, once no other one runs."""
    _check_directory(path)
    notified = False
    while (claim := _try_to_claim(path)) is None:
        if not notified and (found := ask(path)) is not None:
            notified = True
            on_wait(found)
        time.sleep(WAIT_S)
    return claim


def ask(path: Path, *, new_link: bool = False) -> RunningServer | None:
    """Return the running server, with a one-time link if wanted; None without a server."""
    try:
        sock = try_dial(path, START_S)
    except FleetError:
        return None
    if sock is None:
        return None
    data = b""
    try:
        sock.settimeout(START_S)
        sock.sendall(b"link\n" if new_link else b"state\n")
        while len(data) <= ANSWER_BYTES and (more := sock.recv(ANSWER_BYTES)):
            data += more
        return msgspec.json.decode(data, type=RunningServer)
    except (OSError, msgspec.MsgspecError):
        return None
    finally:
        sock.close()


async def answer(stream: trio.SocketStream, describe: Callable[[bool], RunningServer]) -> None:
    """Answer one process at the private socket; ``describe`` gets whether it wants a link."""
    with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        uid, _ = credentials(stream.socket)
        if uid != os.getuid():
            return
        with trio.move_on_after(START_S):
            line = await stream.receive_some(16)
            if line:
                await stream.send_all(msgspec.json.encode(describe(line == b"link\n")))


def _check_directory(path: Path) -> None:
    """Create the directory of the socket if it is missing; raise InvalidState if it is unsafe."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = permissions.weakness(_lock_path(path))
    except OSError as error:
        problem = f"{path.parent} cannot be used: {error.strerror}"
    if problem is not None:
        raise InvalidState(
            f"{problem}.", hint="Set FLEET_SOCKET to a path in a directory of your own."
        )


def _lock_path(path: Path) -> Path:
    return path.with_suffix(".lock")


def _try_to_claim(path: Path) -> Claim | None:
    """Return the claim, None while another process has it; the lock's file is never removed."""
    place = _lock_path(path)
    try:
        handle = os.open(place, _FLAGS, PRIVATE)
    except OSError as error:
        raise InvalidState(
            f"The lock file {place} cannot be opened: {error.strerror}.",
            hint=f"Look at it: ls -l {place}",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise InvalidState(
            f"The lock file {place} cannot be locked: {error.strerror}.",
            hint="Set FLEET_SOCKET to a path on a local disk.",
        ) from error
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return Claim(path, handle)


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError):
        return f" (pid {int(_lock_path(path).read_text('ascii'))})"
    return ""
