"""Peer credentials: whose process is at the other end of a Unix socket."""

import os
import select
import socket

import trio

from ..domain.core.context import Caller
from ..protocol.errors import Denied
from ..protocol.framing import credentials

Socket = socket.socket | trio.socket.SocketType

_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLNVAL


def caller_of(sock: Socket) -> Caller:
    """Return who connected; raises Denied unless it is the user the daemon runs as."""
    uid, pid = credentials(sock)
    if uid != os.getuid():
        raise Denied(
            f"This fleetd belongs to uid {os.getuid()}; uid {uid} may not use it.",
            hint="Start a fleetd of your own.",
            uid=uid,
        )
    return Caller(kind="client", uid=uid, pid=pid)


def is_gone(sock: Socket) -> bool:
    """Whether the other end is closed altogether; one that only stopped sending is not gone."""
    poll = select.poll()
    poll.register(sock, 0)
    return any(events & _HUNG_UP for _, events in poll.poll(0))
