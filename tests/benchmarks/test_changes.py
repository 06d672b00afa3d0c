"""Comparing two revisions: the arithmetic, and one whole comparison with the present one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.changes import SPEEDUP, change, changes, table
from benchmarks.machine import Machine
from benchmarks.measure import Samples, stretches
from benchmarks.rows import Promise, Row, Run, row

ROOT = Path(__file__).parents[2]
MACHINE = Machine(
    cpu="a cpu", cores=2, kernel="Linux", file_system="ext4", python="3", sqlite="3", load=0
)


def run_of(*rows: Row) -> Run:
    return Run(
        machine=MACHINE, date="", revision="", command="", seconds=1, absent={}, rows=list(rows)
    )


def taking(ms: float, name: str = "path") -> Row:
    return row(name, Samples([ms] * 4), Samples([2.0] * 4), reference="fsync")


def test_medians_of_the_blocks_are_compared_and_pairs_are_the_spread() -> None:
    found = change("path", "x fsync", [1, 2, 4], [2, 1, 4])
    assert (found.old, found.new, found.ratio) == (2, 2, 1)
    assert (found.ratio_low, found.ratio_high) == (0.5, 2)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ([10, 11, 12, 13], [5, 6, 7, 8], "better"),
        ([5, 6, 7, 8], [10, 11, 12, 13], "WORSE"),
        ([5, 6, 7, 11], [10, 11, 12, 13], ""),  # the slowest old block is as slow as a new one
        ([10, 11, 12], [5, 6, 7], ""),  # too few blocks to tell
        ([100, 101, 100, 101], [103, 104, 103, 104], ""),  # surely slower, not worth a word
    ],
)
def test_only_what_lies_wholly_apart_is_a_change(
    old: list[float], new: list[float], verdict: str
) -> None:
    assert change("path", "x fsync", old, new).verdict == verdict


def test_of_a_speedup_more_is_better() -> None:
    assert change("crowd", SPEEDUP, [5, 6, 7, 8], [10, 11, 12, 13]).verdict == "better"


def test_rows_are_paired_by_name_and_only_those_that_both_have() -> None:
    old = [run_of(taking(2), taking(2, "gone"))] * 4
    new = [run_of(taking(1), taking(2, "added"))] * 4
    (found,) = changes(old, new)
    assert (found.name, found.figure, found.old, found.new) == ("path", "x fsync", 1, 0.5)
    assert table([found]).splitlines()[1].split() == (
        ["path", "x", "fsync", "1", "0.5", "0.50", "0.50-0.50", "better"]
    )


def test_sizes_and_longest_waits_are_compared_as_well() -> None:
    samples = Samples([1.0, 30.0])
    promised = Promise(max_ms=20, size_bytes=1)
    both = row("p", samples, samples, reference="fsync", promise=promised, size_bytes=2_000)
    found = changes([run_of(both)], [run_of(both)])
    assert [(each.figure, each.new) for each in found] == (
        [("x fsync", 1), ("longest, ms", 30), ("KB", 2)]
    )


def test_the_spread_is_that_of_the_tenths_of_a_run() -> None:
    samples = Samples([1.0] * 50 + [3.0] * 50)
    assert stretches(samples, Samples([2.0] * 100)) == [0.5] * 5 + [1.5] * 5
    assert stretches(Samples([1.0, 4.0]), Samples([2.0, 2.0])) == [0.5, 2]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout")
def test_a_revision_is_measured_beside_the_present_one(tmp_path: Path) -> None:
    options = ["--only", "progress,command", "--quick", "--blocks", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compare", "HEAD", *options, "--directory", tmp_path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = json.loads(done.stdout)
    assert found["missing"] == []
    control = "control: a computation and an fsync"
    assert [(each["name"], each["figure"]) for each in found["changes"]] == [
        (f"{control} (progress)", "x fsync"),
        (f"{control} (progress)", "x itself"),
        ("progress of 100 sorties", "x fsync"),
        (f"{control} (command)", "x fsync"),
        (f"{control} (command)", "x itself"),
        ("fleetctl status, whole process", "x python -c pass"),
        ("fleetctl status of six sessions, whole process", "x python -c pass"),
    ]
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_revision_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compare", "no-such", "--directory", tmp_path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no-such cannot be measured" in done.stderr
    assert list(tmp_path.iterdir()) == []
