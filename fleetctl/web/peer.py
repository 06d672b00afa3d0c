"""Whose the other end of a connection is: other users of this computer reach the port too.

A link is a secret, but a browser that is started with it shows it to everybody who lists processes.
"""

import os
import socket
from pathlib import Path

import trio

from fleetd.protocol.errors import Denied

_TABLES = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}
ROOT = 0
_LOCAL, _REMOTE, _UID = 1, 2, 7


def check_user(sock: trio.socket.SocketType) -> None:
    """Raise Denied for a client of another user; root, who can do everything, may be a forwarder.

    On Linux the kernel knows. Elsewhere, and of a Unix socket, whose mode keeps others out, nobody
    is asked.
    """
    uid = _uid(sock)
    if uid not in (None, os.getuid(), ROOT):
        raise Denied(
            f"The request comes from another user of this computer (uid {uid}).",
            hint="Open the link as the user who ran fleetctl web.",
        )


def _uid(sock: trio.socket.SocketType) -> int | None:
    table = _TABLES.get(socket.AddressFamily(sock.family))
    if table is None:
        return None
    try:
        wanted = [_address(*each()[:2]) for each in (sock.getpeername, sock.getsockname)]
        lines = Path(table).read_text("ascii").splitlines()
    except OSError:
        return None
    rows = (line.split() for line in lines[1:])
    found = (int(row[_UID]) for row in rows if [row[_LOCAL], row[_REMOTE]] == wanted)
    return next(found, None)


def _address(host: str, port: int) -> str:
    """Return an address as the kernel's tables have it: words in the order of this processor."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    words = memoryview(socket.inet_pton(family, host)).cast("I")
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
