"""Runs reading jobs on snapshots of the server's data, over connections that break.

A statement is a snapshot by itself. Only a job with more of them needs a transaction, which costs a
message to begin and one to end.
"""

from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

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


class _MoreStatements(Exception):
    """A job that was run without a transaction needs one."""


class SingleStatement:
    """Runs the only statement of a job; ``exceeded`` says that the job asked for more.

    It raises an error then, which the job may have caught: what it came to is void.
    """

    def __init__(self, execute: PostgresExecutor) -> None:
        self._execute = execute
        self._used = False
        self.exceeded = False

    def _use(self) -> None:
        if self._used:
            self._exceed()
        self._used = True

    def _exceed(self) -> NoReturn:
        self.exceeded = True
        raise _MoreStatements

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        self._use()
        return self._execute(sql, params)

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as they come."""
        self._use()
        return self._execute.tuples(sql, params)

    def many(self, sql: str, params: Iterable[Row]) -> None:  # noqa: ARG002
        """Refuse: these are several statements."""
        self._exceed()

    def limited(self, most_ms: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Refuse: a limit is part of a transaction."""
        self._exceed()


class PostgresReader:
    """Runs batches of reading jobs on the connections of one slot."""

    def __init__(self, slot: ConnectionSlot, where: ServerAddress) -> None:
        self._slot = slot
        self._where = where
        self._longer: set[Hashable] = set()
        """The kinds of jobs that had more than one statement."""

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result, or raise ServerAway.

        Who stood still for so long that the server hung up has another try, alone.
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
        """Run jobs; raises psycopg.Error when one of them stood still for too long."""
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
            begun = self._one(connection, job)
            if not begun:
                connection.simple_query(b"ROLLBACK")
        if begun:
            connection.simple_query(b"ROLLBACK")

    def _without_transaction(self, connection: ServerConnection, job: Job) -> bool:
        """Run a job that has a single statement; False, with nothing done, if it has more."""
        if job.kind is None or job.kind in self._longer:
            return False
        execute = SingleStatement(connection.executor)
        self._one(connection, job, execute)
        if execute.exceeded:
            self._longer.add(job.kind)
            job.result = None
        return not execute.exceeded

    def _one(
        self, connection: ServerConnection, job: Job, execute: SingleStatement | None = None
    ) -> bool:
        """Run a job; False when there is no snapshot for another one."""
        try:
            job.succeed(job.run(Tx(execute or connection.executor)))
        except psycopg.Error as error:
            if connection.closed or ends_connection(error):
                raise
            job.fail(translate(error, self._where.name))
            return False
        except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
            job.fail(error)
        return connection.pgconn.transaction_status == TransactionStatus.INTRANS
