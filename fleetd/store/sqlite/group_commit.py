"""Group commit: one transaction for many requests, a savepoint for each.

A batch is one transaction with a savepoint per request: a request that raises rolls back to its
own savepoint and leaves the others intact. A lone request needs no savepoint. SQLite rolls the
WHOLE transaction back on some errors (full disk, I/O, out of memory) and savepoints do not help.
After an exception the committer therefore asks the connection whether it is still in a
transaction; if it is not, the requests run again one by one.
"""

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import apsw

from ...domain.core.tx import Kept, Row, TookTooLong, Tx
from ...host.histogram import Histogram
from ...protocol.errors import FleetError
from ..worker_thread import Job
from .connect import STATEMENTS
from .database_files import FileIdentity, FileReplaced, HighWaterMark
from .errors import classify, leaves_doubt, read_failed, translate

log = logging.getLogger("fleetd")


# No statement of a rule takes a second; one that takes longer than this never ends.
STATEMENT_S = 30.0
# Steps of SQLite's virtual machine between two looks at the clock: less than a millisecond.
_STEPS = 20_000
# A job may hold up the event loop this long before its COMMIT; then the thread runs it again.
LOOP_S = 0.005


class NotNow(Exception):
    """The event loop does not wait: another program holds a lock, or the job takes too long."""


class SqliteExecutor:
    """Runs the statements of a Tx on one connection.

    A statement that takes longer than ``limit_s`` ends with apsw.InterruptError. Column names are
    cached by the text of the statement: SQLite takes as long to report them as to find a row.
    """

    def __init__(self, connection: apsw.Connection, limit_s: float = STATEMENT_S) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._until: float | None = math.inf
        """When the running statement is ended; None until its first look at the clock."""
        self._loop_until = math.inf
        """When the event loop gives up the job that runs on it."""
        self._names: dict[str, tuple[str, ...]] = {}
        connection.set_progress_handler(self._takes_too_long, _STEPS)

    @contextlib.contextmanager
    def on_loop(self) -> Iterator[None]:
        """Raise NotNow when the job inside has used up its time on the event loop."""
        self._loop_until = time.monotonic() + LOOP_S
        try:
            yield
        except apsw.InterruptError as error:
            if time.monotonic() > self._loop_until:
                raise NotNow from error
            raise
        finally:
            self._loop_until = math.inf

    @contextlib.contextmanager
    def limited(self, most_ms: int) -> Iterator[None]:
        """End each statement inside with TookTooLong after ``most_ms``.

        On the event loop, a job that takes too long first moves to the thread, with this limit.
        """
        before, self._limit_s = self._limit_s, most_ms / 1_000
        try:
            yield
        except apsw.InterruptError as error:
            if time.monotonic() > self._loop_until:
                raise
            raise TookTooLong from error
        finally:
            self._limit_s = before

    def _takes_too_long(self) -> bool:
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._limit_s
        return now > self._until or now > self._loop_until

    def _begin(self) -> None:
        self._until = None
        self._look_at_loop()

    def _look_at_loop(self) -> None:
        if self._loop_until < math.inf and time.monotonic() > self._loop_until:
            raise NotNow

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        self._begin()
        try:
            cursor = self._connection.execute(sql, params)
            first = next(cursor, None)
            if first is None:
                return []
            names = self._names.get(sql)
            # Another program may have added a column; fleetd changes the schema only at a start.
            if names is None or len(names) != len(first):
                names = self._learn(sql, cursor)
            rows = [dict(zip(names, first, strict=True))]
            rows += [dict(zip(names, row, strict=True)) for row in cursor]
            return rows
        finally:
            self._until = math.inf

    def _learn(self, sql: str, cursor: apsw.Cursor) -> tuple[str, ...]:
        """Cache the names of a statement's columns.

        Call it before the last row is taken: after that the statement and its description are gone.
        """
        if len(self._names) >= STATEMENTS:  # lists in texts make endless variants
            self._names.clear()
        names = self._names[sql] = tuple(column[0] for column in cursor.get_description())
        return names

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as tuples."""
        self._begin()
        try:
            return self._connection.execute(sql, params).fetchall()
        finally:
            self._until = math.inf

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Run a statement once for each set of parameters."""
        self._look_at_loop()
        self._connection.executemany(sql, params)


# From this mean on, a COMMIT holds up all tasks for longer than a thread costs its caller.
FAST_US = 1_000
# COMMITs this slow recur on a disk that goes idle, or that other programs keep busy.
SLOW_US = 20_000
_SAMPLES = 32
_FEW, _MANY = 64, 8_192


class CommitPace:
    """Whether a COMMIT is quick enough to run on the event loop.

    A disk has to prove that first, and again after each very slow COMMIT. It needs ``_FEW`` quick
    ones then, or twice as many as the last time when the next slow one came soon.
    """

    def __init__(self) -> None:
        self._mean_us = 2.0 * FAST_US
        self._quick = 0
        """How many quick ones there were since the last slow one."""
        self._wanted = 0

    @property
    def is_fast(self) -> bool:
        """Whether commits are quick, and have been for a while."""
        return self._mean_us < FAST_US and self._quick >= self._wanted

    def note(self, took_us: int) -> None:
        """Record how long a COMMIT took."""
        self._mean_us += (took_us - self._mean_us) / _SAMPLES
        if took_us < SLOW_US:
            self._quick += 1
            return
        soon = self._quick < 2 * self._wanted
        self._wanted = min(2 * self._wanted, _MANY) if soon else _FEW
        self._quick = 0


class OutsideTransaction(partial[None]):
    """Work on the writer's connection that cannot be part of a transaction."""


class SqliteCommitter:
    """Runs batches of writing jobs on one connection.

    ``failure`` is set once an I/O error made the store's state unknown, or a database file was
    taken away; nothing is written after that. Another thread may set it at any moment.
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
        """Whether the transaction was committed, as SQLite's WAL hook reports."""
        self.on_loop = False
        """Whether a job runs here on the event loop, which never waits for a lock."""
        self.commits = Histogram()
        """Microseconds that each COMMIT of a change took, nearly all of them for the sync."""
        self._pace = CommitPace()

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result, committed together where possible."""
        if self.failure is None and not self._identity.intact:
            self._look_at_files()
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

    def run_here(self, job: Job) -> bool:
        """Give one job its result on the event loop; return False when the thread has to.

        It has to when the disk is slow, another program holds a lock, or anything is wrong.
        """
        if self.failure is not None or not (self._pace.is_fast and self._identity.intact):
            return False
        self.on_loop = True
        try:
            self._together([job])
        except NotNow:
            _roll_back(self._connection)
            return False
        finally:
            self.on_loop = False
        return True

    def _look_at_files(self) -> None:
        """Stop when a database file was removed or replaced; one that is new is no problem."""
        if problem := self._identity.problem():
            self.failure = FileReplaced(f"{problem}; {self._identity.save(self._connection)}")

    def _alone(self, jobs: list[Job]) -> None:
        """Run jobs that SQLite allows only outside a transaction."""
        for job in jobs:
            try:
                job.run(self._connection)
            except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
                self._broken([job], error)
            else:
                job.succeed(None)

    def _together(self, jobs: list[Job]) -> bool:
        """Run jobs in one transaction; return False when they should run one by one."""
        done: list[tuple[Job, Any, int]] = []
        self.landed = False
        _roll_back(self._connection)  # the previous one may have failed to end
        try:
            self._begin()
            if len(jobs) == 1:  # the transaction serves as its savepoint
                self._carry_out(jobs[0], done)
            else:
                for job in jobs:
                    self._one(job, done)
            self._commit(done[-1][2] if done else 0)
        except NotNow:
            raise
        except _TransactionLost as lost:
            return self._broken(jobs, lost.error)
        except BaseException as error:
            if not self.landed:
                return self._broken(jobs, error)
            # A client that received a failure would repeat its request, and it would run twice.
            log.exception("A batch was committed, but a step after its COMMIT failed")
        if self.failure is not None:  # set by another thread meanwhile: the outcome is unknown
            return self._refuse(jobs, self.failure)
        for job, value, _ in done:
            job.succeed(value)
        return True

    def _begin(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as busy:
            if self.on_loop:
                raise NotNow from busy
            raise

    def _commit(self, end: int) -> None:
        """Commit; ``end`` is the end of the log by then, or 0 when it has to be looked up."""
        end = end or self._mark.end_at_commit(self._connection)
        begun = time.perf_counter_ns()
        self._connection.execute("COMMIT")
        if self.landed:  # with nothing to sync, it would not measure a sync
            took_us = (time.perf_counter_ns() - begun) // 1_000
            self.commits.note(took_us)
            self._pace.note(took_us)
            self._mark.note(end)

    def _one(self, job: Job, done: list[tuple[Job, Any, int]]) -> None:
        """Run one of several jobs in its own savepoint."""
        self._connection.execute("SAVEPOINT request")
        try:
            self._carry_out(job, done)
        except Exception as raised:
            error = self._classify(raised)
            if leaves_doubt(error):
                raise
            if not self._connection.in_transaction:
                raise _TransactionLost(error) from raised
            self._connection.execute("ROLLBACK TO request")
            job.fail(translate(error))
        self._connection.execute("RELEASE request")

    def _carry_out(self, job: Job, done: list[tuple[Job, Any, int]]) -> None:
        tx = Tx(self._execute, self._kept)
        with self._execute.on_loop() if self.on_loop else contextlib.nullcontext():
            value = job.run(tx)
        job.effects = tx.effects
        done.append((job, value, tx.log_end))

    def _broken(self, jobs: list[Job], raised: BaseException) -> bool:
        """Handle a lost transaction; nothing of it was committed."""
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
    """SQLite ended the whole transaction while one request ran."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def _roll_back(connection: apsw.Connection) -> None:
    """End the transaction if there is one; it stays open where that fails."""
    if connection.in_transaction:
        with contextlib.suppress(Exception):
            connection.execute("ROLLBACK")


class SqliteReader:
    """Runs reading jobs, each on one consistent snapshot of a connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = SqliteExecutor(connection)
        self.on_loop = False
        """Whether a job runs here on the event loop, which never waits for a lock."""

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result."""
        for job in jobs:
            self._one(job)

    def run_here(self, job: Job) -> bool:
        """Give one job its result on the event loop; return False when the thread has to."""
        self.on_loop = True
        try:
            self._one(job)
        finally:
            self.on_loop = False
        return job.result is not None

    def _one(self, job: Job) -> None:
        connection = self._connection
        _roll_back(connection)  # the previous one may have failed to end
        try:
            connection.execute("BEGIN")
            try:
                with self._execute.on_loop() if self.on_loop else contextlib.nullcontext():
                    job.succeed(job.run(Tx(self._execute)))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except FleetError as error:
            job.fail(error)
        except apsw.IOError as error:
            job.fail(read_failed(error))
        except BaseException as error:  # noqa: BLE001 - it reaches the caller, who logs it
            # The event loop does not wait for these: the thread runs the job.
            if not (self.on_loop and isinstance(error, apsw.BusyError | NotNow)):
                job.fail(translate(error))
