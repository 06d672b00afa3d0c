"""What a service tells its manager, heard on a socket of our own."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def service_socket(path: Path) -> Iterator[socket.socket]:
    """Listen at a path as a service manager does; what was not told yet is not waited for."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(str(path))
        yield sock


def heard(sock: socket.socket) -> list[bytes]:
    """Return what was told since this was asked last."""
    messages = []
    while True:
        try:
            messages.append(sock.recv(4_096))
        except BlockingIOError:
            return messages
