"""Report: the daemon's figures as Prometheus and ``system.status`` get them.

docs/metrics.md lists Prometheus' names.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import trio

from ... import __version__
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.system.daily_rounds import Rounds, rounds
from ...domain.system.overview import Overview, overview
from ...host.histogram import Histogram
from ...protocol.requests.system import Health, Metrics, SystemHealth, SystemMetrics
from ...protocol.status import (
    ConnectionFigures,
    MethodTiming,
    OptimisticFigures,
    Timing,
    WriterFigures,
)
from ...store.api import StoreAway
from ..engine import Engine
from . import health as checks

# From a quarter of a millisecond to 17 s, in steps of four; powers of two, in microseconds.
DURATIONS = [2**power for power in range(8, 25, 2)]
BATCHES = [2**power for power in range(1, 9)]
Labels = Mapping[str, str]
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(msgspec.Struct, frozen=True):
    """One value, and the labels that distinguish it in its family."""

    value: float
    labels: Labels = {}


class Family(msgspec.Struct, frozen=True):
    """A metric of a plain type, ``gauge`` or ``counter``, with all its samples."""

    name: str
    type: str
    help: str
    samples: Sequence[Sample]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the family."""
        yield from _head(self.name, self.type, self.help)
        for sample in self.samples:
            yield f"{self.name}{_labelled(sample.labels)} {sample.value}"


class Distribution(msgspec.Struct, frozen=True):
    """A metric of type ``histogram``, one histogram for each value of a label.

    ``bounds`` are powers of two in the histograms' own unit; ``per_unit`` of that unit make one of
    the metric's. A whole number below a bound is at most that bound minus one.
    """

    name: str
    help: str
    bounds: Sequence[int]
    per_unit: int
    histograms: Sequence[tuple[Labels, Histogram]]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the metric."""
        yield from _head(self.name, "histogram", self.help)
        for labels, histogram in self.histograms:
            counts = histogram.below(self.bounds)
            edges = [*(str(self._edge(bound)) for bound in self.bounds), "+Inf"]
            for edge, count in zip(edges, counts, strict=True):
                yield f"{self.name}_bucket{_labelled({**labels, 'le': edge})} {count}"
            yield f"{self.name}_sum{_labelled(labels)} {histogram.total / self.per_unit}"
            yield f"{self.name}_count{_labelled(labels)} {counts[-1]}"

    def _edge(self, bound: int) -> float:
        return bound - 1 if self.per_unit == 1 else bound / self.per_unit


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {escaped}"
    yield f"# TYPE {name} {kind}"


def _labelled(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def text(metrics: Sequence[Family | Distribution]) -> str:
    """Return the whole exposition."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


@method(SystemMetrics, without_store=True)
async def metrics(engine: Engine, request: SystemMetrics, caller: Caller) -> Metrics:
    """Return every figure in the text format that Prometheus reads."""
    seen = await overview_now(engine)
    health = await checks.health(engine, SystemHealth(), caller)
    families = [
        *_daemon(engine, health),
        *(_fleet(seen) if seen else []),
        *(_daily(await engine.read_when_available(rounds)) if seen else []),
        *_store(engine, seen),
        *_clients(engine),
    ]
    return Metrics(text=text([*families, *_distributions(engine)]))


def _daemon(engine: Engine, health: Health) -> list[Family]:
    checks = {check.name: check for check in sorted(health.checks, key=lambda check: not check.ok)}
    return [
        _gauge("build_info", "1, labelled with the version.", 1, version=__version__),
        _gauge("start_time_seconds", "Start of the daemon, Unix time.", engine.started_ms / 1_000),
        _gauge("healthy", "1 when every vital check of system.health is ok.", int(health.ok)),
        Family(
            "fleetd_check_ok",
            "gauge",
            "1 for each check of system.health that is ok, else 0.",
            [Sample(int(check.ok), {"check": name}) for name, check in sorted(checks.items())],
        ),
    ]


def _fleet(seen: Overview) -> list[Family]:
    counts = seen.counts
    return [
        _gauge("missions", "Missions in the store.", counts.missions),
        _gauge("missions_in_progress", "Missions in progress.", len(seen.missions)),
        _gauge("missions_silent", "Missions that wait for recovery.", len(seen.candidates)),
        _gauge("sorties", "Sorties in the store.", counts.sorties),
        _gauge("agents", "Agents, without gone ones.", counts.agents),
        _gauge("locks", "Locks in force.", counts.locks),
        _gauge("messages_undelivered", "Messages with a queued delivery.", counts.messages),
        _gauge("checkpoints", "Checkpoints in the store.", counts.checkpoints),
        _gauge("snapshots", "Snapshots in the store.", counts.snapshots),
        _gauge("recoveries", "Recoveries in the store.", counts.recoveries),
        _gauge("events", "Events in the log.", counts.events),
        _gauge(
            "backup_backlog_files", "Checkpoints and snapshots without a file.", seen.backup_backlog
        ),
        _counter("events_recorded_total", "Events ever recorded in this store.", seen.position),
    ]


def _daily(last: Rounds) -> list[Family]:
    """Return the last rounds; a round that never ran has no sample, as 0 would be 1970."""
    kept, verified = last.housekeeping, last.verification
    gauges: list[tuple[str, str, float | None]] = [
        (
            "housekeeping_last_round_time_seconds",
            "Last round of the daily work, Unix time.",
            kept.at_ms / 1_000 if kept else None,
        ),
        (
            "verification_last_round_time_seconds",
            "Last verification of files, Unix time.",
            verified.at_ms / 1_000 if verified else None,
        ),
        (
            "verification_files",
            "Files that the last verification checked.",
            verified.files if verified else None,
        ),
        (
            "verification_healed_files",
            "Files repaired then.",
            verified.healed if verified else None,
        ),
        (
            "verification_damaged_files",
            "Files that are still damaged.",
            verified.damaged if verified else None,
        ),
    ]
    return [
        Family(f"fleetd_{name}", "gauge", meaning, [] if figure is None else [Sample(figure)])
        for name, meaning, figure in gauges
    ]


def _store(engine: Engine, seen: Overview | None) -> list[Family]:
    database_bytes, wal_bytes = engine.store.sizes()
    load, availability = engine.store.load, engine.store.availability
    away_ms = engine.clock() - availability.away.since_ms if availability.away else 0
    return [
        _gauge(
            "store_away",
            "1 while the store cannot be reached, else 0.",
            int(bool(availability.away)),
        ),
        _gauge("store_away_seconds", "Length of the present outage.", max(0, away_ms) / 1_000),
        _counter("store_reconnects_total", "Number of reconnections.", availability.reconnects),
        _gauge("database_size_bytes", "Size of the database file.", database_bytes),
        _gauge("wal_size_bytes", "Size of the write-ahead log.", wal_bytes),
        _gauge("writer_queue_requests", "Requests that wait for the writer.", load.waiting),
        _gauge(
            "writer_queue_max_requests",
            "Largest number of waiting requests since the start.",
            load.most_waiting,
        ),
        *(_optimistic(load.optimistic) if load.optimistic else []),
    ]


def _optimistic(figures: OptimisticFigures) -> list[Family]:
    return [
        _counter("optimistic_commits_total", "Commits tried without the turn.", figures.tries),
        _counter("optimistic_conflicts_total", "Tries that were repeated.", figures.conflicts),
        _counter("requests_in_turn_total", "Requests that had the turn.", figures.in_turn),
    ]


def _clients(engine: Engine) -> list[Family]:
    traffic = engine.traffic
    errors = [Sample(count, {"kind": kind}) for kind, count in sorted(traffic.errors.items())]
    return [
        _gauge("connections_open", "Open connections.", traffic.open),
        _gauge(
            "connections_limit", "Maximum of open connections.", engine.config.limits.connections
        ),
        _counter("connections_accepted_total", "Connections accepted.", traffic.accepted),
        _counter("connections_refused_total", "Connections of other users.", traffic.refused),
        _counter(
            "connections_cut_off_total",
            "Connections closed because of a limit, or of a line not sent or read in time.",
            traffic.cut_off,
        ),
        Family("fleetd_errors_total", "counter", "Error replies, by kind.", errors),
    ]


def _distributions(engine: Engine) -> list[Distribution]:
    load = engine.store.load
    return [
        Distribution(
            "fleetd_request_duration_seconds",
            "Time from a parsed request to its ready reply, by method.",
            DURATIONS,
            1_000_000,
            [({"method": name}, each) for name, each in sorted(engine.traffic.methods.items())],
        ),
        Distribution(
            "fleetd_commit_duration_seconds",
            "Duration of COMMIT with changes: the sync of the disk.",
            DURATIONS,
            1_000_000,
            [({}, load.commits)],
        ),
        Distribution(
            "fleetd_batch_size_requests",
            "Requests per group commit.",
            BATCHES,
            1,
            [({}, load.batches)],
        ),
    ]


def _gauge(name: str, meaning: str, value: float, **labels: str) -> Family:
    return Family(f"fleetd_{name}", "gauge", meaning, [Sample(value, labels)])


def _counter(name: str, meaning: str, value: float) -> Family:
    return Family(f"fleetd_{name}", "counter", meaning, [Sample(value)])


async def overview_now(engine: Engine) -> Overview | None:
    """Return the overview of the store, None while the store is away."""
    while True:
        try:
            return await engine.read(overview)
        except StoreAway:
            if engine.store.availability.away is not None or engine.closing:
                return None
            await trio.lowlevel.checkpoint()  # it is back already


def latencies(engine: Engine) -> list[MethodTiming]:
    """Return the latencies of each method that was called, by name."""
    return [
        MethodTiming(method=method, **msgspec.structs.asdict(_timing(histogram)))
        for method, histogram in sorted(engine.traffic.methods.items())
    ]


def writer(engine: Engine) -> WriterFigures:
    """Return how busy the writer is and was."""
    load = engine.store.load
    return WriterFigures(
        queue=load.waiting,
        queue_max=load.most_waiting,
        batches=load.batches.count,
        batch_mean=round(load.batches.mean, 2),
        batch_p95=load.batches.quantile(0.95),
        batch_max=load.batches.max,
        commit=_timing(load.commits),
        optimistic=load.optimistic,
    )


def connections(engine: Engine) -> ConnectionFigures:
    """Return how many clients there are and were."""
    traffic = engine.traffic
    return ConnectionFigures(
        open=traffic.open,
        open_max=traffic.most_open,
        limit=engine.config.limits.connections,
        accepted=traffic.accepted,
        refused=traffic.refused,
        cut_off=traffic.cut_off,
    )


def _timing(micros: Histogram) -> Timing:
    return Timing(
        count=micros.count,
        p50_ms=micros.quantile(0.5) / 1_000,
        p95_ms=micros.quantile(0.95) / 1_000,
        max_ms=micros.max / 1_000,
    )
