"""A PostgreSQL connection of which every answer has a deadline.

libpq waits for an answer as long as the kernel believes in the connection: minutes for a network
that swallows everything, for ever for a server that stands still.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

T = TypeVar("T")
# A server that has not answered a statement after this long will not. It is longer than what the
# server itself allows (see connecting.py): who is only slow says so, and the connection remains.
TIMEOUT_S = 9.0
# What the server allows a statement, for whom nothing else was agreed.
STATEMENT_MS = 8_000
# What it allows the wait for a table that somebody has locked, and for the fleet's turn: that wait
# is as long as the queue, and who leaves the queue stands at its end the next time.
TABLE_MS = 6_000
TURN_MS = 30_000
HURRIED_S = 2.0
# How often somebody who waits looks at whether he may still.
_LOOK_S = 0.25


class Stalled(psycopg.OperationalError):
    """The server did not answer in time; nobody knows what became of the statement."""


class Hurry:
    """Whether everything has to end soon, and when a connection of the store was answered last."""

    def __init__(self) -> None:
        self.now = False
        self.answered = 0.0
        """When any of them had an answer last, by the monotonic clock."""


class ServerConnection(psycopg.Connection[Any]):
    """A connection of which every answer has a deadline."""

    timeout_s = TIMEOUT_S
    hurry = Hurry()
    backend = (0, "")
    """The process at the server, and when it began: together they are of one process only."""

    queueing = False
    """Whether an answer may take as long as the queue is, while others do get theirs."""

    executor: Any = None
    """What rules run their statements with here; made by who runs them."""

    def simple_query(self, text: bytes) -> list[PGresult]:
        """Send statements without parameters as one message; return what each came to.

        Beside psycopg's cursors, which forget all that is prepared whenever one rolls back.
        """
        with self.lock:
            self.pgconn.send_query(text)
            results: list[PGresult] = self.wait(execute(self.pgconn))
        if results[-1].status == ExecStatus.FATAL_ERROR:
            raise error_from_result(results[-1])
        return results

    def wait(self, gen: Generator[Any, Any, T], interval: float = _LOOK_S, *_: Any) -> T:
        """Wait for an answer; raises Stalled, and hangs up, when there is none in time."""
        try:
            value: T = super().wait(self._with_deadline(gen), min(interval, _LOOK_S))
        except Stalled:
            self.close()  # nobody could tell a late answer from that to the next question
            raise
        self.hurry.answered = time.monotonic()
        return value

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Wait for a turn for as long as the server is there."""
        self.queueing = True
        try:
            yield
        finally:
            self.queueing = False

    def _with_deadline(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        begun = time.monotonic()
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready:
                    self._look(time.monotonic() - begun)
                state = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value

    def _look(self, waited_s: float) -> None:
        timeout_s = min(self.timeout_s, HURRIED_S) if self.hurry.now else self.timeout_s
        if waited_s > timeout_s and not self._moves_up(waited_s, timeout_s):
            raise Stalled(f"no answer for {waited_s:.0f} s")

    def _moves_up(self, waited_s: float, timeout_s: float) -> bool:
        if not self.queueing or self.hurry.now or waited_s > TURN_MS / 1_000 + timeout_s:
            return False
        return time.monotonic() - self.hurry.answered < timeout_s

    @contextmanager
    def without_timeout(self, seconds: float) -> Iterator[None]:
        """Be patient with work that takes as long as there is data."""
        self.execute(b"SET statement_timeout = 0")
        self.timeout_s = seconds
        try:
            yield
        finally:
            del self.timeout_s  # what it was is the class's
            if not self.closed:
                self.execute(f"SET statement_timeout = {STATEMENT_MS}".encode())
