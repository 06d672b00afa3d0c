"""What the measuring of many machines writes: every figure has its place."""

import pytest

from benchmarks.machine import Machine
from benchmarks.measure import Samples
from benchmarks.shared.crowd import Crowd
from benchmarks.shared.scale import Beside, Load, Scale, TableState, text

MACHINE = Machine(
    cpu="CPU", cores=2, kernel="Linux", file_system="ext4", python="3", sqlite="3", load=0.5
)


def crowd(per_s: float) -> Crowd:
    return Crowd("hook.deliver", 8, 64, per_s, 1.0, 2.0, 3.0, 4.0, 600.0)


@pytest.fixture
def scale() -> Scale:
    load = Load(
        machines=500,
        agents=2_400,
        processes=4,
        per_s=40.0,
        seconds=300.0,
        hooks=12_000,
        failed=3,
        times=Samples([1.0, 2.0, 9.0]),
        server_ms=1.25,
        machines_ms=7.5,
        wal_bytes=5_000.0,
        tables=[TableState("agents", 2_400, 12, 1_000, 985, 2_000_000, 1_000_000, 2)],
    )
    return Scale(
        machine=MACHINE,
        server="PostgreSQL 15",
        date="2026-01-05",
        revision="abc",
        idle=[
            Beside("nobody", [crowd(90), crowd(100), crowd(110)]),
            Beside("200 idle machines", [crowd(80), crowd(95), crowd(120)], [0.1, 0.125, 0.2]),
        ],
        syncs=[Beside("0.2 ms", [crowd(100)]), Beside("2 ms", [crowd(60)])],
        load=load,
        select_ms=0.012,
        seconds=600,
    )


def test_each_turn_stands_beside_the_median_of_the_first(scale: Scale) -> None:
    told = text(scale)
    assert "| nobody | 100 (90, 100, 110) | 1.00 | 3, 3, 3 |  |" in told
    assert "| 200 idle machines | 95 (80, 95, 120) | 0.95 | 3, 3, 3 | 0.10, 0.12, 0.20 |" in told
    assert "p99 of each turn, ms | processors that the idle machines took themselves |\n" in told
    assert "| 2 ms | 60 (60) | 0.60 | 3 |\n" in told


def test_a_load_is_told_with_what_failed_and_what_it_cost(scale: Scale) -> None:
    told = text(scale)
    assert "Of 12,000 hooks 3 failed." in told
    assert "2.0 / 9.0 / 9.0 ms" in told
    assert "1.25 ms of the server's CPU" in told
    assert "5,000 bytes of WAL" in told
    assert "`SELECT 1` took 0.012 ms" in told


def test_a_table_tells_how_many_updates_wrote_no_index(scale: Scale) -> None:
    assert "| agents | 2,400 | 12 | 1,000 | 98.5 | 2.0 | 1.0 | 2 |" in text(scale)
