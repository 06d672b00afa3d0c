"""The search for silent missions: its cost, and that it does not grow with the log."""

from collections.abc import Iterator
from contextlib import ExitStack

import apsw

from fleetd.config import Config
from fleetd.domain.agents.due_work import due_work
from fleetd.domain.core.context import Caller, Context
from fleetd.domain.core.tx import Tx
from fleetd.engine.engine import random_id
from fleetd.host.clock import uptime
from fleetd.store.sqlite.connect import connect
from fleetd.store.sqlite.group_commit import SqliteExecutor
from fleetd.store.sqlite.migrate import schema

from .bench import Bench
from .measure import Operation
from .rows import Promise, Row

MISSIONS = 1_000
# One takes microseconds, less than the wake-up after an fsync that is measured with it.
AT_ONCE = 100
NOW = "2026-01-05T12:00:00.000Z"
EVENTS = (10_000, 1_000_000)
# The trees of the indexes become a level deeper, no more.
GROWTH = 1.25


def scanning(bench: Bench) -> Iterator[Row]:
    """Measure the scan of 1,000 missions in progress, with a short log and with a long one."""
    with ExitStack() as opened:
        scans = {}
        for events in EVENTS:
            wanted = events // 50 if bench.quick else events
            connection = _filled(bench, wanted)
            opened.callback(connection.close)
            opened.enter_context(connection)  # the daemon's reader has a transaction open as well
            scans[wanted] = _scan(connection)
        for wanted, scan in scans.items():
            yield bench.beside_fsync(
                f"{AT_ONCE} silence scans, {MISSIONS:,} missions, {wanted:,} events",
                scan,
                runs=300,
                promise=Promise(p50_ms=0.05 * AT_ONCE, spec_p95_ms=100),
            )
        (few, many) = scans
        yield bench.beside(
            f"the same, {many:,} events beside {few:,}",
            scans[many],
            scans[few],
            runs=300,
            reference=f"{few:,} events",
            promise=Promise(ratio=GROWTH),
        )


def _filled(bench: Bench, events: int) -> apsw.Connection:
    connection = connect(str(bench.directory / f"silence-{events}.db"))
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute(schema())
    _missions(connection)
    _events(connection, events)
    return connection


def _scan(connection: apsw.Connection) -> Operation:
    tx, up = Tx(SqliteExecutor(connection)), uptime()
    ctx = Context(
        now_ms=0,
        awake_ms=up.awake_ms,
        boot_id=up.boot_id,
        new_id=random_id,
        caller=Caller(kind="daemon", uid=0),
        config=Config(),
    )

    def scan() -> None:
        for _ in range(AT_ONCE):
            if due_work(tx, ctx, up.awake_ms).missions:
                raise AssertionError("none of these missions is silent")

    return scan


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
    """Fill the log up to a length."""
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO events (type, stream, timestamp, mission_id, activity, data_json)"
        " VALUES ('file_modified', 'fleet', ?, ?, 1, '{\"file\":\"a.py\"}')",
        ((NOW, f"msn-{n % MISSIONS:08x}") for n in range(wanted)),
    )
    connection.execute("COMMIT")
