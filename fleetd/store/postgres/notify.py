"""LISTEN/NOTIFY: hears of the commits of all daemons of a store.

Whoever may connect to the database may notify, and say what he likes: it is a bell and no more.
"""

import contextlib
import os
from collections.abc import Callable

import psycopg
import trio

from .batch import CHANNEL
from .connection import ServerConnection

_NAME = f"SELECT {CHANNEL}".encode()


def listen(connection: ServerConnection, heard: Callable[[int], None]) -> None:
    """Ask to be told of every commit, and by which process at the server.

    ``heard`` is told what arrives while something else is asked.
    """
    row = connection.execute(_NAME).fetchone()
    connection.add_notify_handler(lambda notice: heard(notice.pid))
    connection.execute(f'LISTEN "{row[0] if row else ""}"'.encode())


class NotificationListener:
    """Waits for what the server says by itself on a connection that listens."""

    def __init__(self, connection: ServerConnection, heard: Callable[[int], None]) -> None:
        self._connection = connection
        self._heard = heard
        # A descriptor of our own: libpq closes its own when the server goes, and trio must not be
        # waiting for a number that means another file by then.
        self._descriptor = os.dup(connection.fileno())

    async def wait(self) -> None:
        """Wait until something was said; raises psycopg.Error once the server is gone."""
        await trio.lowlevel.wait_readable(self._descriptor)
        self._take()

    def _take(self) -> None:
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        while (notice := pgconn.notifies()) is not None:
            self._heard(notice.be_pid)
        if pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the server closed the connection")

    def close(self) -> None:
        """Let go of the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
