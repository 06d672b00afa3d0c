"""How long snapshots stay and in which form, sentence by sentence of the lifecycle's document.

What holds for the pruning of checkpoints as well is asked of both in ``test_pruning`` and here.
"""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.config import Retention
from fleetd.domain.artifacts.ingest import stored
from fleetd.domain.artifacts.outbox import backup
from fleetd.domain.core.context import BatchSizes
from fleetd.domain.core.tx import WriteBackup
from fleetd.domain.retention import pruning as rules
from fleetd.domain.snapshots.codec import to_file
from fleetd.domain.snapshots.snapshots import note_compressed
from fleetd.engine.jobs.daily import DAY_S, run_daily_work
from fleetd.engine.jobs.daily import compress as compress_files
from fleetd.protocol.errors import NotFound, Storage
from fleetd.protocol.requests.snapshot import (
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotPrune,
    SnapshotRecord,
    SnapshotVerify,
)
from fleetd.protocol.snapshots import Snapshot
from tests.support.fleet import DAY, HOUR, MINUTE, Clock, Fleet, meet_rules, opened

RUN = "run-1"
BATCH = 5


async def record(fleet: Fleet, run_id: str = RUN, **said: Any) -> Snapshot:
    """Record a snapshot, a minute after whatever came before."""
    fleet.clock.pass_by(MINUTE)
    return await fleet.do(SnapshotRecord(run_id, **said))


async def several(fleet: Fleet, number: int, run_id: str = RUN, **said: Any) -> list[Snapshot]:
    return [await record(fleet, run_id, **said) for _ in range(number)]


async def left(fleet: Fleet, run_id: str = RUN) -> list[str]:
    """Return the ids of a run's snapshots, oldest first; its files must be those."""
    await fleet.settle()
    page = await fleet.do(SnapshotList(run_id, limit=1_000))
    found = [each.snapshot_id for each in page.snapshots][::-1]
    files = [path.name.partition(".")[0] for path in history(fleet, run_id).iterdir()]
    assert sorted(files) == sorted(found)
    return found


def names(taken: list[Snapshot]) -> list[str]:
    return [each.snapshot_id for each in taken]


def rows(fleet: Fleet) -> list[str]:
    """Every row there is, also those that are marked."""
    return [row["id"] for row in fleet.sql("SELECT id FROM snapshots ORDER BY seq")]


def history(fleet: Fleet, run_id: str = RUN) -> Path:
    return fleet.checkpoints / run_id / "history"


def latest(fleet: Fleet, run_id: str = RUN) -> bytes:
    return (fleet.checkpoints / run_id / "latest.json").read_bytes()


def plain(fleet: Fleet, snapshot: Snapshot) -> Path:
    return history(fleet, snapshot.run_id) / f"{snapshot.snapshot_id}.json"


def packed(fleet: Fleet, snapshot: Snapshot) -> Path:
    return history(fleet, snapshot.run_id) / f"{snapshot.snapshot_id}.json.gz"


async def compress(fleet: Fleet) -> int:
    return await compress_files(fleet.engine)


# Retention defaults


async def test_keep_the_latest_50_snapshots_per_run_id(fleet: Fleet) -> None:
    other = await several(fleet, 3, "run-2")
    taken = await several(fleet, 57)
    assert await left(fleet) == names(taken[7:])
    assert await left(fleet, "run-2") == names(other)
    assert latest(fleet) == to_file(taken[-1])


async def test_the_latest_are_those_of_the_log_and_not_of_the_clock(tmp_path: Path) -> None:
    async with opened(tmp_path, retention=Retention(snapshots_per_run=3)) as fleet:
        taken = []
        for step in (DAY, -2 * DAY, HOUR, -3 * HOUR, 0):
            fleet.clock.step(step)
            taken.append(await record(fleet))
        assert await left(fleet) == names(taken[2:])
        assert latest(fleet) == to_file(taken[-1])


async def test_a_lower_number_is_reached_by_pruning_too(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        taken = await several(fleet, 30)
    async with opened(tmp_path, clock=clock, retention=Retention(snapshots_per_run=4)) as fleet:
        dry = await fleet.do(SnapshotPrune(dry_run=True))
        assert await left(fleet) == names(taken)
        pruned = await fleet.do(SnapshotPrune())
        assert (dry.deleted, dry.freed_bytes) == (pruned.deleted, pruned.freed_bytes)
        assert [each.id for each in pruned.details] == names(taken[:26])
        assert await left(fleet) == names(taken[26:])


async def test_always_preserve_the_latest_failed_and_the_latest_completed_snapshot(
    fleet: Fleet,
) -> None:
    """However many came after them, and however old they are."""
    failed = await several(fleet, 2, status="failed")
    completed = await several(fleet, 2, status="completed")
    newer = await several(fleet, 60, status="in_progress")
    kept = [failed[1], completed[1]]
    assert await left(fleet) == names([*kept, *newer[10:]])
    fleet.clock.pass_by(400 * DAY)
    await fleet.do(SnapshotPrune())
    assert await left(fleet) == names(kept)
    assert latest(fleet) == to_file(completed[1])
    assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == completed[1].snapshot_id
    assert (await fleet.do(SnapshotVerify())).ok


async def test_what_is_preserved_is_one_of_each_run_and_gives_way_to_a_later_one(
    fleet: Fleet,
) -> None:
    early = await record(fleet, status="failed")
    other = await record(fleet, "run-2", status="failed")
    fleet.clock.pass_by(15 * DAY)
    later = await record(fleet, status="failed")
    await fleet.do(SnapshotPrune())
    assert await left(fleet) == [later.snapshot_id]
    assert await left(fleet, "run-2") == [other.snapshot_id]
    with pytest.raises(NotFound):
        await fleet.do(SnapshotGet(early.snapshot_id))


@pytest.mark.parametrize("status", ["in_progress", "paused"])
async def test_prune_snapshots_older_than_14_days_unless_preserved(
    fleet: Fleet, status: Any
) -> None:
    old = await several(fleet, 3, status=status)
    fleet.clock.pass_by(13 * DAY)
    young = await record(fleet, status=status)
    fleet.clock.pass_by(DAY - MINUTE)
    assert (await fleet.do(SnapshotPrune())).deleted == 2
    # Exactly at 14 days it is not older yet.
    assert await left(fleet) == names([old[2], young])
    fleet.clock.pass_by(1)
    pruned = await fleet.do(SnapshotPrune(RUN))
    assert [(each.id, each.run_id) for each in pruned.details] == [(old[2].snapshot_id, RUN)]
    assert await left(fleet) == [young.snapshot_id]


async def test_a_run_of_which_nothing_stays_leaves_no_directory(fleet: Fleet) -> None:
    await several(fleet, 3)
    fleet.clock.pass_by(15 * DAY)
    await fleet.do(SnapshotPrune())
    assert rows(fleet) == []
    assert not (fleet.checkpoints / RUN).exists()
    again = await record(fleet)
    assert await left(fleet) == [again.snapshot_id]


async def test_pruning_is_done_daily_and_tells_of_itself(
    fleet: Fleet, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    taken = await record(fleet)
    fleet.clock.follow_trio()
    nursery.start_soon(run_daily_work, fleet.engine)
    await trio.sleep(14 * DAY_S - 60)
    assert rows(fleet) == [taken.snapshot_id]
    await trio.sleep(2 * DAY_S)
    assert rows(fleet) == []
    (event,) = await fleet.events(kind="snapshots_pruned")
    assert event.data["deleted"] == 1


# Rotation behavior


async def test_the_active_file_is_latest_json_and_history_is_immutable(fleet: Fleet) -> None:
    seen: dict[str, tuple[bytes, int]] = {}
    for _ in range(4):
        taken = await record(fleet)
        await fleet.do(SnapshotRecord(RUN))  # joins: the file does not change
        assert latest(fleet) == to_file(taken)
        for path in history(fleet).iterdir():
            now = (path.read_bytes(), path.stat().st_ino)
            assert seen.setdefault(path.name, now) == now
    assert len(seen) == 4


# Compression policy


async def test_gzip_for_history_snapshots_older_than_24_hours(fleet: Fleet) -> None:
    old, young = await record(fleet), await record(fleet)
    fleet.clock.pass_by(24 * HOUR - MINUTE)
    # The older one is exactly 24 hours old, and not older.
    assert await compress(fleet) == 0
    fleet.clock.pass_by(1)
    assert await compress(fleet) == 1
    assert [path.name for path in sorted(history(fleet).iterdir())] == [
        packed(fleet, old).name,
        plain(fleet, young).name,
    ]
    assert await compress(fleet) == 0


async def test_gzip_is_optional(tmp_path: Path) -> None:
    async with opened(tmp_path, retention=Retention(snapshot_gzip_hours=0)) as fleet:
        taken = await record(fleet)
        fleet.clock.pass_by(10 * DAY)
        assert await compress(fleet) == 0
        assert plain(fleet, taken).is_file()


async def test_never_compress_latest_json(fleet: Fleet) -> None:
    taken = await record(fleet)
    fleet.clock.pass_by(2 * DAY)
    assert await compress(fleet) == 1
    assert not plain(fleet, taken).exists()
    assert latest(fleet) == to_file(taken)
    assert {path.name for path in (fleet.checkpoints / RUN).iterdir()} == {"history", "latest.json"}
    assert (await fleet.do(SnapshotVerify())).ok


async def test_keep_checksum_metadata_for_both_compressed_and_uncompressed_artifacts(
    fleet: Fleet,
) -> None:
    taken = await record(fleet)
    data = plain(fleet, taken).read_bytes()
    fleet.clock.pass_by(2 * DAY)
    await compress(fleet)
    raw = packed(fleet, taken).read_bytes()
    got = await fleet.do(SnapshotGet(taken.snapshot_id))
    told = [(a.path, a.compressed, a.present, a.size_bytes, a.digest) for a in got.artifacts]
    name = f"history/{taken.snapshot_id}.json"
    assert told == [
        (name, False, False, len(data), hashlib.sha256(data).hexdigest()),
        (f"{name}.gz", True, True, len(raw), hashlib.sha256(raw).hexdigest()),
    ]
    assert gzip.decompress(raw) == data
    assert got.compressed_at == fleet.clock.now


async def test_both_checksums_are_checked(fleet: Fleet) -> None:
    taken = await record(fleet)
    await record(fleet)
    data = plain(fleet, taken).read_bytes()
    # The same document, in other bytes.
    plain(fleet, taken).write_bytes(json.dumps(json.loads(data)).encode())
    request = SnapshotVerify(snapshot_id=taken.snapshot_id, repair=True)
    (finding,) = (await fleet.do(request)).findings
    assert finding.detail == "the file does not match its own checksum"
    assert (finding.fixed, finding.reason_code) == (True, "checkpoint_integrity_mismatch")
    assert plain(fleet, taken).read_bytes() == data

    fleet.clock.pass_by(2 * DAY)
    await compress(fleet)
    packed(fleet, taken).write_bytes(gzip.compress(data, 1, mtime=1))
    (finding,) = (await fleet.do(request)).findings
    assert finding.detail == "the compressed file does not match its own checksum"
    assert (finding.fixed, finding.reason_code) == (True, "checkpoint_integrity_mismatch")
    # It is plain again until the next day.
    assert plain(fleet, taken).read_bytes() == data
    assert not packed(fleet, taken).exists()
    got = await fleet.do(SnapshotGet(taken.snapshot_id))
    assert [each.compressed for each in got.artifacts] == [False]
    assert await compress(fleet) == 1


async def test_a_file_is_compressed_to_the_same_bytes_whenever_it_is(fleet: Fleet) -> None:
    taken = await record(fleet)
    found = set()
    for _ in range(3):
        fleet.clock.pass_by(2 * DAY)
        await compress(fleet)
        found.add(packed(fleet, taken).read_bytes())
        fleet.engine.outbox.post(WriteBackup("snapshot", taken.snapshot_id))
        await fleet.engine.outbox.settled()
    assert len(found) == 1


async def test_compressed_snapshots_are_read_like_any_other(fleet: Fleet) -> None:
    taken = await several(fleet, 3)
    fleet.clock.pass_by(2 * DAY)
    await compress(fleet)
    assert to_file(await fleet.do(SnapshotGet(taken[0].snapshot_id))) == to_file(taken[0])
    assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == taken[2].snapshot_id
    page = await fleet.do(SnapshotList(RUN))
    assert [each.compressed_at for each in page.snapshots] == [fleet.clock.now] * 3
    assert (await fleet.do(SnapshotVerify())).ok
    # Also when nothing but the compressed file is left of one.
    fleet.sql("DELETE FROM snapshots WHERE id = :id", id=taken[0].snapshot_id)
    got = await fleet.do(SnapshotGet(taken[0].snapshot_id))
    assert to_file(got) == to_file(taken[0])
    assert [each.compressed for each in got.artifacts if each.present] == [True]
    fleet.clock.pass_by(13 * DAY)
    assert (await fleet.do(SnapshotPrune())).deleted == 3
    assert not (fleet.checkpoints / RUN).exists()


async def test_many_are_compressed_some_at_a_time_and_a_damaged_one_stops_none(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what its row vouches for is compressed: a damaged one stays as it is."""
    taken = [each for n in range(3) for each in await several(fleet, 45, f"run-{n}")]
    fleet.clock.pass_by(2 * DAY)
    spoilt = taken[7]
    fleet.sql("UPDATE snapshots SET document_json = '{}' WHERE id = :id", id=spoilt.snapshot_id)
    assert await compress(fleet) == len(taken) - 1
    assert plain(fleet, spoilt).is_file()
    assert f"snapshot {spoilt.snapshot_id}" in caplog.text
    assert to_file(await fleet.do(SnapshotGet(spoilt.snapshot_id))) == to_file(spoilt)
    assert await compress(fleet) == 1


async def test_a_damaged_file_is_not_compressed_but_what_its_row_holds(fleet: Fleet) -> None:
    taken = await record(fleet)
    await record(fleet)
    plain(fleet, taken).write_bytes(b"{half")
    fleet.clock.pass_by(2 * DAY)
    await compress(fleet)
    assert gzip.decompress(packed(fleet, taken).read_bytes()) == to_file(taken)
    assert (await fleet.do(SnapshotVerify())).ok


async def test_a_disk_without_room_leaves_the_plain_files(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken = await several(fleet, 3)
    fleet.clock.pass_by(2 * DAY)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("fleetd.host.atomic_files.os.fsync", full)
        assert await compress(fleet) == 0
    assert all(plain(fleet, each).is_file() for each in taken)
    assert len(list(history(fleet).iterdir())) == 3
    assert "could not be compressed: [Errno 28]" in caplog.text
    assert await compress(fleet) == 3


@pytest.mark.parametrize("at", [backup, note_compressed])
async def test_compressing_that_a_crash_cut_short_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Any
) -> None:
    """The file is compressed, and the row does not know it; or neither."""
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        taken = await several(fleet, 3)
        clock.pass_by(2 * DAY)

        async def crash(rule: Any, *_: Any) -> None:
            if rule is at:
                raise Storage("The machine stopped.")

        with monkeypatch.context() as patched:
            meet_rules(fleet.engine, patched, crash)
            with pytest.raises(Storage):
                await compress(fleet)
    async with opened(tmp_path, clock=clock) as fleet:
        await fleet.settle()
        files = {path.suffix for path in history(fleet).iterdir()}
        assert files == ({".json", ".gz"} if at is note_compressed else {".json"})
        for each in taken:
            got = await fleet.do(SnapshotGet(each.snapshot_id))
            assert (to_file(got), got.warnings) == (to_file(each), [])
        assert (await fleet.do(SnapshotVerify())).ok
        assert latest(fleet) == to_file(taken[-1])
        assert await compress(fleet) == 3
        assert {path.suffix for path in history(fleet).iterdir()} == {".gz"}
        assert (await fleet.do(SnapshotVerify())).ok


async def test_what_is_pruned_while_it_is_compressed_is_gone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await several(fleet, 3)
    fleet.clock.pass_by(20 * DAY)
    young = await record(fleet)
    pruned = []

    async def prune_first(rule: Any, *args: Any) -> None:
        if rule is backup and not pruned:
            pruned.append(getattr(args[-1], "record_id", args[-1]))
            found = await fleet.engine.write(rules.mark, "snapshot", policy, candidates)
            assert len(found) == 3

    policy = await fleet.engine.read(rules.policy, "snapshot", None, None, None)
    look = await fleet.engine.read(rules.look, "snapshot", policy, rules.PruneCursor())
    candidates = look.found
    meet_rules(fleet.engine, monkeypatch, prune_first)
    assert await compress(fleet) == 0
    assert pruned == [taken[0].snapshot_id]
    assert await left(fleet) == [young.snapshot_id]
    assert rows(fleet) == [young.snapshot_id]


# Failure semantics


@pytest.mark.parametrize("damage", ["row", "file"])
async def test_corrupted_snapshot_files_must_not_overwrite_latest_json(
    tmp_path: Path, damage: str
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        before = await record(fleet, note="before")
        newest = await record(fleet, note="newest")
        good = latest(fleet)
        if damage == "row":
            fleet.sql(
                "UPDATE snapshots SET document_json = replace(document_json, 'low', 'bad')"
                " WHERE id = :id",
                id=newest.snapshot_id,
            )
        else:
            plain(fleet, newest).write_bytes(good.replace(b"low", b"bad"))
        for each in (newest, before):
            fleet.engine.outbox.post(WriteBackup("snapshot", each.snapshot_id))
            await fleet.engine.outbox.settled()
            assert latest(fleet) == good
        clock.pass_by(2 * DAY)
        await compress(fleet)
        assert latest(fleet) == good
    async with opened(tmp_path, clock=clock) as fleet:
        await fleet.settle()
        assert latest(fleet) == good
        await fleet.do(SnapshotVerify(repair=True))
        assert latest(fleet) == good
        assert (await fleet.do(SnapshotVerify())).ok


async def test_latest_json_holds_nothing_that_was_pruned_though_the_newest_has_no_good_row(
    fleet: Fleet,
) -> None:
    """Its file has what its row lost."""
    failed = await record(fleet, status="failed")
    await record(fleet, status="in_progress")
    fleet.sql("UPDATE snapshots SET document_json = '{}' WHERE id = :id", id=failed.snapshot_id)
    fleet.clock.pass_by(15 * DAY)
    assert (await fleet.do(SnapshotPrune())).deleted == 1
    await fleet.settle()
    assert latest(fleet) == to_file(failed)


# In pieces, as checkpoints are


@pytest.fixture
def batches() -> BatchSizes:
    """Make batches small, so that a few snapshots are many of them."""
    return BatchSizes(records=BATCH)


async def aged(fleet: Fleet, runs: int = 1, each: int = 12) -> list[str]:
    """Record runs of which all but the newest snapshot are past their time."""
    taken = [one for n in range(runs) for one in await several(fleet, each - 1, f"run-{n + 1}")]
    fleet.clock.pass_by(15 * DAY)
    for number in range(runs):
        await record(fleet, f"run-{number + 1}")
    await fleet.settle()
    return names(taken)


async def test_what_was_marked_when_it_broke_off_is_finished_at_the_next_start(
    tmp_path: Path,
) -> None:
    """Also what was compressed; nothing of it comes back out of a file."""
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        old = await aged(fleet)
        await compress(fleet)

        def refuse(*_: object) -> None:
            raise OSError(5, "Input/output error")

        fleet.engine.backups["snapshot"].remove = refuse  # type: ignore[assignment, method-assign]
        with pytest.raises(Storage):
            await fleet.do(SnapshotPrune())
        assert len(rows(fleet)) == len(old) + 1
        await fleet.do(SnapshotVerify(repair=True))
        for each in old:
            with pytest.raises(NotFound):
                await fleet.do(SnapshotGet(each))
        newest = await fleet.do(SnapshotLatest(RUN))
    async with opened(tmp_path, clock=clock) as fleet:
        await fleet.settle()
        assert rows(fleet) == await left(fleet) == [newest.snapshot_id]
        assert latest(fleet) == to_file(newest)


async def test_one_that_becomes_the_latest_failed_meanwhile_stays(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found is judged anew by the transaction that marks it."""
    first = await record(fleet, status="failed")
    later = await record(fleet, status="failed")
    fleet.clock.pass_by(15 * DAY)
    await record(fleet, status="in_progress")

    async def lose_the_later(rule: Any, *_: Any) -> None:
        if rule is rules.mark:
            fleet.sql("DELETE FROM snapshots WHERE id = :id", id=later.snapshot_id)

    meet_rules(fleet.engine, monkeypatch, lose_the_later)
    assert (await fleet.do(SnapshotPrune())).deleted == 0
    assert first.snapshot_id in rows(fleet)


async def test_what_goes_while_verify_looks_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, retention=Retention(snapshots_per_run=4)) as fleet:
        taken = await several(fleet, 4)
        wanted = set(names(taken[:3]))

        async def drop_surplus_checkpoints(rule: Any, *args: Any) -> None:
            if rule is stored and args[-1] in wanted:
                wanted.discard(args[-1])
                taken.append(await record(fleet))

        meet_rules(fleet.engine, monkeypatch, drop_surplus_checkpoints)
        found = await fleet.do(SnapshotVerify(repair=True))
        assert found.ok, found
        assert {each.detail for each in found.findings} == {
            "deleted in the meantime",
            "both copies are intact",
        }
        assert await left(fleet) == names(taken[-4:])
