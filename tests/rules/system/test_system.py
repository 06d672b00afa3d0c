"""The daemon looks at itself: copies of the database in use, damage, and loose permissions."""

import os
import resource
import stat
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from fleetd.engine.engine import DAEMON
from fleetd.engine.lifecycle import open_engine
from fleetd.protocol.errors import Corrupt, InvalidParams, Storage
from fleetd.protocol.requests.mission import MissionCreate, NewSortie
from fleetd.protocol.requests.snapshot import SnapshotRecord
from fleetd.protocol.requests.system import (
    SystemBackup,
    SystemDoctor,
    SystemHealth,
    SystemStatus,
)
from fleetd.store.sqlite import online_backup
from tests.support import shared_store
from tests.support.fleet import Fleet, opened, settings

COPIES = 5


@pytest.mark.sqlite_only("a server makes its own copies")
async def test_a_copy_made_while_others_write_is_one_moment_of_the_store(tmp_path: Path) -> None:
    created: list[str] = []
    known: list[set[str]] = []
    async with open_engine(settings(tmp_path)) as engine:

        async def keep_writing() -> None:
            while True:
                sorties = [NewSortie(f"s{n}", description="x" * 3_000) for n in range(3)]
                made = await engine.handle(MissionCreate("m", sorties=sorties), DAEMON)
                created.append(made.id)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(keep_writing)
            for number in range(COPIES):
                known.append(set(created))
                copied = await engine.handle(SystemBackup(str(tmp_path / f"{number}.db")), DAEMON)
                assert copied.size_bytes == (tmp_path / f"{number}.db").stat().st_size
            nursery.cancel_scope.cancel()
    assert len(created) > COPIES
    for number, before in enumerate(known):
        _check_copy(tmp_path / f"{number}.db", before)


def _check_copy(path: Path, before: set[str]) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    copy = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    assert copy.pragma("integrity_check") == "ok"
    missions = {str(row[0]) for row in copy.execute("SELECT id FROM missions")}
    sorties = copy.execute("SELECT count(*) FROM sorties").fetchall()[0][0]
    events = copy.execute("SELECT count(DISTINCT mission_id) FROM events").fetchall()[0][0]
    copy.close()
    assert before <= missions
    assert (sorties, events) == (3 * len(missions), len(missions))


@pytest.mark.sqlite_only("a server makes its own copies")
async def test_a_copy_can_be_opened_as_a_store(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission)
        target = tmp_path / "moved" / "data"
        target.mkdir(parents=True)
        await fleet.do(SystemBackup(str(target / "squawk.db")))
    async with opened(tmp_path / "moved") as moved:
        assert (await moved.again(mission)).title == mission.title
        assert await moved.checkpoint_ids(mission) == [taken.id]


@pytest.mark.parametrize("name", ["copy.db", "./copy.db", "../copy.db", "~/copy.db"])
async def test_a_copy_to_a_relative_path_is_refused(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParams, match="not absolute") as error:
        await fleet.do(SystemBackup(name))
    assert error.value.values == {"field": "path"}
    assert not any("copy.db" in names for _, _, names in os.walk(tmp_path))


async def test_a_copy_never_overwrites_what_is_there(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in (tmp_path / "precious", tmp_path / "link", tmp_path, fleet.database):
        with pytest.raises((InvalidParams, Storage)):
            await fleet.do(SystemBackup(str(place)))
    assert (tmp_path / "precious").read_text() == "keep me"
    assert not (tmp_path / "nowhere").exists()
    assert (await fleet.do(SystemHealth())).ok


async def test_a_copy_into_nowhere_says_so_and_leaves_nothing(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(Storage, match="cannot be written"):
        await fleet.do(SystemBackup(str(tmp_path / "missing" / "copy.db")))
    assert not (tmp_path / "missing").exists()


@pytest.mark.sqlite_only("a server makes its own copies")
async def test_a_copy_that_does_not_fit_says_so_and_leaves_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the size of files stands for a full disk; Python ignores its signal.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(Storage, match=r"copy\.db failed: the disk (failed|is full)"):
            await fleet.do(SystemBackup(str(tmp_path / "copy.db")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not any("copy.db" in name for name in os.listdir(tmp_path))
    assert (await fleet.do(SystemHealth())).ok


@pytest.mark.sqlite_only("a server makes its own copies")
async def test_a_copy_that_is_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, given_up, fill = trio.Event(), threading.Event(), online_backup._fill

    def tell_and_fill(*arguments: Any) -> None:
        trio.from_thread.run_sync(begun.set)
        given_up.wait(60)
        fill(*arguments)

    monkeypatch.setattr(online_backup, "_fill", tell_and_fill)
    async with open_engine(settings(tmp_path)) as engine:
        for _ in range(20):
            sorties = [NewSortie(f"s{n}", description="x" * 3_000) for n in range(50)]
            await engine.handle(MissionCreate("m", sorties=sorties), DAEMON)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.handle, SystemBackup(str(tmp_path / "copy.db")), DAEMON)
            await begun.wait()
            nursery.cancel_scope.cancel()
            given_up.set()
        assert sorted(os.listdir(tmp_path)) == ["data"]
        assert (await engine.handle(SystemHealth(), DAEMON)).ok


@pytest.mark.sqlite_only("it damages the file")
async def test_a_damaged_database_is_not_copied(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        for _ in range(20):
            await fleet.mission(20)
    async with opened(tmp_path) as fleet:
        _overwrite(fleet.database, 40_960)
        with pytest.raises(Corrupt, match="it was not copied"):
            await fleet.do(SystemBackup(str(tmp_path / "copy.db")))
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".db")]


async def test_a_healthy_fleet_has_no_findings(fleet: Fleet) -> None:
    await fleet.checkpoint(await fleet.mission())
    seen = await fleet.do(SystemDoctor())
    assert seen.ok
    assert all(finding.ok for finding in seen.findings)
    assert {finding.check for finding in seen.findings} == {
        "cursors",
        "database",
        "schema",
        "permissions",
        "leftovers",
        "spool",
        "disk",
        "room",
        "checkpoints",
        "snapshots",
        "search",
    }


@pytest.mark.sqlite_only("there is a file whose permissions can be loose")
async def test_loose_permissions_are_found_and_mended_on_request(fleet: Fleet) -> None:
    await fleet.checkpoint(await fleet.mission())
    fleet.database.chmod(0o644)
    fleet.checkpoints.chmod(0o755)
    loose = {str(fleet.database), str(fleet.checkpoints)}

    seen = await fleet.do(SystemDoctor())
    assert not seen.ok
    assert {finding.subject for finding in seen.findings if not finding.ok} == loose
    assert stat.S_IMODE(fleet.database.stat().st_mode) == 0o644

    mended = await fleet.do(SystemDoctor(fix=True))
    assert mended.ok
    assert {finding.subject for finding in mended.findings if finding.fixed} == loose
    assert stat.S_IMODE(fleet.database.stat().st_mode) == 0o600
    assert stat.S_IMODE(fleet.checkpoints.stat().st_mode) == 0o700
    assert all(finding.ok for finding in (await fleet.do(SystemDoctor())).findings)


async def test_a_missing_file_is_found_and_written_again(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    fleet.file_of(taken).unlink()
    seen = await fleet.do(SystemDoctor())
    assert [f.subject for f in seen.findings if not f.ok] == [taken.id]
    assert (await fleet.do(SystemDoctor(fix=True))).ok
    assert fleet.file_of(taken).is_file()


@pytest.mark.sqlite_only("it damages the file")
@pytest.mark.parametrize("start", [100, 4_096, 40_960])
async def test_damage_in_the_database_is_a_finding_and_no_crash(tmp_path: Path, start: int) -> None:
    async with opened(tmp_path) as fleet:
        for _ in range(20):
            await fleet.mission(20)
    async with opened(tmp_path) as fleet:
        _overwrite(fleet.database, start)
        seen = await fleet.do(SystemDoctor())
    (database,) = [f for f in seen.findings if f.check == "database"]
    assert not seen.ok
    assert not database.ok
    assert database.detail not in ("", "intact")


def _overwrite(path: Path, start: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * 8_192)


async def test_the_status_counts_what_the_store_holds(fleet: Fleet) -> None:
    mission = await fleet.mission(3)
    await fleet.agents(mission, "specialist-1")
    await fleet.lock(mission, "a.py", "specialist-1")
    await fleet.write(mission, ["specialist-1"])
    await fleet.checkpoint(mission)
    await fleet.do(SnapshotRecord("run-a"))
    await fleet.settle()
    fleet.sql("UPDATE snapshots SET backed_up_at = NULL")
    fleet.clock.pass_by(5_000)
    status = await fleet.do(SystemStatus())
    counts = status.counts
    assert (counts.snapshots, status.backup_backlog) == (1, 1)
    assert "files still to write: 1" in str(await fleet.do(SystemHealth()))
    await fleet.engine.outbox.catch_up()
    await fleet.settle()
    status = await fleet.do(SystemStatus())
    assert (counts.missions, counts.sorties, counts.agents, counts.checkpoints) == (1, 3, 1, 1)
    assert (counts.locks, counts.messages, status.backup_backlog) == (1, 1, 0)
    if not shared_store.SERVER:  # whose size is not ours to tell
        assert status.database_bytes + status.wal_bytes > 4_096
    assert [line.mission_id for line in status.missions] == [mission.id]
    assert status.uptime_ms >= 5_000
