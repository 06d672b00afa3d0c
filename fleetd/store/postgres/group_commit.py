"""Group commit on a server that other machines write to as well, over connections that break.

A batch whose transaction is lost runs again, on a new connection if needed. If the connection was
lost during COMMIT, the committer first asks whether the batch was committed. So nothing is reported
as done that is not, and nothing is done twice.
"""

import time
from functools import partial
from itertools import takewhile
from typing import NoReturn

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from ...domain.core.assigned import Unpredictable, holds_assigned
from ...host.histogram import Histogram
from ..worker_thread import Job
from . import batch, without_turn
from .connection import ServerConnection
from .errors import (
    InDoubt,
    ServerAway,
    ServerBehind,
    Stalled,
    as_away,
    ends_connection,
    is_read_only,
    is_transient,
    outcome_unknown,
    sqlstate,
    translate,
    was_idle_too_long,
)
from .optimistic import ROUNDS, TOGETHER, Failed, Flush, OptimisticCommits
from .server import ConnectionSlot, PostgresServer
from .speculation import Corrections

_TRIES = 4
# How long jobs wait for a server that can say whether their lost COMMIT happened.
_DOUBT_S = 5.0
_DOUBT_PAUSE_S = 0.2


class _FlushLost(Exception):
    """The connection went with a flush; its jobs have their results if it was committed."""


class PostgresCommitter:
    """Runs batches of writing jobs on the connections of one slot."""

    def __init__(self, slot: ConnectionSlot, server: PostgresServer) -> None:
        self._slot = slot
        self._server = server
        self._lost_commits = server.lost_commits
        self._machine = server.machine
        self._where = server.address
        self._counted_on: ServerConnection | None = None
        self.commits = Histogram()
        """How many µs each COMMIT took, or the whole message of a batch that is one."""
        self.optimistic = OptimisticCommits(server.clock.now_ms)
        self.has_listeners = True
        """Whether any daemon listened during the last turn that was committed; True if unknown."""

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result; raises ServerAway if some have none.

        A long batch takes several turns, with those of other daemons in between. If the server
        ended a transaction because it was idle for seconds, its first job has another try, alone:
        the machine may have slept. Jobs that need no turn come first.
        """
        jobs = sorted(jobs, key=lambda job: not job.without_turn)
        alone = False
        while jobs:
            try:
                some = _alike(jobs)
                if some[0].optimistic and not alone:
                    jobs = self._optimistically(some) + jobs[len(some) :]
                    continue
                if alone:
                    some = jobs[:1]
                    some[0].optimistic = False
                jobs = jobs[self._in_transaction(some) :]
            except InDoubt:
                raise  # the jobs in doubt have their errors
            except ServerAway:
                _take_back(jobs)
                raise
            except psycopg.Error as error:
                if alone:
                    self._fail(jobs[:1], error)
                    jobs = jobs[1:]
                alone = True

    def _in_transaction(self, jobs: list[Job]) -> int:
        """Run as many jobs as one turn has time for, or one that needs none; return how many.

        It tries again if nothing was committed. Raises psycopg.Error if the transaction was idle
        for too long.
        """
        trouble: psycopg.Error | None = None
        for _ in range(_TRIES):
            _take_back(jobs)
            connection = self._slot.get()
            try:
                if jobs[0].without_turn:
                    without_turn.run(connection, jobs[0], self._server.schema, self._where.name)
                    return 1
                if taken := self._together(connection, jobs):
                    return taken
            except psycopg.Error as error:
                trouble = error
                if was_idle_too_long(error):
                    self._slot.drop()
                    raise
                if not self._is_worth_another(connection, error):
                    break
            except BaseException:
                self._slot.drop()
                raise
        if trouble is None or ends_connection(trouble) or not sqlstate(trouble):
            raise ServerAway("writing", "its connections fail repeatedly")
        self._fail(jobs, trouble)
        return len(jobs)

    def _optimistically(self, jobs: list[Job]) -> list[Job]:
        """Commit optimistic jobs, each flush in one message; return the jobs that need a turn."""
        waiting = jobs
        corrections: Corrections = {}
        in_vain = 0
        while waiting and in_vain < ROUNDS:
            before = len(waiting)
            connection = self._slot.get()
            try:
                self._count_on(connection)
                send = partial(self._flush, connection)
                first = waiting is jobs
                waiting = self.optimistic.round(connection, waiting, corrections, send, first=first)
            except (_FlushLost, Unpredictable):
                break
            except psycopg.Error as error:
                self._is_worth_another(connection, error)
                break
            except InDoubt:
                raise
            except BaseException:
                self._slot.drop()
                raise
            in_vain = 0 if len(waiting) < before else in_vain + 1
        left = [job for job in jobs if job.result is None]
        for job in left:
            if job.optimistic:
                self.optimistic.leave(job)
        return left

    def _flush(self, connection: ServerConnection, by_ms: int, flush: Flush) -> None:
        """Send a flush, and give its jobs their results.

        Raises Failed, InDoubt, _FlushLost, psycopg.Error.
        """
        number = self._lost_commits.batch + 1
        frame = batch.flush_frame(self._machine, number, self._server.schema, by_ms)
        begun = time.perf_counter_ns()
        try:
            with connection.queued():
                results = connection.outcomes(flush.message(frame))
            if results[-1].status == ExecStatus.FATAL_ERROR:
                self._refused(connection, results)
        except psycopg.Error as error:
            self._doubt(connection, flush, number, error)
        [first, *_] = flush.scripts
        if first.error is not None:
            first.job.fail(first.error)
            return
        if results[-1].command_status != b"COMMIT":
            raise psycopg.errors.TransactionRollback("the server rolled back")
        self.commits.note((time.perf_counter_ns() - begun) // 1_000)
        self.has_listeners = batch.has_listeners(results)
        values = flush.values(results)
        self._lost_commits.note(number, flush.log_end)
        for script, value in zip(flush.scripts, values, strict=True):
            script.job.effects = script.effects
            script.job.succeed(value)

    def _refused(self, connection: ServerConnection, results: list[PGresult]) -> None:
        """Roll back what the server refused; raises Failed, or its error for a lost connection."""
        error = error_from_result(results[-1])
        if ends_connection(error):
            raise error
        connection.simple_query(b"ROLLBACK")
        raise Failed(len(results) - 1, error)

    def _doubt(
        self, connection: ServerConnection, flush: Flush, number: int, error: psycopg.Error
    ) -> NoReturn:
        """Give the jobs of a flush that went with its connection their results, if it came about.

        Raises the error of a connection that is still there, InDoubt, else _FlushLost.
        """
        if not (connection.closed or ends_connection(error)):
            raise error
        self._slot.drop()
        if flush.scripts[0].error is not None:  # nothing of it was to be kept
            raise _FlushLost from error
        unknown = outcome_unknown(self._where.name, as_away(error, "committing").message)
        try:
            committed = self._was_committed(number, error)
        except InDoubt:
            for script in flush.scripts:
                script.job.fail(unknown)
            raise
        self.has_listeners = True
        for script in flush.scripts if committed else ():
            script.job.effects = script.effects
            if holds_assigned(script.value):  # the numbers went with the connection
                script.job.fail(unknown)
            else:
                script.job.succeed(script.value)
        raise _FlushLost from error

    def _count_on(self, connection: ServerConnection) -> None:
        """Learn the number of this machine's last batch, on a connection that is new."""
        if connection is not self._counted_on:
            # A killed daemon of this machine, or a lost connection, may have left a COMMIT under
            # way.
            self._lost_commits.note(batch.counted(connection, self._machine), 0)
            self._counted_on = connection

    def _fail(self, jobs: list[Job], error: psycopg.Error) -> None:
        for job in jobs:
            job.effects = []
            job.fail(translate(error, self._where.name))

    def _is_worth_another(self, connection: ServerConnection, error: psycopg.Error) -> bool:
        """Clear up after a transaction of which nothing was committed."""
        if connection.closed or ends_connection(error):
            self._slot.drop()
            if isinstance(error, Stalled):  # whoever tries again would wait as long again
                raise as_away(error, "writing") from error
            return True
        if is_read_only(error):
            self._slot.drop()
            raise as_away(error, "writing") from error
        try:
            connection.simple_query(b"ROLLBACK")
        except psycopg.Error:
            self._slot.drop()
            return True
        return is_transient(error)

    def _together(self, connection: ServerConnection, jobs: list[Job]) -> int:
        """Run jobs in one transaction; return how many, 0 when it is known that it was lost."""
        self._count_on(connection)
        number = self._lost_commits.batch + 1
        turn = batch.begin(connection, self._machine, number, self._server.schema)
        executor = partial(self.optimistic.executor, connection)
        taken, done = batch.requests(connection, jobs, self._where.name, turn.seconds, executor)
        if not done:
            connection.simple_query(b"ROLLBACK")
            return taken
        try:
            if not self._commit(connection, number, read_end=batch.has_events(done)):
                return 0
        except InDoubt as doubt:
            for job, _ in done:
                job.effects = []
                job.fail(outcome_unknown(self._where.name, doubt.message))
            raise
        self.has_listeners = turn.has_listeners
        for job, value in done:
            job.succeed(value)
        return taken

    def _commit(self, connection: ServerConnection, number: int, *, read_end: bool) -> bool:
        begun = time.perf_counter_ns()
        try:
            end = batch.commit(connection, read_end=read_end)
        except psycopg.Error as error:
            if was_idle_too_long(error) or not (connection.closed or ends_connection(error)):
                raise  # the server is there, and says that it did not
            self._slot.drop()
            return self._was_committed(number, error)
        self.commits.note((time.perf_counter_ns() - begun) // 1_000)
        self._lost_commits.note(number, end)
        return True

    def _was_committed(self, number: int, error: psycopg.Error) -> bool:
        """Ask a server, once there is one again, whether a batch is in its log.

        A server that became the primary since may lack a batch that the former one had committed.
        No client had an answer, so the batch may run again.
        """
        deadline = time.monotonic() + _DOUBT_S
        while True:
            try:
                connection = self._slot.get()
                if batch.counted(connection, self._machine) < number:
                    return False
                self._lost_commits.note(number, 0)
                return True
            except ServerBehind:
                raise  # whatever became of it, there it is not
            except (ServerAway, psycopg.Error) as trouble:
                self._slot.drop()
                if time.monotonic() > deadline or self._server.hurry.now:
                    raise InDoubt("committing", as_away(error, "committing").message) from trouble
            time.sleep(_DOUBT_PAUSE_S)


def _alike(jobs: list[Job]) -> list[Job]:
    """Return the first jobs, all of which are optimistic, or none.

    A job that needs no turn is alone.
    """
    if jobs[0].without_turn:
        return jobs[:1]
    kind = jobs[0].optimistic
    alike = list(takewhile(lambda job: job.optimistic == kind, jobs))
    return alike[:TOGETHER] if kind else alike


def _take_back(jobs: list[Job]) -> None:
    """Take back the results of jobs whose transaction was lost.

    The result of an optimistic job is final: it is committed, or refused for good.
    """
    for job in jobs:
        if not job.optimistic:
            job.result, job.effects = None, []
