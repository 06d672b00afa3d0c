"""What the doctor finds around the store, and what it leaves alone."""

import os
import stat
from pathlib import Path

import pytest

from fleetd.protocol.errors import Storage
from fleetd.protocol.records import Finding
from fleetd.protocol.requests.checkpoint import CheckpointLatest, CheckpointVerify
from fleetd.protocol.requests.snapshot import SnapshotRecord
from fleetd.protocol.requests.system import Findings, SystemDoctor
from fleetd.store import disk_audit
from tests.support.fleet import Fleet


async def wrong(fleet: Fleet, *, fix: bool = False) -> list[Finding]:
    return [f for f in (await fleet.do(SystemDoctor(fix=fix))).findings if not f.ok]


def loosen_all(fleet: Fleet) -> list[Path]:
    data = fleet.database.parent
    files = [path for path in data.iterdir() if path.is_file()]
    below = [path for path in fleet.checkpoints.rglob("*") if not path.is_symlink()]
    replaced = data / "replaced-20260105T120000Z"
    replaced.mkdir()
    (replaced / "squawk.db").write_bytes(b"old")
    loose = [data, *files, fleet.checkpoints, *below, replaced, replaced / "squawk.db"]
    for path in loose:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return loose


@pytest.mark.sqlite_only("the database is a file")
async def test_every_file_and_directory_of_ours_is_looked_at(fleet: Fleet) -> None:
    await fleet.checkpoint(await fleet.mission())
    taken = await fleet.do(SnapshotRecord("run-a"))
    loose = loosen_all(fleet)
    assert fleet.checkpoints / "run-a" / "history" / f"{taken.snapshot_id}.json" in loose
    assert {fleet.database.name + ending for ending in ("", "-wal", "-shm")} <= {
        path.name for path in loose
    }
    found = await wrong(fleet)
    assert {f.subject for f in found if f.check == "permissions"} == set(map(str, loose))
    assert not any(f.fixed for f in found)

    mended = await wrong(fleet, fix=True)
    assert {f.subject for f in mended if f.fixed} == set(map(str, loose))
    assert await wrong(fleet) == []
    for path in loose:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


async def test_a_file_closed_to_us_is_opened_again(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    fleet.file_of(taken).chmod(0o040)
    details = {f.detail for f in await wrong(fleet, fix=True) if f.check == "permissions"}
    assert details == {"mode 0040, open to others"}
    assert stat.S_IMODE(fleet.file_of(taken).stat().st_mode) == 0o600


async def test_what_belongs_to_somebody_else_is_named_and_not_touched(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: real + 1)
    found = [f for f in await wrong(fleet, fix=True) if f.check == "permissions"]
    assert found
    assert all(f"belongs to uid {real}, not to uid {real + 1}" == f.detail for f in found)
    assert not any(f.fixed for f in found)


async def test_very_many_findings_are_counted(fleet: Fleet) -> None:
    place = fleet.checkpoints / "msn-0badf00d"
    fleet.checkpoints.mkdir(mode=0o700, parents=True)
    place.mkdir(mode=0o700)
    for number in range(60):
        (place / f"{number}.txt").write_text("x")
        (place / f"{number}.txt").chmod(0o644)
    found = [f for f in await wrong(fleet, fix=True) if f.check == "permissions"]
    assert (len(found), found[-1].detail) == (51, "and 10 more like these")
    assert all(f.fixed for f in found)


@pytest.mark.parametrize("depth", [0, 1])
async def test_a_directory_that_cannot_be_looked_into_is_named(
    fleet: Fleet, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    closed, look = (fleet.checkpoints, fleet.file_of(taken).parent)[depth], os.scandir

    def scandir(path: object) -> object:
        if path == str(closed):  # as it is for everybody but root
            raise PermissionError
        return look(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", scandir)
    closed.chmod(0o000)
    (found,) = [f for f in await wrong(fleet, fix=True) if f.check == "permissions"]
    assert (found.subject, found.fixed) == (str(closed), True)
    assert found.detail == "mode 0000, closed to fleetd itself"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


async def test_the_doctor_tells_of_a_full_disk_also_when_it_is_full(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise Storage("The disk is full; nothing was stored.")

    monkeypatch.setattr(fleet.engine.store, "write", full)
    monkeypatch.setattr(disk_audit, "free_bytes", lambda _: 0)
    seen = await fleet.do(SystemDoctor(idempotency_key="a" * 16))
    assert {(f.check, f.detail) for f in seen.findings if not f.ok} == {
        ("disk", "0 MB free, less than 100 MB")
    }


async def test_a_name_that_is_no_text_is_named_all_the_same(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    mission = fleet.file_of(taken).parent
    os.close(os.open(os.fsencode(mission) + b"/\xff.txt", os.O_CREAT | os.O_WRONLY, 0o644))
    (found,) = await wrong(fleet, fix=True)
    assert (found.subject, found.fixed) == (str(mission / "\ufffd.txt"), True)
    assert await wrong(fleet) == []


async def test_a_symlink_is_not_followed(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.checkpoint(await fleet.mission())
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    (fleet.checkpoints / "link").symlink_to(outside)
    await fleet.do(SystemDoctor(fix=True))
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


async def test_what_a_crash_left_is_found_once_it_is_old(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    await fleet.do(SnapshotRecord("run-a"))
    left = [
        fleet.database.parent / ".fleetd-part-0123.db",
        fleet.file_of(taken).with_name(".tmp-0123"),
        fleet.checkpoints / "run-a" / ".tmp-0123",
        fleet.checkpoints / "run-a" / "history" / ".tmp-0123",
    ]
    for path in left:
        path.touch(mode=0o600)
    assert await wrong(fleet) == []
    for path in left:
        os.utime(path, (1, 1))
    assert {f.subject for f in await wrong(fleet)} == set(map(str, left))
    assert all(f.fixed for f in await wrong(fleet, fix=True))
    assert not any(path.exists() for path in left)


async def test_snapshots_are_compared_too_and_their_damage_has_a_reason_code(
    fleet: Fleet,
) -> None:
    taken = [await fleet.do(SnapshotRecord(f"run-{number}")) for number in range(3)]
    good, changed, cut = (
        fleet.checkpoints / each.run_id / "history" / f"{each.snapshot_id}.json" for each in taken
    )
    assert snapshots(await fleet.do(SystemDoctor())) == ["3 intact in both stores"]
    whole = changed.read_bytes()
    changed.write_bytes(whole.replace(b'"in_progress"', b'"completed"'))
    cut.write_bytes(whole[:100])

    seen = await fleet.do(SystemDoctor())
    assert not seen.ok
    assert snapshots(seen) == ["1 intact in both stores"]
    assert {(f.subject, f.reason_code) for f in seen.findings if f.check == "snapshot"} == {
        (taken[1].snapshot_id, "checkpoint_integrity_mismatch"),
        (taken[2].snapshot_id, "checkpoint_schema_invalid"),
    }

    assert all(f.fixed for f in await wrong(fleet, fix=True))
    assert changed.read_bytes() == whole
    assert snapshots(await fleet.do(SystemDoctor())) == ["3 intact in both stores"]
    assert good.exists()


async def test_a_run_whose_id_looks_like_a_missions_is_no_mission(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    await fleet.do(SnapshotRecord("abc-1a2b3c4d"))
    before = fleet.files()
    assert await wrong(fleet, fix=True) == []
    assert (await fleet.do(CheckpointVerify(repair=True))).ok
    assert (await fleet.do(CheckpointLatest(taken.mission_id))).id == taken.id
    assert fleet.files() == before


def snapshots(seen: Findings) -> list[str]:
    return [f.detail for f in seen.findings if f.check == "snapshots"]


@pytest.mark.sqlite_only("the database is a file")
async def test_a_second_name_of_the_database_is_taken_away(fleet: Fleet) -> None:
    replaced = fleet.database.parent / "replaced-20260105T120000Z"
    replaced.mkdir(mode=0o700)
    os.link(fleet.database, replaced / fleet.database.name)
    (found,) = await wrong(fleet, fix=True)
    assert (found.check, found.subject) == ("leftovers", str(replaced / fleet.database.name))
    assert os.listdir(replaced) == []
    assert await wrong(fleet) == []


async def test_little_room_is_a_warning(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_audit, "free_bytes", lambda _: 99_999_999)
    assert {(f.check, f.detail) for f in await wrong(fleet)} == {
        ("disk", "99 MB free, less than 100 MB")
    }


@pytest.mark.sqlite_only("a server keeps such rows out")
async def test_rows_that_belong_to_nothing_are_damage(fleet: Fleet) -> None:
    fleet.sql(
        "INSERT INTO episodes (mission_id, last_seq, detected_at) VALUES ('msn-00000000', 1, 'x')"
    )
    (found,) = await wrong(fleet)
    assert found.check == "database"
    assert "has no parent in missions" in found.detail
