"""One batch of requests as one transaction, in few round trips.

Each batch takes the fleet's lock first, so one daemon writes at a time. Rules see what they see on
SQLite, and event numbers follow the order of commits. The batch also counts itself in a row of its
machine. After a lost connection, that row says whether the batch was committed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from ...domain.core.assigned import Counter
from ...domain.core.tx import Execute, Ring, Tx
from ..worker_thread import Job
from .connection import (
    LOCK_MS,
    STATEMENT_MS,
    TABLE_MS,
    TURN_MS,
    ServerConnection,
)
from .errors import (
    ServerAway,
    ends_connection,
    is_read_only,
    is_transient,
    translate,
    wrong_schema,
)
from .lost_commits import END

# The lock of every batch of every daemon. Each schema has its own, so two fleets in one database do
# not wait for each other.
_LOCK = "pg_advisory_xact_lock(hashtextextended('fleetd ' || current_schema(), {}))"
_TURN = _LOCK.format(0)
LOCK = f"SELECT {_TURN} AS locked"
# After a wait of one second, PostgreSQL searches for deadlocks while it holds all locks of the
# server. With n waiters for one lock the search takes n * n * n steps, so hundreds stop the server.
# Therefore a daemon first waits in one of these queues, and only the first of each queue waits for
# the turn. The first 32 connected daemons have a queue each. Later ones join one, by a hash.
QUEUES = 32
_OWN_QUEUE = "pg_try_advisory_lock(hashtextextended('fleetd queue ' || current_schema(), each))"
_CLAIM_QUEUE = (
    f"SELECT coalesce((SELECT each FROM generate_series(1, %d) AS each WHERE {_OWN_QUEUE}"
    " LIMIT 1), 1 + mod(abs(hashtext('%s')::bigint), %d))"
)
_QUEUE = _LOCK.format("%d")
LISTENERS = "hashtextextended('fleetd listeners ' || current_schema(), 0)"
"""SQL of a lock's key. Listening daemons share the lock, and each turn tries to take it alone."""
_TAKE_QUEUE_AND_TURN = (
    f"SELECT {_QUEUE} AS queue, {_TURN} AS locked,"
    f" pg_try_advisory_xact_lock({LISTENERS}) AS unheard"
)
# It returns no row if another daemon has counted under the same machine id.
_COUNT = (
    "INSERT INTO writers (machine, batch) VALUES ($1, $2) ON CONFLICT (machine)"
    " DO UPDATE SET batch = excluded.batch WHERE writers.batch = $2 - 1"
    " RETURNING (SELECT version FROM schema_version)"
)
_LAST_FENCING = "coalesce((SELECT value FROM counters WHERE name = 'fencing'), 0)"
_NOW_MS = "extract(epoch FROM clock_timestamp()) * 1000"
_RAISE_CONFLICT = "expect('[false]', '[true]')"
PATIENTLY = (
    f"SET LOCAL lock_timeout = {LOCK_MS}",
    f"SET LOCAL statement_timeout = {TURN_MS + STATEMENT_MS}",
)
"""Statements of a transaction that waits for others' turns."""
_BEGIN_PATIENTLY = ("BEGIN ISOLATION LEVEL READ COMMITTED", *PATIENTLY)
_TAKE_TURN = (
    *_BEGIN_PATIENTLY,
    "EXECUTE take_turns",
    f"SET LOCAL lock_timeout = {TABLE_MS}",
    f"SET LOCAL statement_timeout = {STATEMENT_MS}",
)
_COUNTED = "; ".join(
    (
        *_BEGIN_PATIENTLY,
        "EXECUTE take_turns",
        "SELECT max(batch) FROM writers WHERE machine = '%s'",
        "ROLLBACK",
    )
)


def _kept(counter: Counter, expression: str) -> str:
    """Return what tells where a counter stands, and keeps that until COMMIT (``number_after``)."""
    return f"SELECT set_config('fleetd.{counter}', ({expression})::text, true)"


# Statements around every batch are prepared once, and sent with BEGIN or COMMIT in one message.
# The last three are for a transaction that is one message; their results are not used.
_PREPARED = f"""
    PREPARE count_batch (text, bigint) AS {_COUNT};
    PREPARE log_end AS SELECT {END} AS reached;
    PREPARE events_before AS {_kept("events", END)};
    PREPARE fencing_before AS {_kept("fencing", _LAST_FENCING)};
    PREPARE count_expected (text, bigint, bigint) AS
        WITH counted (version) AS ({_COUNT})
        SELECT {_RAISE_CONFLICT} WHERE NOT EXISTS (SELECT FROM counted WHERE version = $3);
    PREPARE be_in_time (bigint) AS
        SELECT {_RAISE_CONFLICT} WHERE {_NOW_MS} > $1;
    PREPARE expect_version (bigint) AS
        SELECT {_RAISE_CONFLICT} FROM schema_version WHERE version <> $1
"""
_TURN_TAKEN = _TAKE_TURN.index("EXECUTE take_turns")
_BEGIN = "; ".join((*_TAKE_TURN, "EXECUTE count_batch ('%s', %d)"))
_COMMIT = b"COMMIT"
_READ_END_AND_COMMIT = b"EXECUTE log_end; COMMIT"
# The longest turn while others wait. A single request may take longer.
_TURN_S = 0.25
# A daemon that waited this long for its turn has a short one: many others wait too.
_CROWDED_S = 1.0
_SHORT_TURN_S = 0.05
_SAME_ID = (
    "another daemon writes under this machine's id. If its directory was copied from there,"
    " remove the file machine-id here and start fleetd again"
)


def prepare(connection: ServerConnection, machine: str) -> None:
    """Make a connection ready to run batches of a machine."""
    asked = _CLAIM_QUEUE % (QUEUES, machine, QUEUES)
    queue = _number(connection.simple_query(asked.encode())[-1])
    connection.simple_query(
        f"PREPARE take_turns AS {_TAKE_QUEUE_AND_TURN % queue}; {_PREPARED}".encode()
    )


class Turn(NamedTuple):
    """A turn that may take so many seconds."""

    seconds: float
    has_listeners: bool
    """Whether any daemon listens for its commit."""


def begin(connection: ServerConnection, machine: str, number: int, version: int) -> Turn:
    """Take the lock and count the batch.

    ``number`` follows the last one that was committed.
    Raises ServerAway for a schema of another version, which another machine has just made.
    """
    begun = time.monotonic()
    with connection.queued():
        results = connection.simple_query((_BEGIN % (machine, number)).encode())
    found = _number(results[-1])
    if found is None:
        raise ServerAway("writing", _SAME_ID, final=True)
    if found != version:
        raise ServerAway("writing", wrong_schema(found, version), final=True)
    seconds = _SHORT_TURN_S if time.monotonic() - begun > _CROWDED_S else _TURN_S
    return Turn(seconds, has_listeners(results))


def has_listeners(results: Sequence[PGresult]) -> bool:
    """Return whether any daemon listens, by the results of the statements that began a batch."""
    return results[_TURN_TAKEN].get_value(0, 2) != b"t"


def _number(result: PGresult) -> int | None:
    """Return the first column of the first row."""
    value = result.get_value(0, 0) if result.ntuples else None
    return None if value is None else int(value)


def requests(
    connection: ServerConnection,
    jobs: list[Job],
    where: str,
    turn_s: float,
    executor: Callable[[Job], Execute],
) -> tuple[int, list[tuple[Job, Any]]]:
    """Run each job in a savepoint of its own, as many as there is time for, by its executor.

    Returns how many ran, and those to be committed, with their results. A job that raises has its
    error. Raises psycopg.Error if the whole batch is lost.
    """
    done: list[tuple[Job, Any]] = []
    if len(jobs) == 1:  # it has the transaction for a savepoint
        _one(connection, jobs[0], executor, done, where)
        return 1, done
    until = time.monotonic() + turn_s
    for number, job in enumerate(jobs):
        if number and time.monotonic() > until:
            return number, done
        connection.simple_query(
            b"RELEASE request; SAVEPOINT request" if number else b"SAVEPOINT request"
        )
        if not _one(connection, job, executor, done, where):
            connection.simple_query(b"ROLLBACK TO request")
    return len(jobs), done


def _one(
    connection: ServerConnection,
    job: Job,
    executor: Callable[[Job], Execute],
    done: list[tuple[Job, Any]],
    where: str,
) -> bool:
    tx = Tx(executor(job))
    try:
        value = job.run(tx)
        if connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise psycopg.errors.InFailedSqlTransaction("a rule ignored a failed statement")
    except Exception as error:
        if is_all_lost(connection, error):
            raise
        job.effects = []
        job.fail(translate(error, where))
        return False
    job.effects = tx.effects
    done.append((job, value))
    return True


def is_all_lost(connection: ServerConnection, error: Exception) -> bool:
    """Whether an error is of the whole transaction or connection, and not of one job."""
    if connection.closed:
        return True
    return ends_connection(error) or is_read_only(error) or is_transient(error)


def has_events(done: list[tuple[Job, Any]]) -> bool:
    """Whether the log has gone on by what was done."""
    return any(isinstance(effect, Ring) for job, _ in done for effect in job.effects)


def flush_frame(machine: str, number: int, version: int, by_ms: int) -> list[str]:
    """Return the statements that begin a batch of one message.

    They take the lock and count the batch. The batch fails where ``begin`` would, and if its turn
    comes after ``by_ms`` of the server's clock.
    """
    return [
        *_TAKE_TURN,
        f"EXECUTE count_expected ('{machine}', {number}, {version})",
        f"EXECUTE be_in_time ({by_ms})",
    ]


def frame_without_turn(version: int) -> tuple[list[str], list[str]]:
    """Return the statements before and after those of a transaction without a turn.

    It fails for a schema of another version, and its commit waits for no disk and no standby. The
    check comes last: the transaction may have waited for a table that a migration changes.
    """
    begin = ["BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit = off"]
    return begin, [f"EXECUTE expect_version ({version})", "COMMIT"]


def number_after(counter: Counter, times: int) -> str:
    """Return the SQL of the number that a counter reaches after ``times`` more in this batch."""
    return f"current_setting('fleetd.{counter}')::bigint + {times}"


def commit(connection: ServerConnection, *, read_end: bool) -> int:
    """Commit; return how far the log has come, 0 if not asked.

    Raises psycopg.Error, after which nobody knows whether it was committed if the connection is
    gone too.
    """
    results = connection.simple_query(_READ_END_AND_COMMIT if read_end else _COMMIT)
    # A transaction that cannot be committed is rolled back without an error.
    if results[-1].command_status != b"COMMIT":
        raise psycopg.errors.TransactionRollback("the server rolled back")
    return (_number(results[0]) or 0) if read_end else 0


def counted(connection: ServerConnection, machine: str) -> int:
    """Return the number of a machine's last committed batch; no commit is under way then.

    A commit holds the lock until it is done, and this waits for the lock.
    """
    with connection.queued():
        return _number(connection.simple_query((_COUNTED % machine).encode())[-2]) or 0
