"""Who has which connection: one for each lane, anew when it is lost; must not know any job."""

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
    """The line of one lane: opened when it is needed, or brought by somebody who reconnects."""

    def __init__(self, open_line: Callable[[], ServerConnection]) -> None:
        self.open = open_line
        self._line: ServerConnection | None = None
        self._brought: ServerConnection | None = None
        self._left: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    def get(self) -> ServerConnection:
        """Return an open line; only the lane's own thread may ask. Raises as ``open_line``."""
        if (brought := self._take()) is not None:
            self.drop()
            self._line = brought
        if self._line is None or self._line.closed:
            self.drop()
            self._line = self.open()
        self._end_what_was_left(self._line)
        return self._line

    def _end_what_was_left(self, line: ServerConnection) -> None:
        """End what may still be under way on a connection that only we know is gone.

        The server notices it in minutes, and whatever is locked there stays so until then.
        """
        try:
            while self._left:
                line.execute(_END, self._left[-1])
                self._left.pop()
        except psycopg.Error as error:
            line.close()
            raise away(error, "connecting") from error

    def bring(self, line: ServerConnection) -> None:
        """Have a new line used from the next job on; any thread may bring one."""
        with self._lock:
            earlier, self._brought = self._brought, line
        if earlier is not None:
            earlier.close()

    def _take(self) -> ServerConnection | None:
        with self._lock:
            brought, self._brought = self._brought, None
            return brought

    def drop(self) -> None:
        """Close the line; the next job takes another one."""
        if self._line is not None:
            self._left = [*self._left[-_REMEMBERED:], self._line.backend]
            self._line.close()
            self._line = None

    def close(self) -> None:
        """Close what there is."""
        self.drop()
        if (brought := self._take()) is not None:
            brought.close()
