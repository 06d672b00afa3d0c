"""Bit rot is found by the daily work, a bounded number of files at a time, and healed."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.artifacts.inventory import unverified
from fleetd.domain.core.context import BatchSizes
from fleetd.engine.jobs import verification
from fleetd.engine.jobs.daily import tidy
from fleetd.engine.jobs.verification import verify_some
from fleetd.protocol.records import Checkpoint
from fleetd.protocol.requests.checkpoint import CheckpointGet
from fleetd.protocol.requests.snapshot import SnapshotGet, SnapshotRecord
from fleetd.protocol.requests.system import SystemHealth, SystemMetrics
from tests.support.fleet import DAY, HOUR, Clock, Fleet, opened

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: Patch) -> None:
    """Let no slow machine end a round early."""
    monkeypatch.setattr(verification, "CPU_S", 600.0)


def rot(path: Path) -> bytes:
    """Flip one bit in the middle of a file; return what it held."""
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    return data


async def round_of(fleet: Fleet) -> tuple[int, int, int]:
    """Return how many files a round looked at, healed, and found beyond healing."""
    done = await verify_some(fleet.engine)
    await fleet.settle()
    return done.files, done.healed, done.damaged


async def taken(fleet: Fleet, number: int) -> list[Checkpoint]:
    mission = await fleet.mission(1)
    found = []
    for n in range(number):
        fleet.clock.pass_by(1)
        found.append(await fleet.checkpoint(mission, f"n{n}"))
    fleet.clock.pass_by(1)
    return found


def rows_verified(fleet: Fleet, noun: str = "checkpoints") -> dict[str, str]:
    found = fleet.sql(f"SELECT id, verified_at FROM {noun}")
    return {row["id"]: row["verified_at"] for row in found}


async def test_bit_rot_in_a_checkpoint_file_is_healed_by_the_daily_work_which_says_so(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fleetd")
    first, second = await taken(fleet, 2)
    whole = rot(fleet.file_of(first))
    await tidy(fleet.engine)
    await fleet.settle()
    assert fleet.file_of(first).read_bytes() == whole
    assert f"Daily verification repaired {first.id}: " in caplog.text
    assert "Verified 2 checkpoint and snapshot files: 1 restored, 0 still damaged" in caplog.text
    assert second.id not in caplog.text.split("Daily verification", 1)[1].splitlines()[0]
    health = {check.name: check for check in (await fleet.do(SystemHealth())).checks}
    assert health["verification"].detail == (
        "last done 0s ago: 2 files, 1 restored from their other copy, 0 still damaged"
    )
    figures = (await fleet.do(SystemMetrics())).text
    assert "fleetd_verification_files 2\n" in figures
    assert "fleetd_verification_healed_files 1\n" in figures
    assert "fleetd_verification_last_round_time_seconds 1" in figures


async def test_bit_rot_in_a_snapshot_file_and_in_latest_json_is_healed(fleet: Fleet) -> None:
    made = await fleet.do(SnapshotRecord("run-1"))
    await fleet.settle()
    history = fleet.checkpoints / "run-1" / "history" / f"{made.snapshot_id}.json"
    latest = fleet.checkpoints / "run-1" / "latest.json"
    wholes = rot(history), rot(latest)
    fleet.clock.pass_by(1)
    assert await round_of(fleet) == (1, 1, 0)  # what writes a file writes latest.json too
    assert (history.read_bytes(), latest.read_bytes()) == wholes
    rot(latest)
    fleet.clock.pass_by(DAY)
    assert await round_of(fleet) == (1, 1, 0)
    assert (history.read_bytes(), latest.read_bytes()) == wholes


async def test_bit_rot_in_a_row_is_healed_from_its_file(fleet: Fleet) -> None:
    (one,) = await taken(fleet, 1)
    fleet.sql("UPDATE checkpoints SET sorties_json = '[]'")
    assert await round_of(fleet) == (1, 1, 0)
    assert (await fleet.do(CheckpointGet(one.id))).sorties == one.sorties


async def test_bit_rot_in_both_copies_is_a_warning_until_it_is_dealt_with(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = await taken(fleet, 1)
    rot(fleet.file_of(one))
    fleet.sql("UPDATE checkpoints SET sorties_json = '[]'")
    assert await round_of(fleet) == (1, 0, 1)
    assert f"Daily verification: {one.id}: " in caplog.text
    health = await fleet.do(SystemHealth())
    (found,) = [check for check in health.checks if check.name == "verification"]
    assert (found.ok, found.vital, health.ok) == (False, False, True)
    assert "1 still damaged; fleetctl doctor names them" in found.detail


@pytest.mark.parametrize("batches", [BatchSizes(records=3, verified_daily=4)])
async def test_a_round_verifies_a_bounded_number_of_files_the_oldest_check_first(
    fleet: Fleet,
) -> None:
    made = [each.id for each in await taken(fleet, 10)]
    fleet.sql("UPDATE checkpoints SET verified_at = '' WHERE id = :id", id=made[-1])
    turns = []
    for _ in range(3):
        before = rows_verified(fleet)
        fleet.clock.pass_by(DAY)
        assert (await round_of(fleet))[0] == 4
        after = rows_verified(fleet)
        turns.append({each for each in made if after[each] != before[each]})
    assert turns[0] == {made[9], *made[:3]}
    assert turns[1] == {*made[3:7]}
    assert turns[2] >= {*made[7:9]}


@pytest.mark.parametrize("batches", [BatchSizes(records=2)])
async def test_a_round_looks_at_no_file_twice_and_takes_each_noun_in_turn(fleet: Fleet) -> None:
    await taken(fleet, 5)
    for number in range(3):
        await fleet.do(SnapshotRecord(f"run-{number}"))
    await fleet.settle()
    fleet.clock.pass_by(1)
    asked = len(rows_verified(fleet)) + len(rows_verified(fleet, "snapshots"))
    assert (await round_of(fleet))[0] == asked == 8
    fleet.engine.batches = BatchSizes(records=2, verified_daily=4)
    fleet.clock.pass_by(DAY)
    await round_of(fleet)
    today = fleet.clock.now
    assert list(rows_verified(fleet).values()).count(today) == 2
    assert list(rows_verified(fleet, "snapshots").values()).count(today) == 2


async def test_a_round_ends_when_its_cpu_time_is_spent(fleet: Fleet, monkeypatch: Patch) -> None:
    await taken(fleet, 6)
    spent = iter(range(0, 100, 2))
    monkeypatch.setattr(verification, "CPU_S", 7.0)
    monkeypatch.setattr(time, "process_time", lambda: float(next(spent)))
    assert (await round_of(fleet))[0] == 3


async def test_writing_a_file_counts_as_verifying_it(fleet: Fleet) -> None:
    (one,) = await taken(fleet, 1)
    assert rows_verified(fleet) == {one.id: one.backed_up_at}


async def test_what_a_clock_that_was_ahead_noted_is_verified_all_the_same(fleet: Fleet) -> None:
    fleet.clock.step(300 * DAY)
    made = await taken(fleet, 3)
    fleet.clock.step(-300 * DAY)
    rot(fleet.file_of(made[0]))
    assert await round_of(fleet) == (3, 1, 0)
    fleet.clock.pass_by(DAY)
    assert await round_of(fleet) == (3, 0, 0)


async def test_each_machine_verifies_its_own_files(tmp_path: Path) -> None:
    clock, store = Clock(), tmp_path / "shared.db"
    async with (
        opened(tmp_path / "a", clock=clock, machine="machine-a", database=store) as a,
        opened(tmp_path / "b", clock=clock, machine="machine-b", database=store) as b,
    ):
        (mine,), (theirs,) = await taken(a, 1), await taken(b, 1)
        whole = rot(a.file_of(mine))
        assert await round_of(b) == (1, 0, 0)
        assert a.file_of(mine).read_bytes() != whole
        assert await round_of(a) == (1, 1, 0)
        assert a.file_of(mine).read_bytes() == whole
        assert not b.file_of(mine).exists()
        assert not a.file_of(theirs).exists()


async def test_whose_turn_it_is_is_read_from_an_index(fleet: Fleet, monkeypatch: Patch) -> None:
    from fleetd.domain.core.tx import Tx

    asked: list[tuple[str, dict[str, Any]]] = []
    ask = Tx.all

    def heard(self: Tx, sql: str, **values: Any) -> Any:
        asked.append((sql, values))
        return ask(self, sql, **values)

    monkeypatch.setattr(Tx, "all", heard)
    await fleet.engine.read(unverified, "checkpoint", fleet.clock.now, 5)
    await fleet.engine.read(unverified, "snapshot", fleet.clock.now, 5)
    assert len(asked) == 4
    if not fleet.engine.machine and fleet.engine.store.kind == "sqlite":
        for sql, values in asked:
            (step,) = fleet.sql(f"EXPLAIN QUERY PLAN {sql}", **values)
            assert "_verified (machine=? AND verified_at" in step["detail"]


async def test_a_daemon_that_is_started_again_does_not_verify_again(tmp_path: Path) -> None:
    clock = Clock()
    looked: list[int] = []
    for wait_ms in (0, HOUR, 24 * HOUR):
        clock.pass_by(wait_ms)
        async with opened(tmp_path, clock=clock) as fleet:
            if not looked:
                await taken(fleet, 2)
            before = fleet.clock.now
            await tidy(fleet.engine)
            looked.append(list(rows_verified(fleet).values()).count(before))
    assert looked == [2, 0, 2]


async def test_what_is_deleted_or_has_no_file_yet_is_passed_over(fleet: Fleet) -> None:
    made = await taken(fleet, 3)
    fleet.sql("UPDATE checkpoints SET deleted_at = :now WHERE id = :id", now="x", id=made[0].id)
    fleet.sql("UPDATE checkpoints SET backed_up_at = NULL WHERE id = :id", id=made[1].id)
    fleet.clock.pass_by(HOUR)
    assert await round_of(fleet) == (1, 0, 0)


async def test_a_snapshot_that_was_compressed_is_verified_too(fleet: Fleet) -> None:
    made = await fleet.do(SnapshotRecord("run-1", status="completed"))
    await fleet.settle()
    fleet.clock.pass_by(10 * DAY)
    await tidy(fleet.engine)
    await fleet.settle()
    (path,) = (fleet.checkpoints / "run-1" / "history").iterdir()
    assert path.suffix == ".gz"
    rot(path)
    fleet.clock.pass_by(DAY)
    assert (await round_of(fleet))[1] == 1
    assert (await fleet.do(SnapshotGet(made.snapshot_id))).warnings == []
