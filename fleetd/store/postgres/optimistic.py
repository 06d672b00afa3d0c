"""Optimistic commit: the transactions of jobs as one message, without a turn that lasts.

The message takes the fleet's turn, runs the scripts of the jobs (see speculation.py) and commits.
When the rows of a job have changed since it read them, those before it are sent again, and the job
and those behind it wait for the next round: they may have changed by what is before them. After a
few rounds in vain, and for what cannot be foreseen, the turn itself is left.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import psycopg
from psycopg.pq.abc import PGresult

from ...domain.core.assigned import Assigned, Counter, Unforeseen, with_numbers
from ...domain.core.tx import Execute
from ..api import Optimistic
from ..worker_thread import Job
from . import batch
from .connection import ServerConnection
from .errors import sqlstate
from .foresight import Foresight, Witness
from .lost_commits import END
from .speculation import Corrections, Script, Speculation

# So many rounds in which nothing is committed.
ROUNDS = 3
# Of more in one message the others would wait for long.
TOGETHER = 32
# A rule knows the time of its run, which the log must not find long ago in its turn.
IN_TIME_MS = 2_000
CONFLICT = "FL001"
"""The SQLSTATE of ``expect``, a function of the schema, for rows that have changed meanwhile."""
# Where a counter stood before a flush. A setting of the same name holds it until COMMIT.
_COUNTERS: dict[Counter, str] = {
    "events": END,
    "fencing": "coalesce((SELECT value FROM counters WHERE name = 'fencing'), 0)",
}


class Failed(Exception):
    """The server did not commit a flush; ``error`` is of the message's ``at``-th statement."""

    def __init__(self, at: int, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.at = at
        self.error = error


class Flush:
    """Scripts that are committed together, and their message."""

    def __init__(self, scripts: list[Script]) -> None:
        self.scripts = scripts
        self._counters = [each for each in _COUNTERS if any(each in one.counted for one in scripts)]
        self._first = 0
        """The place of the first script's first statement in the message."""

    def message(self, frame: Sequence[str]) -> bytes:
        """Return the message; ``frame`` takes the turn, and stands before the scripts.

        Of jobs that refuse it keeps nothing: they come one by one.
        """
        texts = list(frame)
        for counter in self._counters:
            count = _COUNTERS[counter]
            texts.append(f"SELECT set_config('fleetd.{counter}', ({count})::text, true)")
        self._first = len(texts)
        for script, before in self._counted_from(dict.fromkeys(_COUNTERS, 0)):
            number = partial(_number, before)
            texts += [call.text(number) for call in script.calls]
        end = ["ROLLBACK"] if self.scripts[0].error else batch.FLUSH_END
        return "; ".join([*texts, *end]).encode()

    def script_at(self, place: int) -> tuple[Script | None, int]:
        """Return the script of the message's ``place``-th statement, and its place in there.

        None is the frame.
        """
        place -= self._first
        for script in self.scripts:
            if 0 <= place < len(script.calls):
                return script, place
            place -= len(script.calls)
        return None, place

    def values(self, results: Sequence[PGresult]) -> list[object]:
        """Return what the jobs came to, with the numbers that the server gave."""
        found = results[self._first - len(self._counters) : self._first]
        start: dict[Counter, int] = {
            counter: int(result.get_value(0, 0) or 0)
            for counter, result in zip(self._counters, found, strict=True)
        }
        return [with_numbers(each.value, before) for each, before in self._counted_from(start)]

    def _counted_from(
        self, start: dict[Counter, int]
    ) -> Iterator[tuple[Script, dict[Counter, int]]]:
        """Yield each script with how far the counters are before it, the first at ``start``."""
        before = dict(start)
        for script in self.scripts:
            yield script, before
            for counter, times in script.counted.items():
                before[counter] += times


def _number(before: dict[Counter, int], assigned: Assigned) -> str:
    """Return the SQL of a number: where its counter stood, and how many were given since."""
    place = before[assigned.counter] + assigned.place
    return f"current_setting('fleetd.{assigned.counter}')::bigint + {place}"


class OptimisticCommits:
    """Runs jobs in rounds on the connections of a writer, and counts how that goes."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._foresight = Foresight()
        self._speculation: Speculation | None = None
        self.flushes = 0
        self.conflicts = 0
        self.left = 0
        """How many jobs had to have their turn."""

    def round(
        self,
        connection: ServerConnection,
        jobs: Sequence[Job],
        corrections: Corrections,
        send: Callable[[Flush, int], None],
    ) -> list[Job]:
        """Commit what can be; return the jobs that may try again, with what was learned.

        ``send`` commits a flush by a time, gives its jobs their results, or raises Failed.
        A job that cannot be foreseen is no longer ``optimistic``. Raises psycopg.Error for a
        connection that is gone.
        """
        if self._speculation is None or self._speculation.connection is not connection:
            self._speculation = Speculation(connection, self._foresight)
        by_ms = self._now_ms() + IN_TIME_MS
        scripts, others = self._speculation.scripts(jobs, corrections)
        for job in others:
            self._leave(job)
        try:
            self._speculation.statements.prepare()
        except Unforeseen:  # in the next round it is known which one is refused
            return [each.job for each in scripts]
        again: list[Job] = []
        while scripts:
            # What is refused goes alone, after what is kept: nothing of it may be.
            some = [each for each in scripts if each.error is None] or scripts[:1]
            flush = Flush(some)
            self.flushes += 1
            try:
                send(flush, by_ms)
            except Failed as failed:
                self.conflicts += 1
                script, place = flush.script_at(failed.at)
                if script is None:  # the frame's: the turn came too late, and would do so again
                    for each in scripts:
                        self._leave(each.job)
                    return again
                found = failed.error.diag.message_detail
                if sqlstate(failed.error) == CONFLICT and self._speculation.learn(
                    script, place, found, corrections
                ):
                    again.append(script.job)
                else:
                    self._leave(script.job)
                at = some.index(script)
                again += [each.job for each in some[at + 1 :]]
                some = some[at:]
            else:
                self._speculation.committed(some)
            done = {id(each) for each in some}
            scripts = [each for each in scripts if id(each) not in done]
        return again

    def executor(self, connection: ServerConnection, job: Job) -> Execute:
        """Return what runs the statements of a job in its turn.

        What one reads there that had to have its turn helps to foretell what the next one reads.
        """
        if isinstance(job.fn, Optimistic):
            return Witness(connection.executor, self._foresight)
        return connection.executor

    def _leave(self, job: Job) -> None:
        job.optimistic = False
        self.left += 1
