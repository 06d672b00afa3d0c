"""The server behind a store: connects to it, and knows its clock, its schema and how far it came.

Who works with a connection, and what happens when it breaks, it must not know.
"""

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
        self.place = ServerAddress(url)
        self.machine = machine
        self.clock = ServerClock()
        self.hurry = Hurry()
        self.reckoning = LostCommitDetector(machine, self.place)
        self.schema = 0
        """The version of the schema, once a writer was connected."""
        self.version = "PostgreSQL"
        self.writer_pid = 0
        """The process at the server that works for our writer."""
        self.size = 0
        """The bytes of the database, as they were at the last look."""

    def open(self, purpose: str) -> ServerConnection:
        """Connect, and take the measure of what is there; raises ServerAway."""
        line = connect(self._url, f"{purpose} {self.machine}")
        line.hurry = self.hurry
        try:
            self._look(line, purpose)
        except StoreRefused as error:
            line.close()
            raise refused(error, self.place.name) from None
        except psycopg.Error as error:
            line.close()
            raise away(error, "opening") from error
        except BaseException:
            line.close()
            raise
        return line

    def _look(self, line: ServerConnection, purpose: str) -> None:
        if purpose == "writer":
            with line.taking_its_time(_MIGRATION_S):
                self.schema = migrate(line, self.place.name)
            batch.prepare(line)
            self.writer_pid = line.info.backend_pid
            self.size = checks.size_of(line)
            self.version = shown_version(line)
            self.place.name = name_of(line)
            self.clock.begin(line)
        elif purpose != "reader":
            self.clock.ask(line)
        # What is done aside takes nobody's place: the lanes and the listener have to notice.
        self.reckoning.look(line, acts=purpose != "aside")

    def follow(self, line: ServerConnection) -> None:
        """Look how far others have come; raises psycopg.Error."""
        self.reckoning.follow(line)

    def beat(self, line: ServerConnection) -> None:
        """Look whether the server is there, what time it is there, and how far it has come.

        Raises psycopg.Error, and ServerAway for a schema that another program has changed.
        """
        self.clock.ask(line)
        self.reckoning.follow(line)
        self.size = checks.size_of(line)
        if (found := version_of(line)) != self.schema:
            raise ServerAway("reading", other_schema(found, self.schema), final=True)
