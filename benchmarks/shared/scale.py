"""``python -m benchmarks.shared.scale``: one PostgreSQL for hundreds of machines.

Three questions. What do machines that do nothing cost those that work? What does a disk cost that
syncs slowly? And how do a server and its tables look after minutes with the load of many machines?
All of it shares the processors of this computer. It takes about a quarter of an hour.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tests.support.postgres_server import LocalPostgres

from ..machine import Machine, now, revision, this_machine
from ..marks import put
from ..measure import Samples
from .crowd import HOOK, Crowd, crowd, wal_bytes
from .daemons import sharing
from .machines import PROCESSES, Machines, machines
from .page import table
from .spread import cpu_of_server, select_ms

NAME = "scale"
Ask = Callable[[], Crowd]
DAEMONS, CLIENTS, SECONDS, WARM_S = 8, 64, 4.0, 12.0
IDLE, TURNS = 200, 2
# A machine looks for lost machines once it has been there for longer than that.
SETTLING_S = 65.0
# The delay of a commit before it syncs, in µs, to simulate a slow disk.
SYNCS_US = (0, 200, 2_000)
# One agent each: they call tools less often than real agents, which would overload this computer.
MACHINES, PER_S, MINUTES = 500, 20.0, 5.0
# The first hook of a machine takes many times as long as the others, also in the server. So the
# first ones come slowly, and each machine has sent this many before the measurement.
FIRST_PER_S, BEFORE = 5.0, 8
# Where a setting of the tests matters here, PostgreSQL's default replaces it.
SETTINGS = {"max_connections": "2500", "autovacuum_naptime": "1min"}
_TABLES = """
    SELECT relname AS name, n_live_tup AS rows, n_dead_tup AS dead, n_tup_upd AS updates,
        n_tup_hot_upd AS hot, pg_total_relation_size(relid) AS bytes,
        pg_indexes_size(relid) AS index_bytes, autovacuum_count AS vacuums
    FROM pg_stat_user_tables
"""
SHOWN = 10
_TAKEN = "SELECT coalesce(sum(deliveries), 0)::bigint AS hooks FROM hook_counts"


class TableState(msgspec.Struct, frozen=True):
    """A table after a load: rows, dead rows, updates, and HOT updates."""

    name: str
    rows: int
    dead: int
    updates: int
    hot: int
    bytes: int
    index_bytes: int
    vacuums: int


class Beside(msgspec.Struct, frozen=True):
    """The results of busy daemons in turns, for one kind of surroundings.

    ``idle_cpu`` is how many processors the idle machines took for themselves in each turn, while
    the others worked. The server's work for them is not in it.
    """

    what: str
    crowds: list[Crowd]
    idle_cpu: list[float] = []

    @property
    def per_s(self) -> float:
        """Return the median of the turns."""
        return Samples([each.per_s for each in self.crowds]).p50


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The results of many machines; CPU in ms and WAL in bytes for each hook."""

    machines: int
    agents: int
    processes: int
    per_s: float
    seconds: float
    hooks: int
    failed: int
    times: Samples
    server_ms: float
    machines_ms: float
    wal_bytes: float
    tables: list[TableState]


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """All results of one run."""

    machine: Machine
    server: str
    date: str
    revision: str
    idle: list[Beside]
    syncs: list[Beside]
    load: Load
    select_ms: float
    seconds: float


def main() -> int:
    """Measure and print, or write into a page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each, to try the script")
    parser.add_argument("--per-s", type=float, default=PER_S, metavar="N", help="hooks a second")
    parser.add_argument(
        "--machines", type=int, default=MACHINES, metavar="N", help="that send these hooks"
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help="of the load")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the tables between the page's marks"
    )
    options = parser.parse_args()
    scale = _measure(options)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(scale))
    if options.write:
        put(options.write, NAME, text(scale))
    print(text(scale))
    return 0


def _measure(options: argparse.Namespace) -> Scale:
    begun, quick = time.monotonic(), options.quick
    with tempfile.TemporaryDirectory(prefix="fleetd-scale-", dir="/tmp") as name:
        place = Path(name)
        machine = this_machine(place)
        with LocalPostgres(durable=True, settings=SETTINGS) as server:
            version = server.sql("SHOW server_version")[0]["server_version"].split()[0]
            select = select_ms(server)
            idle = _idle(place, server, quick=quick)
        syncs = _syncs(place, quick=quick)
        load = _load(place, options.machines, options.per_s, options.minutes, quick=quick)
    return Scale(
        machine=machine,
        server=f"PostgreSQL {version}",
        date=now(),
        revision=revision(),
        idle=idle,
        syncs=syncs,
        load=load,
        select_ms=select,
        seconds=round(time.monotonic() - begun, 1),
    )


def _idle(place: Path, server: LocalPostgres, *, quick: bool) -> list[Beside]:
    """Measure daemons in turns: alone, and with idle machines of the same fleet."""
    number = 8 if quick else IDLE
    none, beside = Beside("nobody", []), Beside(f"{number} idle machines", [])
    with _busy(place, server, quick=quick) as (ask, url):
        for _ in range(1 if quick else TURNS):
            none.crowds.extend((ask(), ask()))
            with machines(place, url, number) as idle:
                time.sleep(1.0 if quick else SETTLING_S)
                for _ in range(2):
                    before_ms, begun = idle.cpu_ms, time.monotonic()
                    beside.crowds.append(ask())
                    took_ms = (time.monotonic() - begun) * 1_000
                    beside.idle_cpu.append((idle.cpu_ms - before_ms) / took_ms)
    return [none, beside]


def _syncs(place: Path, *, quick: bool) -> list[Beside]:
    """Measure daemons in turns whose servers' commits sync at the disk's speed, and more slowly."""
    found = {delay_us: Beside(f"{delay_us / 1_000:g} ms", []) for delay_us in SYNCS_US}
    with ExitStack() as stack:
        asks = {}
        for delay_us in found:
            settings = {"commit_delay": str(delay_us), "commit_siblings": "0"}
            server = stack.enter_context(LocalPostgres(durable=True, settings=settings))
            asks[delay_us], _ = stack.enter_context(_busy(place, server, quick=quick))
        for _ in range(1 if quick else TURNS):
            for delay_us, beside in found.items():
                beside.crowds.append(asks[delay_us]())
    return [*found.values()]


@contextmanager
def _busy(place: Path, server: LocalPostgres, *, quick: bool) -> Iterator[tuple[Ask, str]]:
    """Run daemons; yield a function that measures all of them, and the address of their store."""
    daemons, clients, seconds = (2, 4, 0.5) if quick else (DAEMONS, CLIENTS, SECONDS)

    def ask() -> Crowd:
        warm_s = seconds if quick else WARM_S
        return crowd(HOOK, fleets, clients, seconds, server=server, warm_s=warm_s)

    with sharing(place, server, daemons) as fleets:
        yield ask, fleets[0].env["FLEET_DATABASE_URL"]


def _load(place: Path, number: int, per_s: float, minutes: float, *, quick: bool) -> Load:
    number, seconds = (8, 5.0) if quick else (number, minutes * 60)
    with LocalPostgres(durable=True, settings=SETTINGS) as server:
        database = server.new_database()
        with machines(place, server.url(database), number) as running:
            first_per_s = min(per_s, FIRST_PER_S)
            running.load(first_per_s, number / first_per_s, number)
            running.load(per_s, (BEFORE - 1) * number / per_s, number)
            before, hooks = _used(server, running), _taken(server, database)
            tables_before = _tables_of(server, database)
            result = running.load(per_s, seconds, number)
            after, taken = _used(server, running), _taken(server, database) - hooks
            tables_after = _tables_of(server, database)
    if taken != result.hooks - result.failed:
        raise RuntimeError(f"{result.hooks} hooks were sent, {taken} were recorded")
    tables = [_since(each, tables_before.get(name)) for name, each in tables_after.items()]
    each = {name: (after[name] - before[name]) / result.hooks for name in after}
    return Load(
        machines=number,
        agents=number,
        processes=PROCESSES,
        per_s=per_s,
        seconds=seconds,
        hooks=result.hooks,
        failed=result.failed,
        times=Samples(result.times_ms),
        server_ms=each["server"],
        machines_ms=each["machines"],
        wal_bytes=each["wal"],
        tables=sorted(tables, key=lambda table: -table.bytes)[:SHOWN],
    )


def _used(server: LocalPostgres, running: Machines) -> dict[str, float]:
    return {
        "server": cpu_of_server(server),
        "machines": running.cpu_ms,
        "wal": float(wal_bytes(server)),
    }


def _taken(server: LocalPostgres, database: str) -> int:
    return int(server.sql(_TAKEN, database=database)[0]["hooks"])


def _tables_of(server: LocalPostgres, database: str) -> dict[str, TableState]:
    rows = server.sql(_TABLES, database=database)
    return {row["name"]: msgspec.convert(row, TableState) for row in rows}


def _since(table: TableState, before: TableState | None) -> TableState:
    """Return a table with the changes since then."""
    if before is None:
        return table
    return msgspec.structs.replace(
        table,
        updates=table.updates - before.updates,
        hot=table.hot - before.hot,
        vacuums=table.vacuums - before.vacuums,
    )


def text(scale: Scale) -> str:
    """Return the tables."""
    of, load = scale.machine, scale.load
    intro = (
        f"`python -m benchmarks.shared.scale`, {scale.seconds:.0f} s. {scale.date}, revision "
        f"{scale.revision}: {of.cores} x {of.cpu}, {of.kernel}, {of.file_system}, Python "
        f"{of.python}, {scale.server}, load {of.load:g} before. A `SELECT 1` took "
        f"{scale.select_ms:.3f} ms of the server's CPU."
    )
    lasted = (
        f"{load.machines} machines in {load.processes} processes, {load.agents:,} agents, "
        f"{load.per_s:g} hooks a second for {load.seconds:.0f} s. Of {load.hooks:,} hooks "
        f"{load.failed:,} failed. Times from when a hook was due, p50 / p95 / p99: "
        f"{load.times.p50:.1f} / {load.times.p95:.1f} / {load.times.p99:.1f} ms. "
        f"For each hook, with all that the machines do besides: "
        f"{load.server_ms:.2f} ms of the server's CPU, "
        f"{load.machines_ms:.2f} ms of the machines', {load.wal_bytes:,.0f} bytes of WAL."
    )
    return "\n\n".join(
        [
            intro,
            f"#### {DAEMONS} daemons with {CLIENTS} agents beside machines that do nothing",
            _besides(scale.idle, "beside"),
            f"#### {DAEMONS} daemons with {CLIENTS} agents, and a disk that syncs slowly",
            _besides(scale.syncs, "on top of the disk's own sync"),
            "#### Many machines for minutes",
            lasted,
            _tables(load.tables),
        ]
    )


def _besides(besides: Sequence[Beside], what: str) -> str:
    head = [what, "hooks per second (each turn)", "beside the first", "p99 of each turn, ms"]
    has_idle = any(each.idle_cpu for each in besides)
    if has_idle:
        head.append("processors that the idle machines took themselves")
    rows = [
        [
            each.what,
            f"{each.per_s:,.0f} ({', '.join(f'{one.per_s:,.0f}' for one in each.crowds)})",
            f"{each.per_s / besides[0].per_s:.2f}",
            ", ".join(f"{one.p99_ms:,.0f}" for one in each.crowds),
            *([", ".join(f"{cpu:.2f}" for cpu in each.idle_cpu)] if has_idle else []),
        ]
        for each in besides
    ]
    return table(head, rows)


def _tables(tables: Sequence[TableState]) -> str:
    head = ["table", "rows", "dead rows", "updates", "HOT, %", "MB", "MB of indexes", "vacuums"]
    rows = [
        [
            each.name,
            f"{each.rows:,}",
            f"{each.dead:,}",
            f"{each.updates:,}",
            f"{100 * each.hot / each.updates:.1f}" if each.updates else "",
            f"{each.bytes / 1e6:.1f}",
            f"{each.index_bytes / 1e6:.1f}",
            str(each.vacuums),
        ]
        for each in tables
    ]
    return table(head, rows)


if __name__ == "__main__":
    sys.exit(main())
