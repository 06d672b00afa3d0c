"""The files follow the rows: at once, after failures, after restarts; and a deletion is final."""

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.domain.artifacts.outbox import backup, files_written
from fleetd.domain.checkpoints.codec import from_file
from fleetd.domain.core.context import BatchSizes
from fleetd.domain.core.tx import WriteBackup
from fleetd.engine.files.outbox import FIRST_PAUSE_S, LONGEST_PAUSE_S, MARK_S
from fleetd.protocol.errors import InvalidState, NotFound, Storage
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointGet,
    CheckpointPrune,
    CheckpointVerify,
)
from fleetd.protocol.requests.mission import MissionCancel, MissionDelete, MissionGet
from fleetd.protocol.requests.system import SystemStatus
from tests.support.fleet import Fleet, opened


def obstruct(fleet: Fleet, mission: Mission) -> Path:
    """Put a file where the mission's directory should be: nobody, not even root, can write."""
    obstacle = fleet.checkpoints / mission.id
    obstacle.parent.mkdir(parents=True, exist_ok=True)
    obstacle.write_text("in the way")
    return obstacle


async def announced(fleet: Fleet, mission: Mission) -> list[list[str]]:
    return [e.data["storage_locations"] for e in await fleet.events(mission, "checkpoint_created")]


async def test_a_checkpoint_that_was_waited_for_lies_in_both_stores(fleet: Fleet) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    assert taken.storage_locations == ["sqlite", "file"]
    file = from_file(fleet.file_of(taken).read_bytes(), "file")
    assert (file.id, file.integrity) == (taken.id, taken.integrity)
    assert os.readlink(fleet.file_of(taken).with_name("latest.json")) == f"{taken.id}.json"
    assert await announced(fleet, mission) == [["sqlite", "file"]]


async def test_an_automatic_checkpoint_gets_its_file_without_anybody_waiting(fleet: Fleet) -> None:
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0)
    await fleet.settle()
    (checkpoint_id,) = await fleet.checkpoint_ids(mission, "progress")
    assert (fleet.checkpoints / mission.id / f"{checkpoint_id}.json").is_file()


async def test_a_file_that_cannot_be_written_is_announced_once_and_the_row_stays(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    mission = await fleet.mission()
    obstruct(fleet, mission)
    taken = await fleet.checkpoint(mission)
    assert taken.storage_locations == ["sqlite"]
    assert any("not written yet" in warning for warning in taken.warnings)
    (failure,) = await fleet.events(mission, "backup_failed")
    assert failure.data["checkpoint_id"] == taken.id
    assert "Not a directory" in failure.data["error"]
    assert await announced(fleet, mission) == [["sqlite"]]
    assert f"Failed to write checkpoint file of {taken.id}" in caplog.text
    assert (await fleet.do(SystemStatus())).backup_backlog == 1


async def test_it_is_tried_again_after_growing_pauses_until_it_succeeds(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    mission = await fleet.mission()
    obstacle = obstruct(fleet, mission)
    attempts: list[float] = []
    write = fleet.engine.backups["checkpoint"].write

    def watched(*args: Any) -> None:
        attempts.append(trio.current_time())
        write(*args)

    fleet.engine.backups["checkpoint"].write = watched  # type: ignore[method-assign]
    taken = await fleet.checkpoint(mission)
    await trio.sleep(2_000)
    pauses = [round(late - early, 3) for early, late in itertools.pairwise(attempts)]
    expected = [min(FIRST_PAUSE_S * 2**n, LONGEST_PAUSE_S) for n in range(len(pauses))]
    assert pauses == expected
    assert expected[-1] == LONGEST_PAUSE_S
    assert len(await fleet.events(mission, "backup_failed")) == 1

    obstacle.unlink()
    await trio.sleep(LONGEST_PAUSE_S)
    now = await fleet.do(CheckpointGet(taken.id))
    assert now.storage_locations == ["sqlite", "file"]
    assert fleet.file_of(taken).is_file()
    assert await announced(fleet, mission) == [["sqlite"]]
    assert len(await fleet.events(mission, "backup_failed")) == 1
    tries = len(attempts)
    await trio.sleep(10 * LONGEST_PAUSE_S)
    assert len(attempts) == tries


@pytest.mark.parametrize(
    ("call", "number", "text"),
    [
        ("fsync", errno.ENOSPC, "No space left on device"),
        ("open", errno.EACCES, "Permission denied"),
    ],
)
async def test_a_full_or_closed_disk_costs_no_checkpoint_and_is_tried_again(
    fleet: Fleet,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    text: str,
) -> None:
    mission = await fleet.mission()

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(f"fleetd.host.atomic_files.os.{call}", refuse)
        taken = await fleet.checkpoint(mission)
        await trio.sleep(10)
    assert taken.storage_locations == ["sqlite"]
    (failure,) = await fleet.events(mission, "backup_failed")
    assert text in failure.data["error"]
    await trio.sleep(LONGEST_PAUSE_S)
    now = await fleet.do(CheckpointGet(taken.id))
    assert now.storage_locations == ["sqlite", "file"]
    assert {path.name for path in fleet.file_of(taken).parent.iterdir()} == {
        f"{taken.id}.json",
        "latest.json",
    }


@pytest.mark.parametrize("place", ["latest.json", "its own"])
async def test_a_directory_in_the_place_is_moved_aside_and_the_file_written(
    fleet: Fleet, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    blocked = fleet.file_of(taken) if place == "its own" else fleet.checkpoints / mission.id / place
    blocked.unlink()
    blocked.mkdir()
    (blocked / "notes.txt").write_text("a person's")
    fleet.engine.outbox.post(WriteBackup("checkpoint", taken.id))
    await fleet.engine.outbox.settled()
    assert from_file(fleet.file_of(taken).read_bytes(), "").id == taken.id
    assert os.readlink(fleet.file_of(taken).with_name("latest.json")) == f"{taken.id}.json"
    (aside,) = blocked.parent.glob("*.aside-*/notes.txt")
    assert aside.read_text() == "a person's"
    assert aside.parent.name in caplog.text
    assert await fleet.events(mission, "backup_failed") == []


async def test_a_second_trouble_is_tried_again_soon_however_long_the_first_took(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    mission = await fleet.mission()
    obstacle = obstruct(fleet, mission)
    await fleet.checkpoint(mission)
    await trio.sleep(1_000)
    obstacle.unlink()
    await trio.sleep(LONGEST_PAUSE_S)
    other = await fleet.mission(title="Another")
    obstacle = obstruct(fleet, other)
    taken = await fleet.checkpoint(other)
    obstacle.unlink()
    await trio.sleep(FIRST_PAUSE_S + 0.1)
    assert (await fleet.do(CheckpointGet(taken.id))).storage_locations == ["sqlite", "file"]


async def test_a_file_whose_row_could_not_be_marked_on_a_full_disk_is_tried_again(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    mission = await fleet.mission()
    write = fleet.engine.write
    full = [True]

    async def sometimes_full(rule: Any, *args: Any) -> Any:
        if rule is files_written and full:
            raise Storage("The disk is full; nothing was stored.")
        return await write(rule, *args)

    fleet.engine.outbox._write = sometimes_full
    taken = await fleet.checkpoint(mission)
    assert taken.storage_locations == ["sqlite"]
    full.clear()
    await trio.sleep(FIRST_PAUSE_S + 0.1)
    assert (await fleet.do(CheckpointGet(taken.id))).storage_locations == ["sqlite", "file"]
    assert await announced(fleet, mission) == [["sqlite", "file"]]


async def test_rows_without_their_file_get_it_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        obstacle = obstruct(fleet, mission)
        taken = [await fleet.checkpoint(mission, f"n{n}") for n in range(3)]
    obstacle.unlink()
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        for each in taken:
            assert (await fleet.do(CheckpointGet(each.id))).storage_locations == ["sqlite", "file"]
            assert from_file(fleet.file_of(each).read_bytes(), "file").id == each.id
        assert os.readlink(fleet.checkpoints / mission.id / "latest.json") == f"{taken[2].id}.json"
        # It was announced when the file failed; a restart does not say it again.
        assert await announced(fleet, mission) == [["sqlite"]] * 3


async def test_a_crash_before_the_file_is_announced_after_the_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission)
        fleet.sql("UPDATE checkpoints SET backed_up_at = NULL")
        fleet.sql("DELETE FROM events WHERE type = 'checkpoint_created'")
        fleet.file_of(taken).unlink()
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        assert fleet.file_of(taken).is_file()
        assert await announced(fleet, mission) == [["sqlite", "file"]]


async def test_what_a_crash_left_half_written_is_swept_away_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        taken = await fleet.checkpoint(await fleet.mission())
        before = fleet.files()
        fleet.file_of(taken).with_name(".tmp-0011223344556677").write_bytes(b"{half")
    async with opened(tmp_path) as fleet:
        assert fleet.files() == before


async def test_a_deleted_checkpoint_is_gone_from_both_stores(fleet: Fleet) -> None:
    mission = await fleet.mission()
    first, second = await fleet.checkpoint(mission), await fleet.checkpoint(mission)
    assert (await fleet.do(CheckpointDelete(second.id))).deleted
    assert fleet.files().keys() == {f"{mission.id}/{first.id}.json", f"{mission.id}/latest.json"}
    assert fleet.sql("SELECT id FROM checkpoints") == [{"id": first.id}]
    with pytest.raises(NotFound):
        await fleet.do(CheckpointGet(second.id))


class Held:
    """Lets the writing of files begin, and end only when it is told to."""

    def __init__(self, fleet: Fleet, *record_ids: str) -> None:
        self.begun: list[str] = []
        self.held = {each: trio.Event() for each in record_ids}
        self._read = fleet.engine.outbox._read
        fleet.engine.outbox._read = self

    async def __call__(self, rule: Any, *args: Any) -> Any:
        if rule is not backup:
            return await self._read(rule, *args)
        record_id = args[1]
        self.begun.append(record_id)
        answer = await self._read(rule, *args)
        if record_id in self.held:
            await self.held[record_id].wait()
        return answer


async def test_deleting_a_checkpoint_waits_for_its_own_file_and_no_other(
    fleet: Fleet, nursery: trio.Nursery
) -> None:
    mission = await fleet.mission()
    mine, other = await fleet.checkpoint(mission), await fleet.checkpoint(mission)
    held, deleted = Held(fleet, other.id), trio.Event()

    async def delete() -> None:
        await fleet.do(CheckpointDelete(mine.id[:-2]))
        deleted.set()

    async with fleet.engine.outbox.file_lock:
        nursery.start_soon(delete)
        await fleet.settle()
        assert not deleted.is_set()
        fleet.engine.outbox.post(WriteBackup("checkpoint", other.id))
    await fleet.settle()
    assert held.begun == [other.id]  # and it hangs
    assert not fleet.file_of(mine).exists()
    assert deleted.is_set()
    held.held[other.id].set()


async def test_attempted_returns_after_the_attempt_that_was_asked_for_not_the_previous_one(
    fleet: Fleet, nursery: trio.Nursery
) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    outbox, work = fleet.engine.outbox, WriteBackup("checkpoint", taken.id)
    held = Held(fleet, taken.id)
    outbox.post(work)
    await fleet.settle()
    assert held.begun == [taken.id]  # it has read the row, and hangs
    outbox.post(work)
    done = trio.Event()

    async def wait() -> None:
        await outbox.attempted(taken.id)
        assert held.begun == [taken.id, taken.id]
        done.set()

    nursery.start_soon(wait)
    await fleet.settle()
    first, held.held[taken.id] = held.held[taken.id], trio.Event()
    first.set()
    await fleet.settle()
    assert held.begun == [taken.id, taken.id]
    assert not done.is_set()
    assert outbox.waited_s > 0
    held.held[taken.id].set()
    await done.wait()
    assert outbox.waited_s == 0


async def test_what_waits_in_the_queue_already_is_not_queued_again(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    held, outbox = Held(fleet), fleet.engine.outbox
    for _ in range(5):
        outbox.post(WriteBackup("checkpoint", taken.id))
    await outbox.attempted(taken.id)
    assert held.begun == [taken.id]


async def test_who_deletes_waits_for_the_removal_though_the_file_is_still_to_be_written(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission()
    async with fleet.engine.outbox.file_lock:
        taken = await fleet.checkpoint(mission, wait_for_backup=False)
        async with trio.open_nursery() as deleting:
            deleting.start_soon(fleet.do, CheckpointDelete(taken.id))
            await fleet.settle()
            fleet.engine.outbox.file_lock.release()
            try:
                await fleet.settle()
            finally:
                await fleet.engine.outbox.file_lock.acquire()
    assert fleet.sql("SELECT id FROM checkpoints") == []
    assert not any(taken.id in name for name in fleet.files())


async def stuck_deletion(fleet: Fleet, mission: Mission) -> Checkpoint:
    """Delete a checkpoint whose file cannot be removed."""
    taken = await fleet.checkpoint(mission)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    fleet.engine.backups["checkpoint"].remove = refuse  # type: ignore[method-assign]
    await fleet.do(CheckpointDelete(taken.id))
    return taken


async def test_a_deleted_checkpoint_does_not_come_back_from_its_file(fleet: Fleet) -> None:
    mission = await fleet.mission()
    kept = await fleet.checkpoint(mission)
    taken = await stuck_deletion(fleet, mission)
    assert fleet.file_of(taken).is_file()
    with pytest.raises(NotFound):
        await fleet.do(CheckpointGet(taken.id))
    await fleet.do(CheckpointVerify(repair=True))
    with pytest.raises(NotFound):
        await fleet.do(CheckpointGet(taken.id))
    assert await fleet.checkpoint_ids(mission) == [kept.id]


async def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        kept = await fleet.checkpoint(mission)
        taken = await stuck_deletion(fleet, mission)
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        assert not fleet.file_of(taken).exists()
        assert fleet.sql("SELECT id FROM checkpoints") == [{"id": kept.id}]
        assert os.readlink(fleet.checkpoints / mission.id / "latest.json") == f"{kept.id}.json"


async def test_a_file_that_cannot_be_removed_is_tried_again(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    mission = await fleet.mission()
    taken = await stuck_deletion(fleet, mission)
    del fleet.engine.backups["checkpoint"].remove
    await trio.sleep(FIRST_PAUSE_S + 0.1)
    assert not fleet.file_of(taken).exists()
    assert fleet.sql("SELECT id FROM checkpoints") == []


async def test_pruned_checkpoints_lose_their_files_too(fleet: Fleet) -> None:
    mission = await fleet.mission()
    for number in range(5):
        await fleet.checkpoint(mission, f"n{number}")
    before = await fleet.checkpoint_ids(mission)
    fleet.clock.pass_by(1)
    pruned = await fleet.do(CheckpointPrune(older_than_days=0, keep_per_mission=2))
    left = await fleet.checkpoint_ids(mission)
    assert (pruned.deleted, left) == (3, before[:2])
    names = {*(f"{mission.id}/{i}.json" for i in left), f"{mission.id}/latest.json"}
    assert fleet.files().keys() == names


async def test_a_deleted_mission_leaves_neither_rows_nor_files(fleet: Fleet) -> None:
    mission, other = await fleet.mission(), await fleet.mission(title="Another")
    await fleet.work(mission, 0, "specialist-1")
    await fleet.lock(mission, "a.py", "specialist-1")
    await fleet.write(mission, ["specialist-1"])
    for each in (mission, other):
        await fleet.checkpoint(each)
    with pytest.raises(InvalidState, match="only a finished mission"):
        await fleet.do(MissionDelete(mission.id))
    assert (fleet.checkpoints / mission.id).is_dir()
    await fleet.do(MissionCancel(mission.id, "no longer wanted"))
    assert (await fleet.do(MissionDelete(mission.id))).deleted
    assert not (fleet.checkpoints / mission.id).exists()
    assert {name.split("/")[0] for name in fleet.files()} == {other.id}
    assert mission.id not in str(fleet.dump("idempotency_keys"))
    with pytest.raises(NotFound):
        await fleet.do(MissionGet(mission.id))


# How rows are marked


def marked_together(fleet: Fleet) -> list[list[str]]:
    """Have rows marked as a daemon does; return the list of what each transaction marks."""
    outbox, write = fleet.engine.outbox, fleet.engine.write
    outbox._mark_after_s = MARK_S
    seen: list[list[str]] = []

    async def met(rule: Any, *args: Any) -> Any:
        if rule is files_written:
            seen.append([work.record_id for work in args[0]])
        return await write(rule, *args)

    outbox._write = met
    return seen


async def test_files_that_follow_each_other_are_marked_in_one_transaction(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    seen, mission = marked_together(fleet), await fleet.mission()
    taken = [await fleet.checkpoint(mission, wait_for_backup=False) for _ in range(3)]
    await trio.sleep(MARK_S / 2)
    assert all(fleet.file_of(each).is_file() for each in taken)
    assert seen == []
    assert await announced(fleet, mission) == []
    assert (await fleet.do(SystemStatus())).backup_backlog == 3
    taken.append(await fleet.checkpoint(mission, wait_for_backup=False))
    await trio.sleep(MARK_S)
    assert seen == [[each.id for each in taken]]
    assert await announced(fleet, mission) == [["sqlite", "file"]] * 4
    assert (await fleet.do(SystemStatus())).backup_backlog == 0


async def test_whoever_waits_for_a_file_has_it_marked_at_once(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    seen, mission = marked_together(fleet), await fleet.mission()
    begun = trio.current_time()
    first = await fleet.checkpoint(mission)
    assert first.storage_locations == ["sqlite", "file"]
    second = await fleet.checkpoint(mission, wait_for_backup=False)
    await fleet.do(CheckpointDelete(second.id))
    third = await fleet.checkpoint(mission, wait_for_backup=False)
    await fleet.engine.outbox.settled()
    assert trio.current_time() == begun
    assert seen == [[first.id], [second.id], [third.id]] or seen == [[first.id], [third.id]]


async def test_whoever_holds_the_files_finds_every_row_marked(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    marked_together(fleet)
    mission = await fleet.mission()
    await fleet.checkpoint(mission, wait_for_backup=False)
    await trio.sleep(MARK_S / 2)
    async with fleet.engine.outbox.file_lock:
        assert fleet.sql("SELECT id FROM checkpoints WHERE backed_up_at IS NULL") == []


async def test_an_older_file_that_follows_leaves_the_newest_the_newest(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    mission = await fleet.mission()
    older = await fleet.checkpoint(mission)
    fleet.sql("UPDATE checkpoints SET backed_up_at = NULL")
    seen = marked_together(fleet)
    newer = await fleet.checkpoint(mission, wait_for_backup=False)
    fleet.engine.outbox.post(WriteBackup("checkpoint", older.id))
    await trio.sleep(1)
    assert seen == [[newer.id, older.id]]
    assert os.readlink(fleet.file_of(newer).with_name("latest.json")) == f"{newer.id}.json"


async def test_no_more_files_are_marked_together_than_a_batch_has(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(tmp_path, batches=BatchSizes(records=2)) as fleet:
        seen, mission = marked_together(fleet), await fleet.mission()
        async with fleet.engine.outbox.file_lock:
            for _ in range(5):
                await fleet.checkpoint(mission, wait_for_backup=False)
        await trio.sleep(1)
        assert [len(each) for each in seen] == [2, 2, 1]


async def test_one_file_that_fails_costs_the_others_nothing(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    seen, mission = marked_together(fleet), await fleet.mission()
    other = await fleet.mission(title="Other")
    obstruct(fleet, other)
    async with fleet.engine.outbox.file_lock:
        first = await fleet.checkpoint(mission, wait_for_backup=False)
        await fleet.checkpoint(other, wait_for_backup=False)
        third = await fleet.checkpoint(mission, wait_for_backup=False)
    await trio.sleep(2 * MARK_S)
    assert seen == [[first.id, third.id]]
    assert await announced(fleet, other) == [["sqlite"]]


async def test_the_end_of_the_daemon_marks_what_was_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        marked_together(fleet)
        mission = await fleet.mission()
        await fleet.checkpoint(mission, wait_for_backup=False)
        await fleet.settle()
    async with opened(tmp_path) as fleet:
        marked = "SELECT id FROM checkpoints WHERE backed_up_at IS NOT NULL"
        assert len(fleet.sql(marked)) == 1
        assert await announced(fleet, mission) == [["sqlite", "file"]]
