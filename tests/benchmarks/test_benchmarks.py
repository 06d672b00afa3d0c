"""The benchmark script itself: that it measures every path and says what it measured."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATHS = (
    "fsync",
    "fsync in place",
    "python -c pass",
    "control: a computation and an fsync",
    "SQLite: one row",
    "store: 64 writers",
    "progress of",
    "import of 10,000 legacy events",
    "event.append, one client",
    "event.append, 64 clients",
    "lock.acquire",
    "message.send",
    "checkpoint.create, 4 sorties",
    "checkpoint.create, 100 sorties",
    "checkpoint.create, 1,000 sorties",
    "checkpoint.create, 4 sorties, 100 checkpoints before",
    "PERF-301",
    "PERF-302",
    "snapshot.record, with its files",
    "recovery.restore, 100 sorties, none changed",
    "checkpoint.list, 10 of",
    "checkpoint.latest, 100 sorties",
    "RPC dispatch, CPU of 50 event.append",
    "the same, 20,000 events beside 200",
    "event.append after 10,000 events, and the daemon's memory",
    "backup file, 4 sorties",
    "fleetctl status",
    "hook.deliver, one client",
    "hook, whole process, in Python",
    "hook, beside an interpreter with its flags",
    "hook, a payload of 500 KB",
    "hook, 8 at once",
    "event.append while 1,940 of 2,000 checkpoints are pruned",
    "mission.get while 1,940 of 2,000 checkpoints are pruned",
)


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--no-peers"]
    command += ["--directory", str(directory)]
    return subprocess.run(
        [*command, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what one quick run printed, which leaves nothing behind."""
    directory = tmp_path_factory.mktemp("disk")
    done = run(directory, "--json")
    assert done.stderr == ""
    assert list(directory.iterdir()) == []
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def measured(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document["rows"]


def test_a_run_says_where_when_and_of_what_it_was_measured(document: dict[str, Any]) -> None:
    machine = document["machine"]
    assert machine["cores"] >= 1
    assert all(machine[name] for name in ("cpu", "kernel", "file_system", "python", "sqlite"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", document["date"])
    assert document["revision"]
    assert "--quick --no-peers" in document["command"]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_measured(measured: list[dict[str, Any]], path: str) -> None:
    assert any(row["name"].startswith(path) for row in measured)


def test_every_row_has_both_percentiles_and_their_ratios(measured: list[dict[str, Any]]) -> None:
    for row in measured:
        assert row["runs"] >= 3
        assert 0 < row["p50_ms"] <= row["p95_ms"]
        assert 0 < row["reference_p50_ms"] <= row["reference_p95_ms"]
        assert row["ratio_p50"] == pytest.approx(row["p50_ms"] / row["reference_p50_ms"])
        assert row["ratio_p95"] == pytest.approx(row["p95_ms"] / row["reference_p95_ms"])
        assert 0 < row["ratio_low"] <= row["ratio_high"]


@pytest.mark.case("PERF-301")
@pytest.mark.case("PERF-302")
def test_the_limits_of_the_specification_stand_beside_their_paths(
    measured: list[dict[str, Any]],
) -> None:
    limits = {row["name"][:8]: row["promise"].get("spec_p95_ms") for row in measured}
    assert limits["PERF-301"] == 100
    assert limits["PERF-302"] == 500


def test_what_promises_a_figure_says_whether_it_was_kept(measured: list[dict[str, Any]]) -> None:
    for row in measured:
        assert (row["kept"] is not None) == bool(row["promise"])


def test_some_groups_are_measured_alone_and_have_a_line_for_each_row(tmp_path: Path) -> None:
    lines = run(tmp_path, "--only", "locks,store").stdout.splitlines()
    table = lines[: lines.index("")]
    assert table[0].split()[:3] == ["path", "runs", "p50"]
    assert [line.split()[0] for line in table[1:]] == [
        "SQLite:",
        "store:",
        "lock.acquire,",
        "lock.check",
        "lock.check,",
    ]


def test_an_unknown_group_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    refused = run(tmp_path, "--only", "locks,nothing")
    assert refused.returncode == 2
    assert "no group is called nothing; there are references, control, store, " in refused.stderr
