"""Jobs that need no turn: each is one statement, sent as a transaction of its own in one message.

A job waits for the turn only behind an earlier batch of its daemon. Its commit waits for no disk
and no standby. The job's rule allows that it is lost, or done twice.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import psycopg

from ...domain.core.tx import Row, Tx
from ..worker_thread import Job
from .batch import frame_without_turn, is_all_lost
from .connection import ServerConnection, translated
from .errors import CONFLICT, ServerAway, sqlstate, translate, wrong_schema


class SingleStatement:
    """Runs the only statement of a rule, and commits it.

    Raises psycopg.Error, ServerAway for a schema of another version, TypeError for what needs
    several statements.
    """

    def __init__(self, connection: ServerConnection, version: int) -> None:
        self._connection = connection
        self._cursor = psycopg.ClientCursor(connection)
        self._version = version
        self._used = False

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run the statement and return its rows as dicts."""
        rows = self.tuples(sql, params)
        columns = [each.name for each in self._cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run the statement and return its rows as they come."""
        if self._used:
            self._refuse()
        self._used = True
        before, after = frame_without_turn(self._version)
        text = "; ".join([*before, translated(sql), *after])
        try:
            self._cursor.execute(text.encode(), params)
        except psycopg.Error as error:
            if sqlstate(error) == CONFLICT:
                self._refuse_schema()
            raise
        for _ in before:
            self._cursor.nextset()
        return self._cursor.fetchall() if self._cursor.description else []

    def many(self, sql: str, params: Iterable[Row]) -> None:  # noqa: ARG002
        """Refuse several statements."""
        self._refuse()

    def limited(self, most_ms: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Refuse a limit, which is a statement of its own."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError("a rule without a turn runs one statement")

    def _refuse_schema(self) -> NoReturn:
        self._connection.simple_query(b"ROLLBACK")
        [[found]] = self._connection.execute("SELECT version FROM schema_version")
        raise ServerAway("writing", wrong_schema(found, self._version), final=True)


def run(connection: ServerConnection, job: Job, version: int, where: str) -> None:
    """Give a job its result; raises ServerAway, and psycopg.Error if another try may succeed.

    ``where`` is the name of the server, for errors.
    """
    tx = Tx(SingleStatement(connection, version))
    try:
        value = job.run(tx)
    except ServerAway:
        raise
    except Exception as error:
        if is_all_lost(connection, error):
            raise
        connection.simple_query(b"ROLLBACK")
        job.fail(translate(error, where))
    else:
        job.effects = tx.effects
        job.succeed(value)
