"""Group commit: one transaction for many requests, a savepoint for each.

A batch is one transaction with a savepoint per request: a request that raises rolls back to its
own savepoint and hurts no neighbour. SQLite rolls the WHOLE transaction back on some errors (full
disk, I/O, out of memory) and savepoints do not help: after an exception the connection is asked
whether it is still in a transaction, and if not, the members run again one by one.
"""

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import apsw

from ...domain.core.tx import Kept, Row, Tx
from ...host.histogram import Histogram
from ...protocol.errors import FleetError
from ..worker_thread import Job
from .database_files import FileIdentity, FileReplaced, HighWaterMark
from .errors import classify, leaves_doubt, read_failed, translate

log = logging.getLogger("fleetd")


# No statement of a rule takes a second; one that takes longer than this never ends.
STATEMENT_S = 30.0
# How many steps of SQLite's machine are between two looks at the clock: some milliseconds.
_STEPS = 200_000


class SqliteExecutor:
    """What a Tx runs its statements with, on one connection.

    A statement that takes longer than ``limit_s`` is ended with apsw.InterruptError.
    """

    def __init__(self, connection: apsw.Connection, limit_s: float = STATEMENT_S) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._until = math.inf
        connection.set_progress_handler(lambda: time.monotonic() > self._until, _STEPS)

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        self._until = time.monotonic() + self._limit_s
        try:
            return self._rows(sql, params)
        finally:
            self._until = math.inf

    def _rows(self, sql: str, params: Row) -> list[Row]:
        cursor = self._connection.execute(sql, params)
        first = next(cursor, None)
        if first is None:
            return []
        # Read before the last row is taken: then the statement, and its description, are gone.
        names = [column[0] for column in cursor.get_description()]
        rows = [dict(zip(names, first, strict=True))]
        rows.extend(dict(zip(names, row, strict=True)) for row in cursor)
        return rows

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as they come."""
        self._until = time.monotonic() + self._limit_s
        try:
            return list(self._connection.execute(sql, params))
        finally:
            self._until = math.inf

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Run a statement once for each set of parameters."""
        self._connection.executemany(sql, params)


class OutsideTransaction(partial[None]):
    """Work on the writer's connection that cannot be part of a transaction."""


class SqliteCommitter:
    """Runs batches of writing jobs on one connection.

    ``failure`` is set once an I/O error made the store's state unknown, or a file of the database
    was taken away; nothing is written after. Another thread may set it at any moment.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        identity: FileIdentity,
        mark: HighWaterMark,
        kept: Kept | None = None,
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._mark = mark
        self._execute = SqliteExecutor(connection)
        self._kept = kept
        self.failure: BaseException | None = None
        self.landed = False
        """Whether the transaction was committed, as SQLite says it by the hook of the WAL."""
        self.commits = Histogram()
        """How many microseconds each COMMIT of a change took: nearly all of it is the sync."""
        self._changes = connection.total_changes()

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result, committed together where that is possible."""
        if self.failure is None and (problem := self._identity.problem()):
            self.failure = FileReplaced(f"{problem}; {self._identity.save(self._connection)}")
        for outside, group in itertools.groupby(
            jobs, lambda job: isinstance(job.fn, OutsideTransaction)
        ):
            members = list(group)
            if self.failure is not None:
                self._refuse(members, self.failure)
            elif outside:
                self._alone(members)
            elif not self._together(members):
                for job in members:
                    self._together([job])

    def _alone(self, jobs: list[Job]) -> None:
        """Run jobs that SQLite allows outside a transaction only."""
        for job in jobs:
            try:
                job.run(self._connection)
            except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
                self._broken([job], error)
            else:
                job.succeed(None)

    def _together(self, jobs: list[Job]) -> bool:
        """Run jobs in one transaction; False when they should be tried one by one."""
        done: list[tuple[Job, Any]] = []
        self.landed = False
        _roll_back(self._connection)  # what the last one left, if its own end failed
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                self._one(job, done)
            self._commit()
        except _TransactionLost as lost:
            return self._broken(jobs, lost.error)
        except BaseException as error:
            if not self.landed:
                return self._broken(jobs, error)
            # What was told as failed would be asked for again, and done twice.
            log.exception("A batch was committed, but a step after its COMMIT failed")
        if self.failure is not None:  # set by another thread meanwhile: who knows what is kept
            return self._refuse(jobs, self.failure)
        for job, value in done:
            job.succeed(value)
        return True

    def _commit(self) -> None:
        changes = self._connection.total_changes()
        if changes == self._changes:  # nothing to sync would not say how long a sync takes
            self._connection.execute("COMMIT")
            return
        end = self._mark.end_at_commit(self._connection)
        begun = time.perf_counter_ns()
        self._connection.execute("COMMIT")
        self.commits.note((time.perf_counter_ns() - begun) // 1_000)
        self._mark.note(end)
        self._changes = changes

    def _one(self, job: Job, done: list[tuple[Job, Any]]) -> None:
        self._connection.execute("SAVEPOINT request")
        tx = Tx(self._execute, self._kept)
        try:
            value = job.run(tx)
        except Exception as raised:
            error = self._classify(raised)
            if leaves_doubt(error):
                raise
            if not self._connection.in_transaction:
                raise _TransactionLost(error) from raised
            self._connection.execute("ROLLBACK TO request")
            job.effects = []
            job.fail(translate(error))
        else:
            job.effects = tx.effects
            done.append((job, value))
        self._connection.execute("RELEASE request")

    def _broken(self, jobs: list[Job], raised: BaseException) -> bool:
        """Deal with a transaction that is lost; nothing of it was committed."""
        error = self._classify(raised)
        _roll_back(self._connection)
        if leaves_doubt(error) or self._connection.in_transaction:
            self.failure = error
        elif len(jobs) > 1:
            return False
        return self._refuse(jobs, error)

    def _classify(self, error: BaseException) -> BaseException:
        return classify(error, self._connection.system_errno)

    def _refuse(self, jobs: list[Job], error: BaseException) -> bool:
        for job in jobs:
            job.effects = []
            job.fail(translate(error))
        return True


class _TransactionLost(Exception):
    """SQLite ended the whole transaction while one request was at work."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def _roll_back(connection: apsw.Connection) -> None:
    """End a transaction if there is one; where that fails it is still there afterwards."""
    if connection.in_transaction:
        with contextlib.suppress(Exception):
            connection.execute("ROLLBACK")


def run_reads(connection: apsw.Connection, execute: SqliteExecutor, jobs: list[Job]) -> None:
    """Give every reading job its result, each from one consistent snapshot of a connection."""
    for job in jobs:
        _roll_back(connection)  # what the last one left, if its own end failed
        try:
            connection.execute("BEGIN")
            try:
                job.succeed(job.run(Tx(execute)))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except FleetError as error:
            job.fail(error)
        except apsw.IOError as error:
            job.fail(read_failed(error))
        except BaseException as error:  # noqa: BLE001 - it reaches the caller, who logs it
            job.fail(translate(error))
