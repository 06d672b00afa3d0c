"""Retention, rotation and compression of snapshots: the document, sentence by sentence."""

import gzip
import hashlib
from pathlib import Path

import pytest
import trio

from fleetd.config import Retention
from fleetd.engine import DAEMON
from fleetd.housekeeping import keep_house
from fleetd.operations.compressing import SnapshotsCompress
from fleetd.wire.errors import NotFound
from fleetd.wire.requests.snapshot import (
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotPrune,
    SnapshotVerify,
)
from fleetd.wire.snapshots import Snapshot
from tests.engine.test_snapshots import RUN, at_once, record
from tests.fleet import DAY, HOUR, MINUTE, Fleet, opened


async def kept(fleet: Fleet) -> list[str]:
    page = await fleet.do(SnapshotList(RUN, limit=100))
    return [each.snapshot_id for each in page.snapshots]


async def compress(fleet: Fleet) -> int:
    await fleet.settle()
    return (await fleet.engine.perform(SnapshotsCompress(), DAEMON)).compressed


def place(fleet: Fleet, name: str) -> Path:
    return fleet.checkpoints / RUN / name


def history(fleet: Fleet) -> set[str]:
    """Return the names in the run's history."""
    return {path.name for path in place(fleet, "history").iterdir()}


# Retention


async def test_snapshots_older_than_14_days_are_pruned(fleet: Fleet) -> None:
    await record(fleet)
    second = await record(fleet)
    fleet.clock.pass_by(14 * DAY)
    assert (await fleet.do(SnapshotPrune())).deleted == 1
    assert await kept(fleet) == [second.snapshot_id]
    fleet.clock.pass_by(1)
    assert (await fleet.do(SnapshotPrune())).deleted == 1
    await fleet.settle()
    assert await kept(fleet) == []
    assert fleet.files() == {}


async def test_preserved_terminal_snapshots_stay_however_old(fleet: Fleet) -> None:
    await record(fleet, status="failed")
    failed = await record(fleet, status="failed")
    await record(fleet, status="completed")
    completed = await record(fleet, status="completed")
    await record(fleet, status="paused")
    fleet.clock.pass_by(400 * DAY)
    assert (await fleet.do(SnapshotPrune())).deleted == 3
    await fleet.settle()
    assert await kept(fleet) == [completed.snapshot_id, failed.snapshot_id]
    newest = place(fleet, f"history/{completed.snapshot_id}.json")
    assert place(fleet, "latest.json").read_bytes() == newest.read_bytes()


async def test_each_run_keeps_its_own_latest_failed_snapshot(fleet: Fleet) -> None:
    first = await record(fleet, "run-a", status="failed")
    second = await record(fleet, "run-b", status="failed")
    fleet.clock.pass_by(400 * DAY)
    assert (await fleet.do(SnapshotPrune())).deleted == 0
    for each in (first, second):
        assert (await fleet.do(SnapshotGet(each.snapshot_id))).status == "failed"


async def test_the_daily_work_prunes_and_compresses(fleet: Fleet) -> None:
    await record(fleet)
    fleet.clock.pass_by(13 * DAY)
    young = await record(fleet)
    fleet.clock.pass_by(2 * DAY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_house, fleet.engine)
        await fleet.settle()
        nursery.cancel_scope.cancel()
    assert await kept(fleet) == [young.snapshot_id]
    assert history(fleet) == {f"{young.snapshot_id}.json.gz"}


# Rotation


async def test_the_active_file_is_latest_json_and_history_is_immutable(fleet: Fleet) -> None:
    seen: dict[str, bytes] = {}
    for number in range(3):
        taken = await record(fleet, note=str(number))
        await at_once(fleet, note="Joins it")
        await fleet.settle()
        seen[f"{taken.snapshot_id}.json"] = place(fleet, "latest.json").read_bytes()
        assert {name: place(fleet, f"history/{name}").read_bytes() for name in seen} == seen
    assert history(fleet) == set(seen)
    assert not place(fleet, "latest.json").is_symlink()


# Compression


async def test_history_older_than_24_hours_is_compressed(fleet: Fleet) -> None:
    first = await record(fleet)
    second = await record(fleet)
    fleet.clock.pass_by(24 * HOUR)
    assert await compress(fleet) == 1
    assert history(fleet) == {f"{first.snapshot_id}.json.gz", f"{second.snapshot_id}.json"}
    fleet.clock.pass_by(1)
    assert await compress(fleet) == 1
    assert history(fleet) == {f"{each.snapshot_id}.json.gz" for each in (first, second)}
    assert await compress(fleet) == 0


async def test_compression_is_optional(tmp_path: Path) -> None:
    async with opened(tmp_path, retention=Retention(snapshot_gzip_hours=0)) as fleet:
        taken = await record(fleet)
        fleet.clock.pass_by(10 * DAY)
        assert await compress(fleet) == 0
        assert history(fleet) == {f"{taken.snapshot_id}.json"}


async def test_latest_json_is_never_compressed(fleet: Fleet) -> None:
    taken = await record(fleet)
    await fleet.settle()
    whole = place(fleet, "latest.json").read_bytes()
    fleet.clock.pass_by(2 * DAY)
    assert await compress(fleet) == 1
    assert place(fleet, "latest.json").read_bytes() == whole
    packed = place(fleet, f"history/{taken.snapshot_id}.json.gz").read_bytes()
    assert gzip.decompress(packed) == whole


async def test_checksums_of_both_artifacts_are_kept(fleet: Fleet) -> None:
    taken = await record(fleet)
    await fleet.settle()
    plain = place(fleet, f"history/{taken.snapshot_id}.json").read_bytes()
    fleet.clock.pass_by(2 * DAY)
    await compress(fleet)
    packed = place(fleet, f"history/{taken.snapshot_id}.json.gz").read_bytes()

    found = await fleet.do(SnapshotGet(taken.snapshot_id))

    told = [(each.path, each.present, each.size_bytes, each.digest) for each in found.artifacts]
    name = f"history/{taken.snapshot_id}.json"
    assert told == [
        (name, False, len(plain), hashlib.sha256(plain).hexdigest()),
        (f"{name}.gz", True, len(packed), hashlib.sha256(packed).hexdigest()),
    ]
    assert found.integrity == taken.integrity


@pytest.mark.parametrize("row", [True, False])
async def test_compressed_snapshots_are_read_as_others_are(fleet: Fleet, row: bool) -> None:
    first = await record(fleet, status="failed")
    second = await record(fleet)
    fleet.clock.pass_by(2 * DAY)
    assert await compress(fleet) == 2
    if not row:
        fleet.sql("DELETE FROM snapshots")

    def same(one: Snapshot, other: Snapshot) -> bool:
        return (one.integrity, one.command_outcomes) == (other.integrity, other.command_outcomes)

    assert same(await fleet.do(SnapshotLatest(RUN)), second)
    assert same(await fleet.do(SnapshotGet(first.snapshot_id)), first)
    assert await kept(fleet) == [second.snapshot_id, first.snapshot_id]
    verified = await fleet.do(SnapshotVerify(RUN))
    assert (verified.ok, {each.ok for each in verified.findings}) == (True, {True})


async def test_a_compressed_snapshot_is_pruned_as_others_are(fleet: Fleet) -> None:
    taken = await record(fleet)
    fleet.clock.pass_by(2 * DAY)
    assert await compress(fleet) == 1
    fleet.clock.pass_by(13 * DAY + MINUTE)
    assert (await fleet.do(SnapshotPrune())).deleted == 1
    await fleet.settle()
    assert fleet.files() == {}
    with pytest.raises(NotFound):
        await fleet.do(SnapshotGet(taken.snapshot_id))
