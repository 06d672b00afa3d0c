"""What the measuring of shared stores writes: every figure has its place in a table."""

from pathlib import Path

import pytest

from benchmarks.machine import Machine
from benchmarks.measure import Samples
from benchmarks.shared.asking import Asked
from benchmarks.shared.crowd import Crowd
from benchmarks.shared.page import BEGIN, END, Distance, Shared, text, write
from benchmarks.shared.spread import HookCost, Spread
from benchmarks.shared.subscriber_latency import SubscriberLatency

QUICK, SLOW = Samples([1.0, 1.0, 2.0]), Samples([3.0, 3.0, 4.0])
MACHINE = Machine(
    cpu="CPU", cores=2, kernel="Linux", file_system="ext4", python="3", sqlite="3", load=0.5
)


def crowd(daemons: int, per_s: float) -> Crowd:
    return Crowd("event.append", daemons, 8, per_s, 1.0, 2.0, 3.0, 4.0, 600.0)


@pytest.fixture
def shared() -> Shared:
    samples = {"SQLite": QUICK, "PostgreSQL": SLOW, "fsync": QUICK}
    return Shared(
        machine=MACHINE,
        server="PostgreSQL 15",
        date="2026-01-05",
        revision="abc",
        fsync_ms=0.25,
        select_ms=0.01,
        asked=[Asked("event.append", 3, samples)],
        crowds=[crowd(1, 2_000), crowd(1, 1_500), crowd(8, 1_000)],
        latencies=[SubscriberLatency("PostgreSQL, another machine", SLOW, QUICK)],
        distances=[
            Distance(0.0, {"hook.deliver": QUICK}, {"hook.deliver": 28.0}),
            Distance(2.0, {"hook.deliver": SLOW}, {}),
        ],
        spreads=[
            Spread(0.5, crowd(8, 400), SLOW, {"server": 1.25, "daemons": 2.5, "network": 0.0})
        ],
        costs=[HookCost("a prompt", crowd(8, 400), {"server": 1.25, "daemons": 2.5})],
        seconds=100,
    )


def test_each_store_stands_beside_the_other_and_an_fsync(shared: Shared) -> None:
    times = "1.00 / 2.00 / 2.00 | 3.00 / 4.00 / 4.00"
    assert f"| event.append | {times} | 3.0 | 1.0 | 3.0 |" in text(shared)


def test_the_first_of_a_kind_is_of_a_store_of_one_s_own(shared: Shared) -> None:
    told = text(shared)
    assert "| SQLite | event.append | 8 | 1 | 2,000 |" in told
    assert "| PostgreSQL | event.append | 8 | 1 | 1,500 |" in told
    assert "| PostgreSQL | event.append | 8 | 8 | 1,000 | 1.0 / 2.0 / 3.0 | 4.0 | 600 |" in told


def test_a_distance_is_told_with_its_round_trips(shared: Shared) -> None:
    assert "| hook.deliver | 28.0 | 1.0 (2.0) | 3.0 (4.0) |" in text(shared)


def test_hooks_at_a_distance_stand_beside_who_computed(shared: Shared) -> None:
    told = text(shared)
    assert "| one alone, p50 (p95) | CPU of server, ms each | CPU of daemons, ms each |" in told
    row = "| 0.5 | 8 | 8 | 400 | 1.0 / 2.0 / 3.0 | 4.0 | 3.0 (4.0) | 1.25 | 2.50 | 0.00 |"
    assert row in told


def test_each_kind_of_hook_has_its_cost(shared: Shared) -> None:
    assert "| a prompt | 400 | 4.0 | 1.25 | 2.50 | 600 |" in text(shared)


def test_a_page_keeps_what_people_wrote(shared: Shared, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(page, shared)
    told = page.read_text()
    assert told.startswith("before\n")
    assert told.endswith(f"{END}\nafter\n")
    assert "old" not in told
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no place"):
        write(page, shared)
