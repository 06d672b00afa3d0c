"""The PostgreSQL server of a store: opens connections, knows its clock, schema and last commit."""

import threading
import time
from collections.abc import Callable

import psycopg

from ..api import StoreRefused
from . import batch, checks
from .connection import Hurry, ServerConnection, connect, name_of, shown_version
from .errors import ServerAway, as_away, schema_refusal, wrong_schema
from .lost_commits import LostCommitDetector
from .migrate import migrate
from .server_clock import ServerClock, own_ns, reading
from .url import ServerAddress

# Ends only a process of the same role, which needs no privilege. If it began later than the one
# that was left, or the server was restarted or replaced, the number is another process's.
_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = %s AND extract(epoch FROM backend_start)::float8 <= %s"
    " AND extract(epoch FROM pg_postmaster_start_time())::float8 = %s"
)
# Of more there would be nothing left after so many attempts.
_REMEMBERED = 3


class ConnectionSlot:
    """A thread's connection: opened when it is needed, or brought by whoever reconnects."""

    def __init__(self, open_connection: Callable[[], ServerConnection]) -> None:
        self.open = open_connection
        self._connection: ServerConnection | None = None
        self._brought: ServerConnection | None = None
        self._left: list[tuple[int, float, float]] = []
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
            raise as_away(error, "connecting") from error

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


# Each statement of a reader is a transaction by itself, or part of one.
_READ_ONLY = (
    b"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
)
_MEASURE_S = 600.0
# A new version of the schema may rewrite what is there.
_MIGRATION_S = 3_600.0


class PostgresServer:
    """Opens connections that are ready for work; used by several threads."""

    def __init__(self, url: str, machine: str) -> None:
        self._url = url
        self.address = ServerAddress(url)
        self.machine = machine
        self.clock = ServerClock()
        self.hurry = Hurry()
        self.lost_commits = LostCommitDetector(machine, self.address)
        self.schema = 0
        """The version of the schema, once a writer was connected."""
        self.version = "PostgreSQL"
        self.size = 0
        """The bytes of the database, as they were some minutes ago."""
        self._measure_at = 0.0

    def open(self, purpose: str) -> ServerConnection:
        """Connect, and look at schema, clock and last commit; raises ServerAway."""
        connection = connect(self._url, f"{purpose} {self.machine}")
        connection.hurry = self.hurry
        try:
            self._look(connection, purpose)
        except StoreRefused as error:
            connection.close()
            raise schema_refusal(error, self.address.name) from None
        except psycopg.Error as error:
            connection.close()
            raise as_away(error, "opening") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _look(self, connection: ServerConnection, purpose: str) -> None:
        if purpose == "writer":
            with connection.without_timeout(_MIGRATION_S):
                self.schema = migrate(connection, self.address.name)
            batch.prepare(connection, self.machine)
            self._measure(connection)
            self.version = shown_version(connection)
            self.address.name = name_of(connection)
            self.clock.begin(connection)
        elif purpose == "reader":
            connection.simple_query(_READ_ONLY)
        else:
            self.clock.ask(connection)
        # What is done aside takes nobody's place: worker threads and the listener have to notice.
        self.lost_commits.look(connection, acts=purpose != "aside")

    def beat(self, connection: ServerConnection) -> int:
        """Look whether the server is there, and what time it is there; return the log's end.

        Raises psycopg.Error, and ServerAway for a schema that another program has changed.
        """
        asked = own_ns()
        found = self.lost_commits.follow(connection)
        if not self.clock.accept(reading(asked, found.now_ms, own_ns())):
            self.clock.ask(connection)
        self._measure(connection)
        if found.schema != self.schema:
            raise ServerAway("reading", wrong_schema(found.schema, self.schema), final=True)
        return found.end

    def _measure(self, connection: ServerConnection) -> None:
        """Look how large the database is, now and then: the server looks at every file of it."""
        if time.monotonic() >= self._measure_at:
            self.size = checks.size_of(connection)
            self._measure_at = time.monotonic() + _MEASURE_S
