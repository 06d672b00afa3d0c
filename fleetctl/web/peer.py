"""Peer check: finds the user of a client, because other users can reach the port too.

A link is a secret, but a browser that is started with it shows it to everyone who lists processes.
"""

import os
import socket
import sys
from pathlib import Path

import trio

from fleetd.protocol.errors import Denied

_TABLES = {socket.AF_INET: ("tcp", "tcp6"), socket.AF_INET6: ("tcp6",)}
# The prefix of an IPv4 address on a socket that is open for both, in words of four bytes.
_MAPPED = (0, 0, int.from_bytes(b"\0\0\xff\xff", sys.byteorder))
ROOT = 0
_LOCAL, _REMOTE, _UID = 1, 2, 7


def check_user(sock: trio.socket.SocketType) -> None:
    """Raise Denied for a client of another user; root, who can do everything, may be a forwarder.

    On Linux the kernel knows the user. There is no check elsewhere, nor for a Unix socket, whose
    mode keeps others out.
    """
    tables = _TABLES.get(socket.AddressFamily(sock.family), ())
    try:
        ends = [each()[:2] for each in (sock.getpeername, sock.getsockname)]
        read = [Path("/proc/net", name).read_text("ascii") for name in tables]
    except OSError:  # no Linux, or the client has left
        return
    found = [uid for table in read if (uid := _uid(table, ends)) is not None]
    if not read or {*found} & {os.getuid(), ROOT}:
        return
    owner = f"uid {found[0]}" if found else "of whom the kernel tells nothing"
    raise Denied(
        f"The request comes from another user of this computer ({owner}).",
        hint="Open the link as the user who ran fleetctl web.",
    )


def _uid(table: str, ends: list[tuple[str, int]]) -> int | None:
    """Return the uid of the socket with these two ends, from a table of the kernel."""
    plain = [_address(*end) for end in ends]
    mapped = ["".join(f"{word:08X}" for word in _MAPPED) + each for each in plain]
    for row in (line.split() for line in table.splitlines()[1:]):
        if [row[_LOCAL], row[_REMOTE]] in (plain, mapped):
            return int(row[_UID])
    return None


def _address(host: str, port: int) -> str:
    """Return an address in the format of the kernel's tables: words in native byte order."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    words = memoryview(socket.inet_pton(family, host)).cast("I")
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
