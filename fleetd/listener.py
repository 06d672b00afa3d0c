"""Gets the socket that clients connect to, so that nobody else can; must not accept on it.

The single-instance lock comes first: without it, two daemons that find the same stale socket
would each remove the other's fresh one.
"""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .activation import inherited_sockets
from .paths import PathRefused, check_socket_length

BACKLOG = 1_024
LOCK_NAME = "fleetd.lock"


class AlreadyRunning(Exception):
    """Another process serves this socket; the text says which, if that is known."""


class Listening:
    """The sockets to accept on; ``close`` takes an own one out of the file system again."""

    def __init__(self, sockets: list[socket.socket], own: Path | None) -> None:
        self.sockets = sockets
        self._own = own
        self._inode = _inode(own) if own else None

    def close(self) -> None:
        """Stop listening; safe to call twice. An inherited socket stays with who made it."""
        for sock in self.sockets:
            sock.close()
        if self._own and self._inode and _inode(self._own) == self._inode:
            self._own.unlink()
        self._own = None


@contextmanager
def listening(path: Path) -> Iterator[Listening]:
    """Hold the single-instance lock and the listening sockets.

    Raises AlreadyRunning when another process serves ``path``, and PathRefused when the path
    or its directory cannot be trusted or used.
    """
    with only_instance(path):
        given = inherited_sockets()
        held = Listening(given, None) if given else Listening([_bind(path)], path)
        try:
            yield held
        finally:
            held.close()


@contextmanager
def only_instance(path: Path) -> Iterator[None]:
    """Hold the single-instance lock of the daemon that serves ``path``, listening or not.

    The lock file is never unlinked: a lock on a removed file guards nothing. Raises what
    ``listening`` raises.
    """
    check_socket_length(path)
    _claim_directory(path.parent)
    lock = path.parent / LOCK_NAME
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PathRefused(f"The lock file {lock} cannot be opened: {error.strerror}.") from error
    try:
        _lock(handle)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _claim_directory(directory: Path) -> None:
    """Make the directory if it is missing; refuse it when others could act in it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = directory.lstat()
    except OSError as error:
        raise PathRefused(
            f"The socket's directory {directory} cannot be used: {error.strerror}. "
            "Set FLEET_SOCKET to a path in a directory of your own."
        ) from error
    if problem := _problem(info):
        raise PathRefused(
            f"The socket's directory {directory} {problem}. Somebody else could put a socket "
            "there; set FLEET_SOCKET to a path in a directory of your own with mode 0700."
        )


def _problem(info: os.stat_result) -> str | None:
    if stat.S_ISLNK(info.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory"
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}, not to uid {os.getuid()}"
    if info.st_mode & 0o022:
        return f"has mode {stat.S_IMODE(info.st_mode):04o}, so others may write to it"
    return None


def _lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        who = f" (pid {pid})" if pid.isdigit() else ""
        raise AlreadyRunning(f"fleetd is already running{who}") from None


def _bind(path: Path) -> socket.socket:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode must be right when the name appears; a chmod would come too late.
    umask = os.umask(0o177)
    try:
        sock.bind(os.fspath(path))
    except OSError as error:
        sock.close()
        raise PathRefused(f"The socket {path} cannot be made: {error.strerror}.") from error
    finally:
        os.umask(umask)
    mode = stat.S_IMODE(path.lstat().st_mode)
    if mode != 0o600:
        sock.close()
        path.unlink()
        raise PathRefused(
            f"The socket {path} came out with mode {mode:04o} instead of 0600: its file system "
            "does not keep permissions. Set FLEET_SOCKET to a path on another one."
        )
    sock.listen(BACKLOG)
    return sock


def _remove_stale(path: Path) -> None:
    """Remove a socket that a dead daemon left, and nothing else."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode):
        raise PathRefused(
            f"{path} exists and is not a socket. Move it away, or set FLEET_SOCKET to another path."
        )
    if _refuses(path):
        path.unlink()


def _refuses(path: Path) -> bool:
    """Whether nobody listens on the socket; raises AlreadyRunning when somebody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        outcome = probe.connect_ex(os.fspath(path))
    if outcome == errno.ECONNREFUSED:
        return True
    if outcome in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise AlreadyRunning(
            f"Another program listens on {path}, perhaps systemd for fleetd.socket. Start fleetd "
            "with: systemctl --user start fleetd, or set FLEET_SOCKET to another path."
        )
    raise PathRefused(
        f"The socket {path} cannot be reached ({os.strerror(outcome)}), so it is not known "
        "whether it is in use. Move it away, or set FLEET_SOCKET to another path."
    )
