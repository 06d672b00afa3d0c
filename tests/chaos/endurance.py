"""Mixed load for an hour: a daemon's memory, descriptors and files must not grow.

A day of its housekeeping lasts half a minute here, and retention is as short, so that creation and
deletion soon balance. Anything that still grows then grows for ever.
"""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.client import Fleet
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.everyday import Everybody
from tests.chaos.measured_daemon import MB, MeasuredDaemon, measured

SETTINGS = (
    "[retention]\ndays = 0\nkeep = 1\ncompleted_days = 0\nevent_days = 0\nsnapshot_days = 0\n"
    "snapshots_per_run = 5\n[limits]\ncheckpoints_per_mission = 5\n"
)
AGING = (
    "from fleetd.engine.jobs import daily; daily.DAY_S = {day}\n"
    "from fleetd.domain.core import idempotency\n"
    "from fleetd.domain.sessions import deliveries\n"
    "idempotency.KEPT_MS = deliveries.KEPT_MS = {day} * 1_000\n"
)
# A WAL of the usual length does not fill up in a few seconds.
SMALL_WAL = "from fleetd.store.sqlite import wal_checkpointer as w; w.PAGES; w.PAGES = 50\n"
DEFECTS = {
    # Large enough to show on a busy machine, and rare enough for a fast one to bear.
    "memory": "import time; from fleetd.engine import engine; kept = [0.0]\n"
    "async def leaky(self, *given, **named):\n"
    "    if time.monotonic() - kept[0] > 0.05:\n"
    "        kept[0] = time.monotonic(); kept.append(b'x' * 4_000_000)\n"
    "    return await old(self, *given, **named)\n"
    "old = plant(engine.Engine, 'commit', leaky)\n",
    "descriptors": "import os; from fleetd.server import server\n"
    "async def leaky(self, stream):\n"
    "    os.dup(0); await old(self, stream)\n"
    "old = plant(server.Server, '_serve_peer', leaky)\n",
    "wal": "from fleetd.store.sqlite import wal_checkpointer as w; plant(w, 'PAGES', 1 << 40)\n",
}
MEMORY = 80 * MB
# How much the slope after the first quarter may add, besides 5 % of the size: the sizes vary this
# much with each day of housekeeping, and a file keeps the largest size it ever had.
BY_SLOPE = {"memory": 4 * MB, "database": 4 * MB, "wal": 4 * MB, "files": 4 * MB, "threads": 1}
# The limits of the total growth in the short form, whose hour has not begun.
AT_ALL = {"memory": 24 * MB, "database": 24 * MB, "wal": 2 * MB, "files": 24 * MB, "threads": 12}
DESCRIPTORS = 40


@dataclass
class UsageSample:
    """The usage at a moment, in seconds since the beginning."""

    at: float
    memory: float
    descriptors: float
    threads: float
    database: float
    wal: float
    files: float


def run(run: Run) -> None:
    """Let agents work; a round is a second."""
    long = run.judged and not run.planted
    number, per_second = (64, 130.0) if long else (6, 100.0)
    aging = AGING.format(day=30 if long else 1) + ("" if long else SMALL_WAL)
    defect = aging + DEFECTS.get(run.planted or "", "")
    with (
        run.home() as (home, env),
        measured(home, env, settings=SETTINGS, defect=defect) as gauge,
    ):
        fleet = Everybody(gauge.socket, home, number, per_second)
        fleet.start()
        try:
            samples = _watch(run, gauge, fleet, home)
        finally:
            fleet.stop()
        _judge(run, samples, number, long=long)
        gauge.well()
        with Fleet(gauge.socket) as client:
            findings = client.call_raw("system.doctor")["findings"]
        if found := [each for each in findings if not each["ok"]]:
            raise Red(f"the doctor found at the end: {found[:3]}")
        gauge.daemon.stop()


def _watch(run: Run, gauge: MeasuredDaemon, fleet: Everybody, home: Path) -> list[UsageSample]:
    begun, samples, times = time.monotonic(), [], []
    for number in run.rounds():
        time.sleep(max(0.0, begun + number + 1 - time.monotonic()))
        samples.append(_sample(gauge, home, time.monotonic() - begun))
        if trouble := fleet.trouble():
            raise Red(f"after {number + 1} s an agent could not go on: {trouble}")
        gauge.well()
        times += fleet.times()
        if run.count >= 120 and (number + 1) % 60 == 0:
            run.say(_line(number + 1, samples[-1], times))
            times = _counted(run, times)
    _counted(run, times)
    return samples


def _counted(run: Run, times: list[float]) -> list[float]:
    run.add("requests", len(times))
    if times:
        run.worst("ms p99 in the worst minute", sorted(times)[len(times) * 99 // 100] * 1e3)
    return []


def _line(seconds: int, sample: UsageSample, times: Sequence[float]) -> str:
    middle = statistics.median(times) * 1e3 if times else 0.0
    return (
        f"{seconds // 60:4} min: {sample.memory / MB:.1f} MB, database {sample.database / MB:.1f}, "
        f"WAL {sample.wal / MB:.1f}, files {sample.files / MB:.1f} MB, {sample.descriptors:.0f} "
        f"descriptors, {sample.threads:.0f} threads, {len(times)} requests, median {middle:.1f} ms"
    )


def _sample(gauge: MeasuredDaemon, home: Path, at: float) -> UsageSample:
    database = home / "data" / "squawk.db"
    return UsageSample(
        at,
        gauge.rss(),
        gauge.descriptors(),
        gauge.threads(),
        _size(database),
        _size(Path(f"{database}-wal")),
        _size_below(home / "flightline"),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _size_below(directory: Path) -> int:
    """Return the size of all files and directories below, including empty ones."""
    total = 0
    for place, names, files in os.walk(directory):
        total += sum(_size(Path(place, each)) for each in files) + 4_096 * len(names)
    return total


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return how fast something grows, per second, robust to outliers (Theil and Sen)."""
    thin = points[:: max(1, len(points) // 200)]
    found = [
        (later[1] - one[1]) / (later[0] - one[0])
        for number, one in enumerate(thin)
        for later in thin[number + 1 :]
        if later[0] > one[0]
    ]
    return statistics.median(found) if found else 0.0


def _judge(run: Run, samples: list[UsageSample], agents: int, *, long: bool) -> None:
    """Raise Red for growth after the first quarter."""
    settled = samples[len(samples) // 4 :]
    run.figures["MB of memory at the end"] = settled[-1].memory / MB
    run.figures["MB of database at the end"] = settled[-1].database / MB
    if (most := max(each.descriptors for each in settled)) > DESCRIPTORS + 2 * agents:
        raise Red(f"descriptors: {most:.0f} were open for {agents} agents")
    for name in BY_SLOPE:
        points = [(each.at, getattr(each, name)) for each in settled]
        grown, usual = points[-1][1] - points[0][1], statistics.median(each[1] for each in points)
        added = slope(points) * (points[-1][0] - points[0][0])
        if long and len(samples) >= 600:
            allowed = BY_SLOPE[name] + usual * 0.05
            unit, what = (1, "threads") if name == "threads" else (MB, f"MB of {name}")
            run.figures[f"{what} added"] = added / unit
            if added > allowed:
                raise Red(f"{name} grew steadily by {added:,.0f}, {allowed:,.0f} are allowed")
        elif grown > AT_ALL[name]:
            raise Red(f"{name} grew from {points[0][1]:,.0f} to {points[-1][1]:,.0f}")
    if long and settled[-1].memory > MEMORY:
        raise Red(f"{settled[-1].memory / MB:.0f} MB of memory, 80 are promised")


CAMPAIGN = Campaign(
    name="endurance",
    what="mixed load of 64 agents, while memory, descriptors and files are watched",
    unit="seconds",
    run=run,
    short=2,
    long=3_600,
    planted={"memory": 3, "descriptors": 3, "wal": 8},
)
