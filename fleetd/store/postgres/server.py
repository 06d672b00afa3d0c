"""The server behind a store: connects to it, and knows its clock, its schema, its last commit."""

import psycopg

from ..api import StoreRefused
from . import batch, checks
from .connect import connect, name_of, shown_version
from .connection import Hurry, ServerConnection
from .errors import ServerAway, away, other_schema, refused
from .lost_commits import LostCommitDetector
from .migrate import migrate, version_of
from .server_clock import ServerClock
from .url import ServerAddress

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
        self.writer_pid = 0
        """The process at the server that works for our writer."""
        self.size = 0
        """The bytes of the database, as they were at the last look."""

    def open(self, purpose: str) -> ServerConnection:
        """Connect, and take the measure of what is there; raises ServerAway."""
        connection = connect(self._url, f"{purpose} {self.machine}")
        connection.hurry = self.hurry
        try:
            self._look(connection, purpose)
        except StoreRefused as error:
            connection.close()
            raise refused(error, self.address.name) from None
        except psycopg.Error as error:
            connection.close()
            raise away(error, "opening") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _look(self, connection: ServerConnection, purpose: str) -> None:
        if purpose == "writer":
            with connection.without_timeout(_MIGRATION_S):
                self.schema = migrate(connection, self.address.name)
            batch.prepare(connection)
            self.writer_pid = connection.info.backend_pid
            self.size = checks.size_of(connection)
            self.version = shown_version(connection)
            self.address.name = name_of(connection)
            self.clock.begin(connection)
        elif purpose != "reader":
            self.clock.ask(connection)
        # What is done aside takes nobody's place: worker threads and the listener have to notice.
        self.lost_commits.look(connection, acts=purpose != "aside")

    def follow(self, connection: ServerConnection) -> None:
        """Look how far others have come; raises psycopg.Error."""
        self.lost_commits.follow(connection)

    def beat(self, connection: ServerConnection) -> None:
        """Look whether the server is there, what time it is there, and how far it has come.

        Raises psycopg.Error, and ServerAway for a schema that another program has changed.
        """
        self.clock.ask(connection)
        self.lost_commits.follow(connection)
        self.size = checks.size_of(connection)
        if (found := version_of(connection)) != self.schema:
            raise ServerAway("reading", other_schema(found, self.schema), final=True)
