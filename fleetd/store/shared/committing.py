"""Group commit on a server that others write to as well; must not know threads, trio or any table.

A batch is one transaction with a savepoint per request, as on SQLite. It begins by taking a lock
that every daemon's batch takes: one writes at a time, so the rules see what they see on SQLite,
and the log's numbers follow each other in the order of commits.
"""

import time
from typing import Any

import psycopg

from ...domain.tx import Ring, Tx
from ...histogram import Histogram
from ...wire.errors import FleetError
from ..lane import Job
from .executing import Executor

CHANNEL = "fleet_events"
# Of every batch of every daemon on this schema. A schema has its own: two fleets of one database do
# not wait for each other.
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('fleetd ' || current_schema(), 0)) AS locked"
_NUMBERED = (
    "INSERT INTO writers (machine, batch) VALUES (%(machine)s, %(batch)s)"
    " ON CONFLICT (machine) DO UPDATE SET batch = excluded.batch"
)


class Committer:
    """Runs batches of writing jobs on one connection."""

    def __init__(self, connection: psycopg.Connection[Any], machine: str, batch: int) -> None:
        self._connection = connection
        self._machine = machine
        self._execute = Executor(connection)
        self.batch = batch
        """The number of the newest batch that was begun."""
        self.commits = Histogram()

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result; raises psycopg.Error when the transaction is lost."""
        done: list[tuple[Job, Any]] = []
        self.batch += 1
        self._connection.execute("BEGIN")
        self._connection.execute(LOCK)
        self._connection.execute(_NUMBERED, {"machine": self._machine, "batch": self.batch})
        for job in jobs:
            self._one(job, done)
        if any(isinstance(effect, Ring) for job, _ in done for effect in job.effects):
            self._connection.execute(f"NOTIFY {CHANNEL}")
        begun = time.perf_counter_ns()
        self._connection.execute("COMMIT")
        self.commits.note((time.perf_counter_ns() - begun) // 1_000)
        for job, value in done:
            job.succeed(value)

    def _one(self, job: Job, done: list[tuple[Job, Any]]) -> None:
        self._connection.execute("SAVEPOINT request")
        tx = Tx(self._execute)
        try:
            value = job.run(tx)
        except psycopg.OperationalError:
            raise
        except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
            self._connection.execute("ROLLBACK TO request")
            job.effects = []
            job.fail(error)
        else:
            job.effects = tx.effects
            done.append((job, value))
        self._connection.execute("RELEASE request")


def run_reads(connection: psycopg.Connection[Any], jobs: list[Job]) -> None:
    """Give every reading job its result, each from one consistent snapshot."""
    execute = Executor(connection)
    for job in jobs:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            job.succeed(job.run(Tx(execute)))
        except psycopg.OperationalError:
            raise
        except FleetError as error:
            job.fail(error)
        except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
            job.fail(error)
        connection.execute("ROLLBACK")
