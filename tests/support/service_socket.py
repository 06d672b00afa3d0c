"""The messages of a service to its manager, received on a socket of the test."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def service_socket(path: Path) -> Iterator[socket.socket]:
    """Listen at a path as a service manager does; reads do not wait for messages."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(str(path))
        yield sock


def heard(sock: socket.socket) -> list[bytes]:
    """Return the messages since the last call."""
    messages = []
    while True:
        try:
            messages.append(sock.recv(4_096))
        except BlockingIOError:
            return messages
