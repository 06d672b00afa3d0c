"""What Prometheus reads, checked by Prometheus' own parser."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from fleetd import __version__
from fleetd.engine.metrics.report import Distribution, Family, Sample, text
from fleetd.host.histogram import Histogram
from fleetd.protocol.requests.system import SystemHealth, SystemMetrics, SystemStatus
from tests.support.fleet import NOON, Fleet

DOCUMENTED = Path(__file__).parents[3] / "docs" / "metrics.md"


def parsed(exposition: str) -> dict[str, Metric]:
    families = list(text_string_to_metric_families(exposition))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


async def scraped(fleet: Fleet) -> dict[str, Metric]:
    return parsed((await fleet.do(SystemMetrics())).text)


def value(families: dict[str, Metric], name: str) -> float:
    (sample,) = families[name].samples
    return sample.value


async def test_the_figures_are_those_of_the_status(fleet: Fleet) -> None:
    mission = await fleet.mission(3)
    await fleet.agents(mission, "specialist-1")
    await fleet.lock(mission, "a.py", "specialist-1")
    await fleet.checkpoint(mission)
    fleet.engine.traffic.failed("not_found")
    status, families = await fleet.do(SystemStatus()), await scraped(fleet)
    for name, expected in {
        "missions": 1,
        "missions_in_progress": 1,
        "sorties": 3,
        "agents": 1,
        "locks": 1,
        "checkpoints": 1,
        "events": status.counts.events,
        "events_recorded": status.position,
        "backup_backlog_files": status.backup_backlog,
        "database_size_bytes": status.database_bytes,
        "wal_size_bytes": status.wal_bytes,
        "connections_limit": status.connections.limit,
        "start_time_seconds": NOON / 1_000,
        "healthy": 1,
    }.items():
        assert value(families, f"fleetd_{name}") == expected, name
    assert families["fleetd_errors"].samples[0].labels == {"kind": "not_found"}
    assert families["fleetd_build_info"].samples[0].labels == {"version": __version__}


async def test_every_metric_follows_the_conventions(fleet: Fleet) -> None:
    families = await scraped(fleet)
    assert {family.type for family in families.values()} == {"gauge", "counter", "histogram"}
    for name, family in families.items():
        assert re.fullmatch(r"fleetd_[a-z_]+", name)
        assert family.documentation, name
        assert not name.endswith(("_ms", "_kb", "_count", "_sum", "_bucket")), name
        # The parser takes the suffix off; the samples keep it.
        counted = [sample.name.endswith("_total") for sample in family.samples]
        assert all(counted) == (family.type == "counter") or not counted, name


async def test_every_check_of_the_health_is_a_sample(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetd.store import disk_audit

    monkeypatch.setattr(disk_audit, "free_bytes", lambda path: 0)
    health, families = await fleet.do(SystemHealth()), await scraped(fleet)
    found = {each.labels["check"]: each.value for each in families["fleetd_check_ok"].samples}
    assert found.keys() == {check.name for check in health.checks}
    assert {name for name, ok in found.items() if not ok} == {"room to store", "disk"}
    assert value(families, "fleetd_healthy") == 0


async def test_of_two_checks_of_one_name_the_worse_is_told(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetd.store import disk_audit

    database = fleet.engine.config.database.parent
    for full in (database, fleet.engine.config.checkpoints):
        monkeypatch.setattr(
            disk_audit,
            "free_bytes",
            lambda path, full=full: 5_000_000 if path == full else 10**12,
        )
        (disk,) = (
            each.value
            for each in (await scraped(fleet))["fleetd_check_ok"].samples
            if each.labels["check"] == "disk"
        )
        assert disk == 0


def distribution(families: dict[str, Metric], name: str, **labels: str) -> dict[str, Any]:
    """Return buckets, sum and count of one series."""
    found: dict[str, Any] = {"buckets": {}}
    for sample in families[name].samples:
        edge = sample.labels.get("le")
        if {k: v for k, v in sample.labels.items() if k != "le"} == labels:
            kind = sample.name.removeprefix(f"{name}_")
            if kind == "bucket":
                found["buckets"][float(edge)] = sample.value
            else:
                found[kind] = sample.value
    return found


async def test_latencies_are_a_histogram_in_seconds_by_method(fleet: Fleet) -> None:
    for micros in (100, 255, 256, 2_000, 500_000, 60_000_000):
        fleet.engine.traffic.answered("mission.get", micros)
    fleet.engine.traffic.answered("lock.acquire", 70)
    families = await scraped(fleet)
    seen = distribution(families, "fleetd_request_duration_seconds", method="mission.get")
    assert families["fleetd_request_duration_seconds"].type == "histogram"
    assert seen["count"] == 6
    assert seen["sum"] == pytest.approx(60.502611)
    buckets = seen["buckets"]
    assert list(buckets) == sorted(buckets)
    assert (buckets[0.000256], buckets[0.001024], buckets[0.004096]) == (2, 3, 4)
    assert (buckets[1.048576], buckets[16.777216], buckets[float("inf")]) == (5, 5, 6)


async def test_commits_and_batches_are_counted(fleet: Fleet) -> None:
    await fleet.mission(2)
    families = await scraped(fleet)
    commits = distribution(families, "fleetd_commit_duration_seconds")
    batches = distribution(families, "fleetd_batch_size_requests")
    assert commits["count"] == commits["buckets"][float("inf")] > 0
    assert batches["buckets"][1] == batches["count"] == batches["sum"] >= commits["count"]


def test_labels_and_help_are_escaped() -> None:
    hostile = 'a\\b"c\nd}'
    seen = Histogram()
    seen.note(3)
    written = text(
        [
            Family("x", "gauge", "back\\slash\nand line", [Sample(1.5, {"kind": hostile})]),
            Distribution("y", "why", [2, 4], 1, [({"method": hostile}, seen)]),
        ]
    )
    families = parsed(written)
    assert families["x"].samples[0].labels == {"kind": hostile}
    assert families["x"].documentation == "back\\slash\nand line"
    assert {sample.labels["method"] for sample in families["y"].samples} == {hostile}
    assert written.endswith("\n")


IN_SYNCED_MODE = {
    "fleetd_optimistic_commits_total",
    "fleetd_optimistic_conflicts_total",
    "fleetd_requests_in_turn_total",
}


async def test_the_documentation_names_every_metric(fleet: Fleet) -> None:
    names = set(re.findall(r"^# TYPE (\S+)", (await fleet.do(SystemMetrics())).text, re.M))
    rows = set(re.findall(r"^\| `(fleetd_[a-z_]+)`", DOCUMENTED.read_text("utf-8"), re.M))
    assert rows == names | IN_SYNCED_MODE
