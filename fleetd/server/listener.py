"""Listener: takes the socket that clients connect to, so that nobody else can.

The single-instance lock comes first: without it, two daemons that find the same stale socket
would each remove the other's fresh one.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config import Config
from ..host.instance_lock import AlreadyRunning, only_instance
from ..host.paths import PathRefused
from ..host.systemd import inherited_sockets

BACKLOG = 1_024


class ListeningSockets:
    """The sockets to accept on; ``close`` also removes the daemon's own one from its path."""

    def __init__(self, sockets: list[socket.socket], own: Path | None) -> None:
        self.sockets = sockets
        self._own = own
        self._inode = _inode(own) if own else None

    def in_place(self) -> bool:
        """Return whether the socket is still at its path; True for an inherited one."""
        return self._own is None or _inode(self._own) == self._inode

    def close(self) -> None:
        """Stop listening; safe to call twice. An inherited socket stays with its creator."""
        for sock in self.sockets:
            sock.close()
        if self._own and self.in_place():
            self._own.unlink(missing_ok=True)
        self._own = None


@contextmanager
def listening(config: Config) -> Iterator[ListeningSockets]:
    """Hold the single-instance locks and the listening sockets.

    Raises AlreadyRunning when another process serves the socket or writes in a store, and
    PathRefused when a path or the socket's directory cannot be trusted or used.
    """
    path = config.socket
    with only_instance(config.database, config.checkpoints, config.socket):
        given = inherited_sockets()
        sockets = ListeningSockets(given, None) if given else ListeningSockets([_bind(path)], path)
        try:
            yield sockets
        finally:
            sockets.close()


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _bind(path: Path) -> socket.socket:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode must be right when the name appears; a chmod would come too late.
    umask = os.umask(0o177)
    try:
        sock.bind(os.fspath(path))
    except OSError as error:
        sock.close()
        raise PathRefused(f"The socket {path} cannot be created: {error.strerror}.") from error
    finally:
        os.umask(umask)
    mode = stat.S_IMODE(path.lstat().st_mode)
    if mode != 0o600:
        sock.close()
        path.unlink()
        raise PathRefused(
            f"The socket {path} was created with mode {mode:04o} instead of 0600: its file system "
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
    if _is_stale(path):
        path.unlink()


def _is_stale(path: Path) -> bool:
    """Return whether nobody listens on the socket; raises AlreadyRunning when somebody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        outcome = probe.connect_ex(os.fspath(path))
    if outcome == errno.ECONNREFUSED:
        return True
    if outcome in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise AlreadyRunning(
            f"Another program listens on {path}, perhaps systemd for fleetd.socket. Start fleetd "
            "with: fleetctl daemon start, or set FLEET_SOCKET to another path."
        )
    raise PathRefused(
        f"The socket {path} cannot be reached ({os.strerror(outcome)}), so fleetd cannot "
        "tell whether it is in use. Move it away, or set FLEET_SOCKET to another path."
    )
