"""Runs reading jobs on snapshots of the server's data, over connections that break.

A statement is a snapshot by itself. Only a job with several needs a transaction, which takes a
message to begin and one to end.
"""

from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from ...domain.core.tx import Row, Tx
from ..worker_thread import Job
from .connection import PostgresExecutor, ServerConnection
from .errors import (
    ServerAway,
    Stalled,
    as_away,
    ends_connection,
    translate,
    was_idle_too_long,
)
from .server import ConnectionSlot
from .url import ServerAddress

_READ_TRIES = 2
# A kind of job that needed a transaction is tried without one after so many jobs of one statement.
SINGLES = 8


class _NeedsTransaction(Exception):
    """A job that runs without a transaction asked for a second statement."""


class CountedStatements:
    """Runs the statements of a job, and says whether they need a transaction.

    Without one (``alone``) it refuses the second statement. The job may catch that error, so its
    result must be discarded if ``needs_transaction``.
    """

    def __init__(self, execute: PostgresExecutor, *, alone: bool) -> None:
        self._execute = execute
        self._alone = alone
        self._used = False
        self.needs_transaction = False

    def _use(self) -> None:
        if self._used:
            self._require_transaction()
        self._used = True

    def _require_transaction(self) -> None:
        self.needs_transaction = True
        if self._alone:
            raise _NeedsTransaction

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        self._use()
        return self._execute(sql, params)

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as they come."""
        self._use()
        return self._execute.tuples(sql, params)

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Run a statement once for each set of parameters."""
        self._require_transaction()
        self._execute.many(sql, params)

    def limited(self, most_ms: int) -> AbstractContextManager[None]:
        """Return what ends each statement inside after so long: a setting of the transaction."""
        self._require_transaction()
        return self._execute.limited(most_ms)


class PostgresReader:
    """Runs batches of reading jobs on the connections of one slot."""

    def __init__(self, slot: ConnectionSlot, where: ServerAddress) -> None:
        self._slot = slot
        self._where = where
        self._singles: dict[Hashable, int] = {}
        """For each kind of job that needed a transaction, how many jobs since then did not."""

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result, or raise ServerAway.

        A job that was idle for so long that the server hung up has another try, alone.
        """
        alone = False
        while left := [job for job in jobs if job.result is None]:
            try:
                self._some(left[:1] if alone else left)
            except psycopg.Error as error:
                if alone and left[0].result is None:
                    left[0].fail(translate(error, self._where.name))
                alone = True

    def _some(self, jobs: list[Job]) -> None:
        """Run jobs; raises psycopg.Error if one of them was idle for too long."""
        for left in reversed(range(_READ_TRIES)):
            connection = self._slot.get()
            try:
                self._together(connection, [job for job in jobs if job.result is None])
            except psycopg.Error as error:
                self._slot.drop()
                if was_idle_too_long(error):
                    raise
                if isinstance(error, Stalled) or not left:
                    raise as_away(error, "reading") from error
            else:
                return
        raise ServerAway("reading", "its connections fail repeatedly")

    def _together(self, connection: ServerConnection, jobs: list[Job]) -> None:
        """Run jobs on one snapshot, which is newer than all that they were asked after."""
        begun = False
        for job in jobs:
            if not begun:
                if self._without_transaction(connection, job):
                    continue
                connection.simple_query(b"BEGIN")
            begun = self._in_transaction(connection, job)
            if not begun:
                connection.simple_query(b"ROLLBACK")
        if begun:
            connection.simple_query(b"ROLLBACK")

    def _without_transaction(self, connection: ServerConnection, job: Job) -> bool:
        """Run a job for which one statement is likely to do; False, without a result, if not."""
        if self._singles.get(job.kind, SINGLES) < SINGLES:
            return False
        execute = CountedStatements(connection.executor, alone=True)
        self._one(connection, job, execute)
        if execute.needs_transaction:
            job.result = None
            return False
        return True

    def _in_transaction(self, connection: ServerConnection, job: Job) -> bool:
        """Run a job; False when the transaction went with it."""
        execute = CountedStatements(connection.executor, alone=False)
        goes_on = self._one(connection, job, execute)
        if execute.needs_transaction:
            self._singles[job.kind] = 0
        elif job.kind in self._singles:
            self._singles[job.kind] += 1
        return goes_on

    def _one(self, connection: ServerConnection, job: Job, execute: CountedStatements) -> bool:
        """Run a job; return whether there is a transaction after it."""
        try:
            job.succeed(job.run(Tx(execute)))
        except psycopg.Error as error:
            if connection.closed or ends_connection(error):
                raise
            job.fail(translate(error, self._where.name))
            return False
        except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
            job.fail(error)
        return connection.pgconn.transaction_status == TransactionStatus.INTRANS
