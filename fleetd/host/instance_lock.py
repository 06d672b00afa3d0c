"""Instance locks: only one daemon serves a socket and writes in its stores.

The socket, the database and the directory of checkpoints each have a lock file of their own, so
that two daemons with different settings cannot share one of them. A lock file is never the locked
file itself: closing a descriptor of the database would drop SQLite's locks. Lock files are never
removed, since a lock on a removed file protects nothing.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from . import permissions
from .atomic_files import make_directories
from .paths import PathRefused, check_socket_length, locks_of, runtime_dir

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class AlreadyRunning(Exception):
    """Another process serves the socket or writes in a store; the text says which, if known."""


@contextlib.contextmanager
def only_instance(database: Path, checkpoints: Path, socket: Path) -> Iterator[None]:
    """Hold the locks of socket, database and checkpoints, listening or not.

    Raises AlreadyRunning when another process holds one of them, PathRefused when one cannot be
    taken. The order is always the same and nothing waits: of many that start, one gets all locks.
    """
    check_socket_length(socket)
    claim(socket.parent)
    with contextlib.ExitStack() as held:
        locks = locks_of(database, checkpoints, socket)
        for number, (what, path) in enumerate(locks.items()):
            held.callback(os.close, _locked(path, what if number else ""))
        yield


def _locked(path: Path, what: str) -> int:
    """Return the descriptor of a lock file that is locked and contains our pid."""
    try:
        make_directories(path.parent)
        handle = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise PathRefused(
            f"The lock file {path} cannot be opened: {error.strerror}. Check that you may "
            "write to its directory, and that no other file has its name."
        ) from error
    try:
        _check(handle, path)
        _lock(handle, path, what)
        # The pid needs room on the disk; without it, the lock is held nevertheless.
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check(handle: int, path: Path) -> None:
    """Refuse another user's file: its owner could hold the lock forever, or let two have it."""
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        raise PathRefused(f"The lock file {path} is not a regular file. Move it away.")
    if info.st_uid != os.getuid():
        raise PathRefused(
            f"The lock file {path} belongs to uid {info.st_uid}, not to uid {os.getuid()}. "
            "Use a directory of your own."
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        os.fchmod(handle, 0o600)


def _lock(handle: int, path: Path, what: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        holder = f" (pid {pid})" if pid.isdigit() else ""
        used = f" and uses {what}" if what else ""
        raise AlreadyRunning(f"fleetd is already running{holder}{used}") from None
    except OSError as error:
        raise PathRefused(
            f"The lock file {path} cannot be locked: {error.strerror}. Its file system (NFS "
            "without its lock service, some of FUSE) has no locks, and without them two daemons "
            "could write there at once. Use a path on a local disk."
        ) from error


_ADVICE = "Set FLEET_SOCKET to a path in a directory of your own with mode 0700."


def claim(directory: Path) -> None:
    """Make the directory of a socket if it is missing; raise PathRefused if others could tamper.

    Other users may not even look into fleetd's own directory. A directory that a person has chosen,
    such as a home directory, may be open to others as long as they cannot write there.
    """
    try:
        make_directories(directory)
        info = directory.lstat()
        weak = permissions.way_problem(directory)
    except OSError as error:
        raise PathRefused(
            f"The socket's directory {directory} cannot be used: {error.strerror}. "
            "Set FLEET_SOCKET to a path in a directory of your own."
        ) from error
    if problem := _problem(info, alone=directory == runtime_dir()):
        raise PathRefused(
            f"The socket's directory {directory} {problem}. Run: chmod 700 {directory} - or set "
            "FLEET_SOCKET to a path in a directory of your own with mode 0700."
            if info.st_uid == os.getuid() and stat.S_ISDIR(info.st_mode)
            else f"The socket's directory {directory} {problem}. Another user could put a socket "
            f"there. {_ADVICE}"
        )
    if weak:
        raise PathRefused(
            f"The socket's directory {directory} is reached by {weak[0]}, which {weak[1]}. "
            f"Another user could put another directory in its place. {_ADVICE}"
        )


def _problem(info: os.stat_result, *, alone: bool) -> str | None:
    if stat.S_ISLNK(info.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory"
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}, not to uid {os.getuid()}"
    mode = f"has mode {stat.S_IMODE(info.st_mode):04o}"
    if info.st_mode & 0o022:
        return f"{mode}, so others may write to it"
    if alone and info.st_mode & 0o077:
        return f"{mode}, so others may read it"
    return None
