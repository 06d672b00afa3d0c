"""Jobs that need no turn: each is one statement, sent as a transaction of its own in one message.

The commit waits for no disk and no standby. The job's rule allows that it is lost, or done twice.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import psycopg

from ...domain.core.tx import Row, Tx
from ..worker_thread import Job
from .connection import ServerConnection, translated
from .errors import ServerAway, wrong_schema

_BEFORE = "BEGIN; SET LOCAL synchronous_commit = off; SELECT version FROM schema_version"
_VERSION = _BEFORE.count(";")
"""The place of the schema's version in the message; the job's statement follows it."""


class SingleStatement:
    """Runs the only statement of a rule, and commits it.

    Raises ServerAway for a schema of another version, TypeError for what needs several statements.
    """

    def __init__(self, connection: ServerConnection, version: int) -> None:
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
        cursor = self._cursor
        cursor.execute(f"{_BEFORE}; {translated(sql)}; COMMIT".encode(), params)
        for _ in range(_VERSION):
            cursor.nextset()
        [[found]] = cursor
        if found != self._version:
            raise ServerAway("writing", wrong_schema(found, self._version), final=True)
        cursor.nextset()
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, params: Iterable[Row]) -> None:  # noqa: ARG002
        """Refuse several statements."""
        self._refuse()

    def limited(self, most_ms: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Refuse a limit, which is a statement of its own."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError("a rule without a turn runs one statement")


def run(connection: ServerConnection, job: Job, version: int) -> None:
    """Give a job its result; raises psycopg.Error, ServerAway."""
    tx = Tx(SingleStatement(connection, version))
    try:
        value = job.run(tx)
    except (psycopg.Error, ServerAway):
        raise
    except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
        job.fail(error)
    else:
        job.effects = tx.effects
        job.succeed(value)
