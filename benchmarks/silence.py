"""Looking for missions that fell silent: what it costs, and that it does not grow with the log."""

from collections.abc import Iterator

import apsw

from fleetd.clocks import uptime
from fleetd.config import Config
from fleetd.domain.context import Caller, Context
from fleetd.domain.tx import Tx
from fleetd.domain.watching import DueGet, due
from fleetd.engine import random_id
from fleetd.store.commit import Executor
from fleetd.store.migrate import schema
from fleetd.store.opening import connect

from .bench import Bench
from .rows import Promise, Row

MISSIONS = 1_000
# One takes microseconds, less than it takes to wake up after the fsync beside it.
AT_ONCE = 100
NOW = "2026-01-05T12:00:00.000Z"
EVENTS = (10_000, 1_000_000)


def scanning(bench: Bench) -> Iterator[Row]:
    """Measure the scan over 1,000 missions in progress, beside a short log and a long one."""
    connection = connect(str(bench.directory / "silence.db"))
    try:
        connection.execute(schema())
        _missions(connection)
        for events in EVENTS:
            wanted = events // 50 if bench.quick else events
            _events(connection, wanted)
            with connection:  # the daemon's reader has its transaction open as well
                yield _scan(
                    bench, connection, f"{AT_ONCE} silence scans, 1,000 missions, {wanted:,} events"
                )
    finally:
        connection.close()


def _scan(bench: Bench, connection: apsw.Connection, name: str) -> Row:
    tx, up = Tx(Executor(connection)), uptime()
    ctx = Context(
        now_ms=0,
        awake_ms=up.awake_ms,
        boot_id=up.boot_id,
        new_id=random_id,
        caller=Caller(kind="daemon", uid=0),
        config=Config(),
    )
    look = DueGet(up.awake_ms)

    def scan() -> None:
        for _ in range(AT_ONCE):
            if due(tx, look, ctx).missions:
                raise AssertionError("none of these missions is silent")

    promise = Promise(p50_ms=0.05 * AT_ONCE, spec_p95_ms=100)
    return bench.beside_fsync(name, scan, runs=300, promise=promise)


def _missions(connection: apsw.Connection) -> None:
    """Fill the table with missions that were active in the last minutes."""
    awake = uptime().awake_ms
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO missions (id, title, status, created_at, updated_at, started_at,"
        " last_activity_at, active_awake_ms) VALUES (?, 'Port', 'in_progress', ?, ?, ?, ?, ?)",
        ((f"msn-{n:08x}", NOW, NOW, NOW, NOW, awake + n) for n in range(MISSIONS)),
    )
    connection.execute("COMMIT")


def _events(connection: apsw.Connection, wanted: int) -> None:
    """Let the log grow to a length."""
    (present,) = next(connection.execute("SELECT coalesce(max(seq), 0) FROM events"))
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO events (type, stream, timestamp, mission_id, activity, data_json)"
        " VALUES ('file_modified', 'fleet', ?, ?, 1, '{\"file\":\"a.py\"}')",
        ((NOW, f"msn-{n % MISSIONS:08x}") for n in range(present, wanted)),
    )
    connection.execute("COMMIT")
