"""Optimistic commit: several jobs commit in one message, with no round trip during the turn.

The message takes the fleet's turn, runs the scripts of the jobs (see speculation.py) and commits.
If the rows of a job have changed since it read them, the jobs before it are sent again at once. The
jobs behind it read again in the next round, and the job itself goes last. A job that fails for
several rounds, or that cannot be predicted, waits for a turn of its own.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import get_args

import psycopg
from psycopg.pq.abc import PGresult

from ...domain.core.assigned import Assigned, Counter, Unpredictable, with_numbers
from ...domain.core.tx import Execute
from ...protocol.status import OptimisticFigures
from ..api import Optimistic
from ..worker_thread import Job
from . import batch
from .connection import STATEMENT_MS, TURN_MS, ServerConnection
from .errors import CONFLICT, sqlstate
from .predictor import Predictor, RecordingExecutor
from .speculation import Corrections, Script, Speculation

# After so many rounds without progress, the jobs that are left wait for their turns.
ROUNDS = 3
# The most jobs in one message: more would delay the other daemons.
TOGETHER = 32
# A rule has the time at which it ran. If its turn comes later than this, the rule runs again, and
# the second time any wait is accepted: with hundreds of machines in the queue, all would be late.
# After a flush with a long wait, twice that wait is allowed, up to the limit below.
IN_TIME_MS = 2_000
CROWDED_MS = 10_000
_COUNTERS: tuple[Counter, ...] = get_args(Counter)


class Failed(Exception):
    """The server did not commit a flush; ``error`` is of the message's ``at``-th statement."""

    def __init__(self, at: int, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.at = at
        self.error = error


class _Late(Exception):
    """The turn came later than a flush allows."""


class _Refused(Exception):
    """The turn was refused."""


class Flush:
    """Scripts that are committed together, and their message."""

    def __init__(self, scripts: list[Script]) -> None:
        self.scripts = scripts
        # A commit always returns the log's end.
        needed = {each for script in scripts for each in script.counted}
        if not scripts[0].error:
            needed.add("events")
        self._counters = [each for each in _COUNTERS if each in needed]
        self._first = 0
        """The place of the first script's first statement in the message."""
        self._in_time = -1
        """The place of the statement that fails where the turn comes late."""
        self._start: dict[Counter, int] = dict.fromkeys(_COUNTERS, 0)

    def message(self, frame: Sequence[str]) -> bytes:
        """Return the message; ``frame`` takes the turn and precedes the scripts.

        A job that refuses is alone in its flush, which ends with ROLLBACK.
        """
        texts = list(frame)
        self._in_time = len(texts) - 1
        texts += [f"EXECUTE {counter}_before" for counter in self._counters]
        self._first = len(texts)
        for script, before in self._counted_from(dict.fromkeys(_COUNTERS, 0)):
            number = partial(_number, before)
            texts += [call.text(number) for call in script.calls]
        texts.append("ROLLBACK" if self.scripts[0].error else "COMMIT")
        return "; ".join(texts).encode()

    def is_late(self, failed: Failed) -> bool:
        """Whether it failed because its turn came late."""
        return failed.at == self._in_time and sqlstate(failed.error) == CONFLICT

    def script_at(self, place: int) -> tuple[Script | None, int]:
        """Return the script of the message's ``place``-th statement, and the place in that script.

        None stands for the frame.
        """
        place -= self._first
        for script in self.scripts:
            if 0 <= place < len(script.calls):
                return script, place
            place -= len(script.calls)
        return None, place

    def values(self, results: Sequence[PGresult]) -> list[object]:
        """Return the results of the jobs, with the numbers that the server gave out."""
        found = results[self._first - len(self._counters) : self._first]
        for counter, result in zip(self._counters, found, strict=True):
            self._start[counter] = int(result.get_value(0, 0) or 0)
        return [with_numbers(each.value, before) for each, before in self.counted()]

    @property
    def log_end(self) -> int:
        """Return the log's end after this flush, once its ``values`` are known."""
        added = sum(each.counted.get("events", 0) for each in self.scripts)
        return self._start["events"] + added

    def counted(self) -> Iterator[tuple[Script, dict[Counter, int]]]:
        """Yield each script with the counters before it, once they are known."""
        return self._counted_from(self._start)

    def _counted_from(
        self, start: dict[Counter, int]
    ) -> Iterator[tuple[Script, dict[Counter, int]]]:
        """Yield each script with the counters before it, beginning with ``start``."""
        before = dict(start)
        for script in self.scripts:
            yield script, before
            for counter, times in script.counted.items():
                before[counter] += times


def _number(before: dict[Counter, int], assigned: Assigned) -> str:
    """Return the SQL of a number, given how many the scripts before it in the message use."""
    return batch.number_after(assigned.counter, before[assigned.counter] + assigned.place)


class OptimisticCommits:
    """Runs jobs in rounds on the connections of a writer, and counts how that goes."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.predictor = Predictor()
        self._speculation: Speculation | None = None
        self.flushes = 0
        self.conflicts = 0
        self.left = 0
        """How many jobs had to have their turn."""
        self._waited_ms = 0
        """How long the last flush with a turn took, mostly the wait for that turn."""
        self._was_late = False

    @property
    def figures(self) -> OptimisticFigures:
        """Return the counts so far."""
        return OptimisticFigures(tries=self.flushes, conflicts=self.conflicts, in_turn=self.left)

    def round(
        self,
        connection: ServerConnection,
        jobs: Sequence[Job],
        corrections: Corrections,
        send: Callable[[int, Flush], None],
        *,
        first: bool,
    ) -> list[Job]:
        """Commit the jobs that can be; return those that may try again, with what was learned.

        In their ``first`` round, jobs do not ask for answers that are predicted surely. ``send``
        commits a flush before a time and gives its jobs their results, or raises Failed. A job that
        cannot be predicted is no longer ``optimistic``. Raises psycopg.Error for a lost connection.
        """
        if self._speculation is None or self._speculation.connection is not connection:
            self._speculation = Speculation(connection, self.predictor)
        self._was_late = self._was_late and not first
        in_ms = max(IN_TIME_MS, min(2 * self._waited_ms, CROWDED_MS))
        by_ms = self._now_ms() + (TURN_MS + STATEMENT_MS if self._was_late else in_ms)
        scripts, others = self._speculation.scripts(jobs, corrections, trusting=first)
        for job in others:
            self.leave(job)
        try:
            self._speculation.statements.prepare()
        except Unpredictable:  # in the next round it is known which one is refused
            return [each.job for each in scripts]
        again: list[Job] = []
        while scripts:
            # Refusals go alone, after the others: they must be rolled back.
            some = [each for each in scripts if each.error is None] or scripts[:1]
            try:
                tried, retried = self._send(
                    self._speculation, some, corrections, partial(send, by_ms)
                )
            except _Late:
                self._was_late = True
                again += [each.job for each in scripts]
                break
            except _Refused:
                for each in scripts:
                    self.leave(each.job)
                break
            again += [each.job for each in retried]
            done = {id(each) for each in tried}
            scripts = [each for each in scripts if id(each) not in done]
        return again

    def _send(
        self,
        speculation: Speculation,
        scripts: list[Script],
        corrections: Corrections,
        send: Callable[[Flush], None],
    ) -> tuple[list[Script], list[Script]]:
        """Send a flush; return the scripts that this round is done with, and those to try again.

        Raises _Late, _Refused.
        """
        flush = Flush(scripts)
        self.flushes += 1
        begun = time.monotonic()
        try:
            send(flush)
        except Failed as failed:
            if flush.is_late(failed):
                self._waited_ms = int((time.monotonic() - begun) * 1_000)
                raise _Late from failed
            script, place = flush.script_at(failed.at)
            if script is None:
                raise _Refused from failed
            at = scripts.index(script)
            found = failed.error.diag.message_detail
            changed = sqlstate(failed.error) == CONFLICT
            self.conflicts += changed
            if changed and speculation.learn(script, place, found, corrections):
                # It comes last: the scripts behind it may not depend on it.
                return scripts[at:], [*scripts[at + 1 :], script]
            self.leave(script.job)
            return scripts[at:], scripts[at + 1 :]
        self._waited_ms = int((time.monotonic() - begun) * 1_000)
        for each, before in flush.counted():
            speculation.committed(each, before)
        return scripts, []

    def executor(self, connection: ServerConnection, job: Job) -> Execute:
        """Return what runs the statements of a job in its turn.

        What an optimistic job reads in its turn helps to predict what the next one reads.
        """
        if isinstance(job.fn, Optimistic):
            return RecordingExecutor(connection.executor, self.predictor)
        return connection.executor

    def leave(self, job: Job) -> None:
        """Let a job wait for its turn."""
        job.optimistic = False
        self.left += 1
