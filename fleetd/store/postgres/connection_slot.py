"""Connection slot: the connection of one worker thread, replaced when it is lost."""

import threading
from collections.abc import Callable

import psycopg

from .connection import ServerConnection
from .errors import away

# Of the role's own processes only, which needs no privilege.
_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = %s AND backend_start::text = %s"
)
# Of more there would be nothing left after so many attempts.
_REMEMBERED = 3


class ConnectionSlot:
    """A thread's connection: opened when it is needed, or brought by whoever reconnects."""

    def __init__(self, open_connection: Callable[[], ServerConnection]) -> None:
        self.open = open_connection
        self._connection: ServerConnection | None = None
        self._brought: ServerConnection | None = None
        self._left: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    def get(self) -> ServerConnection:
        """Return an open connection; for the worker thread only. Raises as ``open_connection``."""
        if (brought := self._take()) is not None:
            self.drop()
            self._connection = brought
        if self._connection is None or self._connection.closed:
            self.drop()
            self._connection = self.open()
        self._end_what_was_left(self._connection)
        return self._connection

    def _end_what_was_left(self, connection: ServerConnection) -> None:
        """End what may still be under way on a connection that only we know is gone.

        The server notices it in minutes, and whatever is locked there stays so until then.
        """
        try:
            while self._left:
                connection.execute(_END, self._left[-1])
                self._left.pop()
        except psycopg.Error as error:
            connection.close()
            raise away(error, "connecting") from error

    def bring(self, connection: ServerConnection) -> None:
        """Have a new connection used from the next job on; any thread may bring one."""
        with self._lock:
            earlier, self._brought = self._brought, connection
        if earlier is not None:
            earlier.close()

    def _take(self) -> ServerConnection | None:
        with self._lock:
            brought, self._brought = self._brought, None
            return brought

    def drop(self) -> None:
        """Close the connection; the next job takes another one."""
        if self._connection is not None:
            self._left = [*self._left[-_REMEMBERED:], self._connection.backend]
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close what there is."""
        self.drop()
        if (brought := self._take()) is not None:
            brought.close()
