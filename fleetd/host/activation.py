"""Takes over listening sockets from systemd; must not make or remove any."""

import os
import socket
from collections.abc import MutableMapping

from .paths import PathRefused

_FIRST = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def inherited_sockets(env: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """Return the sockets passed to this process; raises PathRefused for unfit ones.

    The variables are removed: a child must not believe that the sockets are its own.
    """
    pid, count = (env.get(name, "") for name in _VARIABLES[:2])
    for name in _VARIABLES:
        env.pop(name, None)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    return [_take_over(number) for number in range(_FIRST, _FIRST + int(count))]


def _take_over(number: int) -> socket.socket:
    try:
        sock = socket.socket(fileno=number)
    except OSError as error:
        raise PathRefused(
            f"LISTEN_FDS names descriptor {number}, which is no socket: {error.strerror}. "
            "Check the socket unit."
        ) from error
    sock.set_inheritable(False)
    fit = sock.family == socket.AF_UNIX and sock.type == socket.SOCK_STREAM
    if not fit or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        raise PathRefused(
            f"Descriptor {number} from LISTEN_FDS is not a listening Unix stream socket. "
            "The socket unit needs ListenStream= with a path."
        )
    return sock
