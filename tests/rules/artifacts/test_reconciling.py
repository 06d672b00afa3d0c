"""At the start rows and files are brought together; a database that was lost comes back."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetd.domain.artifacts.ingest import ingest
from fleetd.domain.checkpoints.codec import (
    CONTENT_FIELDS,
    as_taken,
    canonical,
    digest_of,
    from_file,
    to_file,
)
from fleetd.domain.recovery import roll_forward
from fleetd.engine.engine import Engine
from fleetd.harness.report import SessionEnded
from fleetd.host.atomic_files import FILE_MAX
from fleetd.protocol.errors import Incompatible, InvalidState, Storage
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointLatest
from fleetd.protocol.requests.event import EventList, EventSubscribe
from fleetd.protocol.requests.lock import LockCheck, LockRelease
from fleetd.protocol.requests.message import MessageInbox
from fleetd.protocol.requests.mission import (
    MissionComplete,
    MissionGet,
    MissionList,
    MissionUpdate,
)
from fleetd.protocol.requests.recovery import RecoveryList
from fleetd.store.files.record_files import RecordFiles
from tests.support.fleet import MINUTE, Clock, Fleet, opened
from tests.support.hook_sessions import working


@asynccontextmanager
async def later(fleet: Fleet, root: Path, ms: int = MINUTE) -> Any:
    """Open again after some time has passed."""
    fleet.clock.pass_by(ms)
    async with opened(root, clock=fleet.clock) as again:
        yield again


async def busy(fleet: Fleet) -> Mission:
    """Return a mission with finished and begun work, a lock and a letter."""
    mission = await fleet.mission(4)
    await fleet.work(mission, 0, "specialist-1", 100)
    await fleet.complete(mission, 0)
    await fleet.work(mission, 1, "specialist-2", 40, "Half way")
    await fleet.lock(mission, str(fleet.project / "a.py"), "specialist-2")
    await fleet.write(mission, ["specialist-2"], "Please review")
    return mission


def visible(sorties: list[Any]) -> list[tuple[Any, ...]]:
    return [(s.id, s.title, s.status, s.assigned_to, s.progress, s.progress_notes) for s in sorties]


async def test_a_normal_start_reads_no_file_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await busy(fleet)
        await fleet.checkpoint(mission)
    before, files = fleet.dump(), fleet.files()

    def never(*_: object) -> bytes:
        raise AssertionError("a file was read")

    monkeypatch.setattr(RecordFiles, "read", never)
    async with opened(tmp_path) as fleet:
        await fleet.settle()
    assert (fleet.dump(), fleet.files()) == (before, files)


async def test_files_that_are_missing_are_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        for number in range(3):
            await fleet.checkpoint(mission, f"n{number}")
    files = fleet.files()
    shutil.rmtree(fleet.checkpoints)
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        assert fleet.files() == files
        assert f"Writing 3 missing files of {mission.id}" in caplog.text
        assert await fleet.events(kind="backup_failed") == []


async def test_files_without_a_row_are_taken_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await busy(fleet)
        taken = [await fleet.checkpoint(mission, f"n{n}") for n in range(3)]
    state, epoch = fleet.dump("checkpoints", "events"), fleet.sql("SELECT * FROM store_meta")
    fleet.sql("DELETE FROM checkpoints WHERE id IN (:a, :b)", a=taken[0].id, b=taken[2].id)
    async with opened(tmp_path) as fleet:
        for each in taken:
            assert (await fleet.do(CheckpointGet(each.id))).integrity == each.integrity
        assert fleet.sql("SELECT * FROM store_meta") == epoch
        assert await fleet.events(kind="store_restored") == []
    assert fleet.dump("checkpoints", "events") == state
    assert "Restored 2 lost rows of checkpoints" in caplog.text


async def test_a_lost_database_comes_back_from_its_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        await fleet.mission(title="Without a checkpoint")
        mission = await busy(fleet)
        taken = await fleet.checkpoint(mission, "last")
        sorties, end = await fleet.sorties(mission), (await fleet.do(EventList())).position
        (lock,) = await fleet.locks()
        last = (await fleet.again(mission)).last_activity_at
    fleet.lose_database()
    async with later(fleet, tmp_path) as fleet:
        back = await fleet.again(mission)
        for name in ("title", "description", "status", "priority", "project_dir", "created_at"):
            assert getattr(back, name) == getattr(mission, name)
        assert (back.started_at, back.progress_percent) == (mission.started_at, 25)
        assert back.last_activity_at == taken.recovery_context.last_activity_at
        assert last is not None
        assert back.last_activity_at is not None
        assert visible(await fleet.sorties(mission)) == visible(sorties)
        (held,) = await fleet.locks(mission)
        assert (held.normalized_path, held.held_by) == (lock.normalized_path, "specialist-2")
        assert held.fencing_token > lock.fencing_token
        assert not (await fleet.do(LockCheck(lock.file, lock.fencing_token))).valid
        assert (await fleet.do(LockCheck(lock.file, held.fencing_token))).valid
        (letter,) = (await fleet.do(MessageInbox("specialist-2"))).messages
        assert letter.subject == "Please review"
        (told,) = await fleet.events(kind="store_restored")
        assert told.seq > end - 3
        assert told.seq > taken.seq
        assert told.data["source"] == "files"
        assert await fleet.events(kind="fleet_recovered") == []
        (waiting,) = (await fleet.do(RecoveryList(mission.id))).recoveries
        assert (waiting.state, waiting.checkpoint_id) == ("pending", taken.id)
        (event,) = await fleet.events(mission, "recovery_available")
        assert event.data == {"recovery_id": waiting.id, "checkpoint_id": taken.id}
        ids = set(await fleet.checkpoint_ids(mission))
        assert {f"{mission.id}/{i}.json" for i in ids} <= fleet.files().keys()
        assert (await fleet.do(CheckpointLatest(mission.id))).id == taken.id
    assert "The database is behind its checkpoint files: its log ends at 0" in caplog.text
    assert f"the files reach {taken.seq}" in caplog.text
    assert "It was lost" in caplog.text
    before = fleet.dump("events")
    async with opened(tmp_path, clock=fleet.clock) as fleet:
        assert fleet.dump("events") == before


async def test_a_mission_that_came_back_is_silent_since_its_last_activity(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await busy(fleet)
        taken = await fleet.checkpoint(mission)
    fleet.lose_database()
    async with later(fleet, tmp_path, 20 * MINUTE) as fleet:
        (row,) = fleet.sql("SELECT * FROM missions")
        assert fleet.clock.awake_ms - row["active_awake_ms"] == 20 * MINUTE
        assert (row["last_activity_seq"], row["milestone"]) == (taken.seq, 25)
        result = await fleet.restore()
        assert (result.mission_id, result.checkpoint_id) == (mission.id, taken.id)


async def test_an_ended_mission_comes_back_ended(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission(1)
        await fleet.complete(mission, 0)
        fleet.clock.pass_by(MINUTE)
        done = await fleet.do(MissionComplete(mission.id))
    fleet.lose_database()
    async with later(fleet, tmp_path) as fleet:
        back = await fleet.again(mission)
        assert (back.status, back.completed_at, back.progress_percent) == (
            "completed",
            done.completed_at,
            100,
        )
        assert (await fleet.do(RecoveryList())).recoveries == []


@pytest.mark.parametrize("old_form", [False, True], ids=["as now", "before closed_reason"])
async def test_origin_and_closed_reason_come_back_from_the_checkpoint_file(
    tmp_path: Path, *, old_form: bool
) -> None:
    """A mission that was closed with its session is that again, and so is a person's its own."""
    async with opened(tmp_path) as fleet:
        session, closed = await working(fleet, "> Read", "Write")
        await session.tell(SessionEnded("logout"))
        _, named = await working(fleet, "> Think", session_id="other-session")
        await fleet.do(MissionUpdate(named.id, title="Mine"))
        await fleet.checkpoint(named)
        await fleet.settle()
        (kept,) = (fleet.checkpoints / closed.id).glob("chk-*.json")
        content = msgspec.json.decode(kept.read_bytes())
        assert content["mission"]["automatic"] is True
        assert content["mission"]["closed_reason"] == "session"
        (file,) = (fleet.checkpoints / named.id).glob("chk-*.json")
        assert msgspec.json.decode(file.read_bytes())["mission"]["automatic"] is False
    if old_form:
        del content["integrity"], content["mission"]["closed_reason"]
        digest = digest_of(canonical(content))
        integrity = {"algorithm": "sha256", "digest": digest, "format_version": 1}
        kept.write_bytes(canonical(content | {"integrity": integrity}) + b"\n")
    fleet.lose_database()
    async with opened(tmp_path) as fleet:
        closed, named = await fleet.again(closed), await fleet.again(named)
        assert (closed.origin, closed.status, closed.closed_reason) == (
            "session",
            "cancelled",
            "session",
        )
        assert (named.origin, named.status, named.closed_reason) == ("person", "in_progress", None)


async def test_a_subscriber_with_the_old_epoch_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        await fleet.checkpoint(await fleet.mission())
        before = await fleet.do(EventList())
    fleet.lose_database()
    async with opened(tmp_path) as fleet:
        with pytest.raises(Incompatible, match="positions have changed"):
            await fleet.do(EventSubscribe(since=before.position, epoch=before.epoch))
        assert (await fleet.do(EventList())).epoch != before.epoch


async def test_a_database_that_was_rolled_back_is_noticed_and_caught_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await busy(fleet)
        await fleet.lock(mission, str(fleet.project / "old.py"), "specialist-1")
        await fleet.write(mission, ["specialist-1"], "Read long ago")
        await fleet.checkpoint(mission, "before")
        other = await fleet.mission(title="Quiet")
        await fleet.checkpoint(other, "quiet")
        old = await fleet.do(EventList())
    copied = fleet.copied_database()
    async with opened(tmp_path, clock=clock) as fleet:
        clock.pass_by(MINUTE)
        await fleet.complete(mission, 1)
        await fleet.work(mission, 2, "specialist-1", 70, "Nearly there")
        await fleet.do(MissionUpdate(mission.id, title="A better title"))
        (lock,) = [x for x in await fleet.locks() if x.file.endswith("old.py")]
        await fleet.do(LockRelease(lock.id, "specialist-1"))
        late = await fleet.lock(mission, str(fleet.project / "new.py"), "specialist-1")
        assert len((await fleet.do(MessageInbox("specialist-1"))).messages) == 1
        taken = await fleet.checkpoint(mission, "after")
        sorties = await fleet.sorties(mission)
        end = (await fleet.do(EventList())).position
    fleet.put_back(copied)
    caplog.clear()
    async with later(fleet, tmp_path) as fleet:
        back = await fleet.again(mission)
        assert (back.title, back.progress_percent) == ("A better title", 50)
        assert visible(await fleet.sorties(mission)) == visible(sorties)
        held = {Path(x.file).name: x for x in await fleet.locks(mission)}
        assert held.keys() == {"a.py", "new.py"}
        assert held["new.py"].fencing_token > late.fencing_token
        assert not (await fleet.do(LockCheck(late.file, late.fencing_token))).valid
        (letter,) = (await fleet.do(MessageInbox("specialist-1"))).messages
        assert letter.deliveries[0].status == "delivered"
        assert await fleet.events(kind="message_delivered") == []
        now = await fleet.do(EventList())
        assert now.epoch != old.epoch
        (told,) = await fleet.events(kind="store_restored")
        assert told.seq > taken.seq
        assert told.data == {"source": "files", "end": old.position}
        assert end > old.position
        recoveries = (await fleet.do(RecoveryList())).recoveries
        assert [(r.mission_id, r.state) for r in recoveries] == [(mission.id, "pending")]
        (undo,) = fleet.sql("SELECT * FROM checkpoints WHERE undo = 1")
        assert undo["mission_id"] == mission.id
        assert undo["seq"] > told.seq - 1
        assert (await fleet.do(CheckpointLatest(mission.id))).id == taken.id
        await fleet.settle()
    text = f"its log ends at {old.position}, the files reach {taken.seq}"
    assert text in caplog.text
    assert "rolled back or replaced by an older copy" in caplog.text


async def test_a_copy_from_right_before_a_checkpoint_lies_behind_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await busy(fleet)
        old = await fleet.do(EventList())
    copied = fleet.copied_database()
    async with opened(tmp_path, clock=clock) as fleet:
        taken = await fleet.checkpoint(mission, "the one thing done since")
        assert taken.seq == old.position
    fleet.put_back(copied)
    async with later(fleet, tmp_path) as fleet:
        # What subscribers read after the copy was made is no part of this log.
        assert (await fleet.do(EventList())).epoch != old.epoch
        assert (await fleet.do(CheckpointLatest(mission.id))).id == taken.id
        await fleet.settle()
    assert "rolled back or replaced by an older copy" in caplog.text


async def test_finished_work_in_the_rows_is_not_undone_by_newer_files(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission(2)
        await fleet.work(mission, 1, "specialist-1")
        first = await fleet.checkpoint(mission)
        await fleet.complete(mission, 1)
        ended = await fleet.mission(1, title="Ended")
        early = await fleet.checkpoint(ended)
        await fleet.complete(ended, 0)
        await fleet.do(MissionComplete(ended.id))
    copied = fleet.copied_database()
    async with opened(tmp_path) as fleet:
        await fleet.restore(first, rewind=True)
        await fleet.restore(early, rewind=True)
        for each in (mission, ended):
            await fleet.checkpoint(each, "after rewinding")
    fleet.put_back(copied)
    async with opened(tmp_path) as fleet:
        assert (await fleet.sorties(mission))[1].status == "completed"
        assert (await fleet.again(ended)).status == "completed"
        with pytest.raises(InvalidState, match="was completed"):
            await fleet.restore(mission_id=ended.id)


@pytest.mark.parametrize("stage", ["import", "end", "catch_up"])
async def test_an_import_that_a_crash_cut_short_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    async with opened(tmp_path) as fleet:
        missions = [await busy_one(fleet, name) for name in ("A", "B")]
        states = [visible(await fleet.sorties(each)) for each in missions]
    fleet.lose_database()
    fatal, allowed = {
        "import": (ingest, 1),
        "end": (roll_forward.finish_import, 0),
        "catch_up": (roll_forward.roll_forward, 1),
    }[stage]

    class KilledError(BaseException):
        pass

    with monkeypatch.context() as patched:
        seen: list[object] = []

        def until_killed(run: Any) -> Any:
            async def running(self: Any, what: Any, *rest: Any) -> Any:
                if what is fatal:
                    if len(seen) == allowed:
                        raise KilledError
                    seen.append(what)
                return await run(self, what, *rest)

            return running

        patched.setattr(Engine, "write", until_killed(Engine.write))
        with pytest.raises(KilledError):
            async with opened(tmp_path):
                raise AssertionError("it was served before it was whole")
    async with opened(tmp_path) as fleet:
        for mission, state in zip(missions, states, strict=True):
            assert visible(await fleet.sorties(mission)) == state
        newest = fleet.sql("SELECT max(seq) AS seq FROM checkpoints")[0]["seq"]
        (told,) = await fleet.events(kind="store_restored")
        assert told.seq > newest
        assert len((await fleet.do(RecoveryList())).recoveries) == 2
        keys = {row["key"] for row in fleet.sql("SELECT key FROM store_meta")}
        assert keys <= {"epoch", "boot"}


@pytest.mark.parametrize("how", ["behind", "settled"])
async def test_a_mission_that_is_gone_before_it_was_caught_up_holds_no_other_up(
    tmp_path: Path, how: str
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await busy_one(fleet, "A")
        state = visible(await fleet.sorties(mission))
    for table in ("checkpoints", "sorties", "missions"):
        fleet.sql(f"DELETE FROM {table}")
    whose = f"{fleet.engine.machine}:" if fleet.engine.machine else ""
    fleet.sql(
        "INSERT INTO store_meta (key, value) VALUES (:key, :how)",
        key=f"catch_up:{whose}msn-0badf00d",
        how=how,
    )

    async with opened(tmp_path) as fleet:
        assert visible(await fleet.sorties(mission)) == state
        assert "0badf00d" not in str(fleet.sql("SELECT * FROM store_meta"))
        await fleet.engine.write(roll_forward.roll_forward, "msn-0badf00d")


async def busy_one(fleet: Fleet, title: str) -> Mission:
    mission = await fleet.mission(2, title=title)
    await fleet.work(mission, 0, f"specialist-{title}")
    await fleet.checkpoint(mission)
    return mission


async def test_a_deleted_checkpoint_does_not_come_back_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        kept, doomed = await fleet.checkpoint(mission), await fleet.checkpoint(mission)
        fleet.sql("UPDATE checkpoints SET deleted_at = :now WHERE id = :id", now="x", id=doomed.id)
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        assert await fleet.checkpoint_ids(mission) == [kept.id]
        assert not fleet.file_of(doomed).exists()
        assert os.readlink(fleet.file_of(kept).with_name("latest.json")) == f"{kept.id}.json"


def copies_of(fleet: Fleet, taken: Checkpoint, count: int) -> None:
    """Write files of many more checkpoints of the same mission."""
    directory = fleet.file_of(taken).parent
    content = from_file(fleet.file_of(taken).read_bytes(), "")
    for number in range(count):
        other = msgspec.structs.replace(content, id=f"chk-{number:08x}", seq=number + 1)
        sealed = as_taken(other, digest_of(canonical(plain(other))), [])
        (directory / f"{other.id}.json").write_bytes(to_file(sealed))


def plain(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in CONTENT_FIELDS}


async def test_a_thousand_files_are_taken_in(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission)
    copies_of(fleet, taken, 1_000)
    fleet.lose_database()
    begun = time.monotonic()
    async with opened(tmp_path) as fleet:
        assert fleet.sql("SELECT count(*) AS n FROM checkpoints") == [{"n": 1_001}]
        assert (await fleet.do(MissionList())).total == 1
        assert (await fleet.do(EventList())).position > 1_000
    assert time.monotonic() - begun < 30


def put_fifo(place: Path) -> None:
    os.mkfifo(place)


def put_directory(place: Path) -> None:
    place.mkdir()


def put_symlink(place: Path) -> None:
    place.symlink_to("/etc/passwd")


def put_huge(place: Path) -> None:
    place.touch()
    os.truncate(place, FILE_MAX + 1)


def put_damaged(place: Path) -> None:
    place.write_bytes(b"{")


@pytest.mark.parametrize("put", [put_fifo, put_directory, put_symlink, put_huge, put_damaged])
async def test_what_is_no_checkpoint_is_left_where_it_is_and_named(
    tmp_path: Path, put: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission)
    place = fleet.file_of(taken).with_name("chk-00000000.json")
    put(place)
    before = os.lstat(place)
    async with opened(tmp_path) as fleet:
        assert os.lstat(place).st_ino == before.st_ino
        assert await fleet.checkpoint_ids(mission) == [taken.id]
        assert f"A file without a row was not imported: Corrupted checkpoint file: {place}" in (
            caplog.text
        )


async def test_a_file_of_another_mission_is_not_taken_in(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission, other = await fleet.mission(), await fleet.mission(title="Other")
        taken = await fleet.checkpoint(mission)
        await fleet.checkpoint(other)
    foreign = fleet.checkpoints / other.id / f"{taken.id}.json"
    foreign.write_bytes(fleet.file_of(taken).read_bytes())
    async with opened(tmp_path) as fleet:
        assert (await fleet.do(CheckpointGet(taken.id))).mission_id == mission.id
        assert foreign.is_file()
        assert len(await fleet.checkpoint_ids(other)) == 1


def put_sealed(fleet: Fleet, like: Checkpoint, **changes: Any) -> Checkpoint:
    """Write a file with a good checksum whose content nobody would have written."""
    content = from_file(fleet.file_of(like).read_bytes(), "")
    other = msgspec.structs.replace(content, **changes)
    sealed = as_taken(other, digest_of(canonical(plain(other))), [])
    fleet.file_of(sealed).parent.mkdir(exist_ok=True)
    fleet.file_of(sealed).write_bytes(to_file(sealed))
    return sealed


async def test_a_sealed_file_that_the_tables_refuse_keeps_no_other_from_coming_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await busy(fleet)
        taken = await fleet.checkpoint(mission)
        sorties = visible(await fleet.sorties(mission))
    lock = msgspec.structs.replace(taken.active_locks[0], timeout_ms=10**17)
    bad = put_sealed(fleet, taken, id="chk-0bad0001", progress_percent=400)
    odd = put_sealed(fleet, taken, id="chk-0bad0002", mission_id="msn-0dd", active_locks=[lock])
    twin = put_sealed(fleet, taken, id="chk-0bad0003", mission_id="msn-2wice", seq=1)
    fleet.lose_database()
    async with opened(tmp_path) as fleet:
        assert visible(await fleet.sorties(mission)) == sorties
        ids = await fleet.checkpoint_ids(mission)
        assert (taken.id in ids, bad.id in ids) == (True, False)
        assert f"Checkpoint {bad.id} cannot be imported" in caplog.text
        assert f"{odd.mission_id} could not be restored to its newest checkpoint" in caplog.text
        assert fleet.file_of(bad).is_file()
        assert (await fleet.do(MissionGet(twin.mission_id))).total_sorties == 0
        assert f"belongs to mission {mission.id}; left there" in caplog.text


@pytest.mark.parametrize("place", ["root", "mission"])
async def test_a_directory_that_cannot_be_read_stops_nothing(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission)
    directory = fleet.checkpoints if place == "root" else fleet.checkpoints / mission.id
    shutil.move(directory, tmp_path / "aside")
    directory.write_text("in the way")
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        assert (await fleet.do(CheckpointGet(taken.id))).id == taken.id
        assert "cannot be read" in caplog.text
        assert await fleet.events(kind="backup_failed") == []


async def test_a_full_disk_at_the_start_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission)
    fleet.sql("DELETE FROM checkpoints")

    def full(*_: object) -> Any:
        raise Storage("The disk is full; nothing was stored.")

    with monkeypatch.context() as patched:
        patched.setattr("fleetd.domain.artifacts.ingest.insert", full)
        async with opened(tmp_path) as fleet:
            assert (await fleet.do(MissionGet(mission.id))).id == mission.id
    assert "The comparison of rows and files failed: The disk is full" in caplog.text
    async with opened(tmp_path) as fleet:
        assert await fleet.checkpoint_ids(mission) == [taken.id]


@pytest.mark.parametrize("target", ["nowhere.json", "latest.json", "older", None])
async def test_a_wrong_latest_is_repointed_at_the_start(
    tmp_path: Path, target: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        older, newest = await fleet.checkpoint(mission), await fleet.checkpoint(mission)
    link = fleet.checkpoints / mission.id / "latest.json"
    link.unlink()
    if target:
        link.symlink_to(f"{older.id}.json" if target == "older" else target)
    async with opened(tmp_path):
        assert os.readlink(link) == f"{newest.id}.json"
    assert f"it names {newest.id} now" in caplog.text
    before = len(caplog.text)
    async with opened(tmp_path):
        assert len(caplog.text) == before


async def test_a_directory_of_something_else_is_not_touched(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        await fleet.checkpoint(await fleet.mission())
    run = fleet.checkpoints / "run-0001"
    (run / "history").mkdir(parents=True)
    (run / "latest.json").write_text("{}")
    before = fleet.files()
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        assert fleet.files() == before


async def test_a_row_that_is_lost_while_it_runs_is_noticed_by_latest_and_by_recovery(
    fleet: Fleet,
) -> None:
    mission = await busy(fleet)
    await fleet.checkpoint(mission, "older")
    newest = await fleet.checkpoint(mission, "newest")
    text = f"the database row of {newest.id} was missing; it was restored from its file"
    for ask in (
        lambda: fleet.do(CheckpointLatest(mission.id)),
        lambda: fleet.restore(mission_id=mission.id),
    ):
        fleet.sql("DELETE FROM checkpoints WHERE id = :id", id=newest.id)
        answer: Any = await ask()
        assert newest.id in (getattr(answer, "id", ""), getattr(answer, "checkpoint_id", ""))
        assert text in answer.warnings


async def test_a_mission_that_lost_its_row_comes_back_when_it_is_asked_for(fleet: Fleet) -> None:
    mission = await busy(fleet)
    taken = await fleet.checkpoint(mission)
    sorties = visible(await fleet.sorties(mission))
    fleet.sql("DELETE FROM missions WHERE id = :id", id=mission.id)
    fleet.sql("DELETE FROM sorties")
    fleet.sql("DELETE FROM checkpoints")
    assert (await fleet.do(CheckpointGet(taken.id))).id == taken.id
    assert visible(await fleet.sorties(mission)) == sorties
