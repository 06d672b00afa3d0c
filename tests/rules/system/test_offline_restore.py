"""A restore meets a fault at every step: the old state is there whole, or the new one is."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from fleetd.engine.jobs.daily import compress
from fleetd.engine.offline import restore_command
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import CheckpointVerify
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.snapshot import (
    SnapshotLatest,
    SnapshotList,
    SnapshotRecord,
    SnapshotVerify,
)
from fleetd.protocol.requests.system import SystemBackup, SystemDoctor
from fleetd.protocol.snapshots import Snapshot
from fleetd.store.sqlite.migrate import APPLICATION_ID, migrations
from tests.support.fleet import HOUR, Clock, Fleet, opened, settings
from tests.support.processes import LOCKS

pytestmark = pytest.mark.sqlite_only("what is restored is a database file")

# What changes names or brings them to the disk; opening counts where it makes a file.
CALLS = ("link", "rename", "unlink", "fsync", "fdatasync", "mkdir", "rmdir", "symlink", "open")


class Killed(BaseException):
    """The process ended here: nothing of it runs any more."""


class RestoreSteps:
    """Lets the n-th call fail, and everything after it as well when the process was killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
        self._patch = monkeypatch
        self._error = error
        self.left = 0

    def run(self, step: int, work: Callable[[], int]) -> int | None:
        self.left = step
        with self._patch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._counted(name, getattr(os, name)))
            try:
                return work()
            except Killed:
                return None

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                self.left -= 1
                if self.left == 0 or (self.left < 0 and self._error is Killed):
                    raise self._error(5, "Input/output error")
            return real(*args, **kwargs)

        return call


class Scene:
    """A store with a copy, work since, and a WAL that nobody brought home."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.copy = root / "copy.db"
        self.mission: Mission
        self.kept: Checkpoint
        self.newer: Checkpoint
        self.snapshots: list[Snapshot] = []
        self.newer_snapshots: list[Snapshot] = []

    async def build(self) -> None:
        async with opened(self.root / "now") as fleet:
            self.mission = await fleet.mission(title="old")
            self.kept = await fleet.checkpoint(self.mission)
            self.snapshots = [await fleet.do(SnapshotRecord("run-a", note="old"))]
            await fleet.do(SystemBackup(str(self.copy)))
            # In the same millisecond: only the log tells that it is newer.
            self.newer_snapshots = [await fleet.do(SnapshotRecord("run-b", note="new"))]
            fleet.clock.pass_by(5_000)
            self.newer_snapshots.append(await fleet.do(SnapshotRecord("run-a", note="new")))
            await fleet.mission(title="new")
            await fleet.complete(self.mission, 0)
            self.newer = await fleet.checkpoint(self.mission)
            await fleet.settle()
            shutil.copytree(self.root / "now", self.root / "then", symlinks=True)
        assert (self.root / "then" / "data" / "squawk.db-wal").stat().st_size > 0

    def reset(self) -> None:
        shutil.rmtree(self.root / "now")
        shutil.copytree(self.root / "then", self.root / "now", symlinks=True)

    def restore(self, source: Path | None = None) -> int:
        loaded = settings(self.root / "now")
        return restore_command.run(loaded, source or self.copy, preview=False, as_json=True)

    async def state(self) -> str:
        """Open the store as a daemon would, and see which state it holds and that it is whole."""
        async with opened(self.root / "now") as fleet:
            await fleet.settle()
            await fleet.do(CheckpointVerify(repair=True))
            await fleet.do(SnapshotVerify(repair=True))
            # A second name of the database may be left; it is taken away.
            assert (await fleet.do(SystemDoctor(fix=True))).ok
            assert (await fleet.do(SystemDoctor())).ok
            titles = {m.title for m in (await fleet.do(MissionList())).missions}
            ids = set(await fleet.checkpoint_ids(self.mission))
            restored = await fleet.events(kind="store_restored")
            page = await fleet.do(SnapshotList())
            snapshots = {each.snapshot_id for each in page.snapshots}
            latest = self.latest()
            assert (await fleet.do(SnapshotLatest("run-a"))).snapshot_id == latest["run-a"]
        old, new = (
            {each.snapshot_id for each in some} for some in (self.snapshots, self.newer_snapshots)
        )
        if titles == {"old", "new"}:
            assert {self.kept.id, self.newer.id} <= ids
            assert restored == []
            assert snapshots == old | new
            assert latest == {each.run_id: each.snapshot_id for each in self.newer_snapshots}
            return "old"
        assert titles == {"old"}
        assert ids == {self.kept.id}
        assert len(restored) == 1
        assert snapshots == old
        assert latest == {"run-a": self.snapshots[0].snapshot_id}
        assert not [each for each in (self.checkpoints / "run-b").rglob("*") if each.is_file()]
        return "restored"

    @property
    def checkpoints(self) -> Path:
        return self.root / "now" / ".flightline" / "checkpoints"

    def latest(self) -> dict[str, str]:
        """Return which snapshot ``latest.json`` of each run holds."""
        return {
            path.parent.name: json.loads(path.read_bytes())["snapshot_id"]
            for path in self.checkpoints.glob("run-*/latest.json")
        }

    def parts(self) -> list[Path]:
        return list((self.root / "now" / "data").glob(".fleetd-part-*"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    (tmp_path / "now").mkdir(mode=0o700)
    trio.run(made.build)
    return made


# A kill at each step, an error at every third: there fleetd itself cleans up.
@pytest.mark.parametrize(("error", "apart"), [(OSError, 3), (Killed, 1)])
def test_whatever_step_fails_one_state_is_there_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], apart: int
) -> None:
    steps, states = RestoreSteps(monkeypatch, error), []
    for step in range(1, 200, apart):
        scene.reset()
        status = steps.run(step, scene.restore)
        if steps.left > 0:
            break
        if error is OSError:
            assert scene.parts() == []
        states.append(trio.run(scene.state))
        if status is not None:
            assert (status, states[-1]) in ((1, "old"), (0, "restored")), step
        scene.restore()
        assert trio.run(scene.state) == "restored"
        assert scene.parts() == []
    assert len(states) > 15 / apart
    if error is Killed:
        assert states == sorted(states), "once the new state is there it stays"
    assert set(states) == {"old", "restored"}


def test_files_that_were_taken_back_lie_where_they_were(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name.startswith(".fleetd-part-"):
            raise OSError(28, "No space left on device")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    root = scene.root / "now" / ".flightline"
    before = _tree(root)
    assert scene.restore() == 1
    assert _tree(root) == before
    assert set(os.listdir(scene.root / "now" / "data")) - LOCKS == {"squawk.db", "squawk.db-mark"}
    assert "Nothing was changed" in capsys.readouterr().err


def _tree(root: Path) -> dict[str, str | bytes]:
    return {
        str(path.relative_to(root)): (
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        )
        for path in sorted(root.rglob("*"))
        if path.name not in LOCKS
    }


def test_where_names_cannot_be_linked_the_content_is_copied(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert scene.restore() == 0
    monkeypatch.undo()
    assert trio.run(scene.state) == "restored"
    (replaced,) = (scene.root / "now" / "data").glob("replaced-*")
    assert scene.restore(replaced / "squawk.db") == 0

    async def titles() -> set[str]:
        async with opened(scene.root / "now") as fleet:
            return {m.title for m in (await fleet.do(MissionList())).missions}

    assert trio.run(titles) == {"old", "new"}


def test_a_database_behind_a_symlink_is_replaced_where_it_lies(scene: Scene) -> None:
    data, disk = scene.root / "now" / "data", scene.root / "disk"
    disk.mkdir(mode=0o700)
    for path in list(data.iterdir()):
        path.rename(disk / path.name)
    (data / "squawk.db").symlink_to(disk / "squawk.db")
    assert scene.restore() == 0
    assert os.readlink(data / "squawk.db") == str(disk / "squawk.db")
    assert os.listdir(data) == ["squawk.db"]
    assert len(list(disk.glob("replaced-*/squawk.db"))) == 1
    assert trio.run(scene.state) == "restored"


def test_a_damaged_file_of_a_known_checkpoint_is_written_again(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    place = scene.root / "now" / ".flightline" / "checkpoints" / scene.mission.id
    file = place / f"{scene.kept.id}.json"
    good = file.read_bytes()
    file.write_bytes(good[:100])
    assert scene.restore() == 0
    assert "It is written again" in capsys.readouterr().out
    assert trio.run(scene.state) == "restored"
    assert file.read_bytes() == good
    assert os.readlink(place / "latest.json") == file.name


def test_a_second_restore_at_the_same_moment_uses_other_directories(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.engine.offline.restore.wall_clock", lambda: 1_767_614_400_000)
    assert scene.restore() == 0
    assert scene.restore() == 0
    names = sorted(p.name for p in (scene.root / "now" / "data").glob("replaced-*"))
    assert names == ["replaced-20260105T120000Z", "replaced-20260105T120000Z-2"]


def test_a_preview_changes_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = _tree(scene.root / "now")
    loaded = settings(scene.root / "now")
    assert restore_command.run(loaded, scene.copy, preview=True, as_json=False) == 0
    after = _tree(scene.root / "now")
    assert after == before
    said = capsys.readouterr().out
    assert "Would restore" in said
    assert f"{scene.newer.id}.json" in said
    for each in scene.newer_snapshots:
        assert f"{each.run_id}/history/{each.snapshot_id}.json" in said
    assert "checkpoints: 1, snapshots: 1," in said
    assert "would be moved to" in said


async def compressed(fleet: Fleet, run_id: str) -> Snapshot:
    """Record a run, and again when the first is old enough to be compressed."""
    taken = await fleet.do(SnapshotRecord(run_id))
    await fleet.settle()
    fleet.clock.pass_by(25 * HOUR)
    await compress(fleet.engine)
    return taken


def test_compressed_snapshots_are_known_missed_and_put_aside_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, copy = tmp_path / "now", tmp_path / "copy.db"
    root.mkdir(mode=0o700)
    checkpoints = root / ".flightline" / "checkpoints"

    async def build() -> list[Snapshot]:
        async with opened(root, clock=clock) as fleet:
            taken = [await compressed(fleet, "run-a"), await compressed(fleet, "run-b")]
            await fleet.do(SystemBackup(str(copy)))
            return [*taken, await compressed(fleet, "run-a"), await compressed(fleet, "run-c")]

    async def states() -> tuple[set[str], bool]:
        async with opened(root, clock=clock) as fleet:
            await fleet.settle()
            page = await fleet.do(SnapshotList())
            sound = (await fleet.do(SystemDoctor())).ok
            return {each.snapshot_id for each in page.snapshots}, sound

    def places(*some: Snapshot, ending: str = ".json.gz") -> set[str]:
        return {f"{each.run_id}/history/{each.snapshot_id}{ending}" for each in some}

    clock = Clock()
    kept, missing, newer, alone = trio.run(build)
    gone = checkpoints / "run-b"
    shutil.rmtree(gone)
    assert set(_tree(checkpoints)) >= places(kept, newer, alone)

    assert restore_command.run(settings(root), copy, preview=False, as_json=True) == 0

    report = json.loads(capsys.readouterr().out)
    assert set(report["moved"]) == {str(checkpoints / each) for each in places(newer, alone)}
    aside = Path(report["moved_to"])
    assert set(_tree(aside)) >= places(newer, alone) | {"run-a/latest.json", "run-c/latest.json"}
    assert (aside / "run-a").stat().st_mode & 0o777 == 0o700
    there = set(_tree(checkpoints))
    assert {each for each in there if ".json" in each} == places(kept) | {"run-a/latest.json"}
    assert not (checkpoints / "run-c").exists()
    latest = (checkpoints / "run-a" / "latest.json").read_bytes()
    assert json.loads(latest)["snapshot_id"] == kept.snapshot_id
    assert trio.run(states) == ({kept.snapshot_id, missing.snapshot_id}, True)
    assert set(_tree(checkpoints)) >= places(missing, ending=".json") | {"run-b/latest.json"}

    undo = Path(report["replaced"])
    assert restore_command.run(settings(root), undo, preview=False, as_json=True) == 0
    every = {each.snapshot_id for each in (kept, missing, newer, alone)}
    assert trio.run(states) == (every, True)


def _lower(path: Path, version: int) -> None:
    """Put what a database holds into one of an older schema, as far as that has room for it."""
    path.rename(path.with_suffix(".new"))
    connection = apsw.Connection(str(path))
    for number, sql in migrations():
        if number <= version:
            connection.execute(sql)
    connection.pragma("user_version", version)
    connection.pragma("application_id", APPLICATION_ID)
    connection.execute("ATTACH ? AS later", (str(path.with_suffix(".new")),))
    for (table,) in connection.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall():
        columns = [
            {row[1] for row in connection.execute(f"PRAGMA {which}.table_info({table})")}
            for which in ("main", "later")
        ]
        shared = ", ".join(f'"{name}"' for name in sorted(columns[0] & columns[1]))
        if shared:
            connection.execute(f"DELETE FROM main.{table}")
            connection.execute(
                f"INSERT INTO main.{table} ({shared}) SELECT {shared} FROM later.{table}"
            )
    connection.close()


def test_a_copy_from_before_there_were_snapshots_can_be_restored(scene: Scene) -> None:
    _lower(scene.copy, 3)
    assert scene.restore() == 0
    # What was there at the time of the copy comes back from its file.
    assert trio.run(scene.state) == "restored"


def test_a_run_that_cannot_be_looked_into_stops_a_restore(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed, real = scene.checkpoints / "run-a" / "history", Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path == closed:  # as it is for everybody but root
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert scene.restore() == 1
    assert "files cannot be read" in capsys.readouterr().err
