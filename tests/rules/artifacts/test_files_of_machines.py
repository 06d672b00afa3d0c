"""Several machines share a store: each writes, checks and removes the files of its own records."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fleetd.domain.artifacts.outbox import backup, purge_departed
from fleetd.domain.core.tx import RemoveBackup, WriteBackup
from fleetd.engine.files.reconcile import collect_garbage
from fleetd.engine.jobs import timers
from fleetd.engine.jobs.cluster import leave_cluster
from fleetd.engine.jobs.daily import compress
from fleetd.protocol.errors import Corrupt
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointGet,
    CheckpointPrune,
    CheckpointVerify,
)
from fleetd.protocol.requests.mission import MissionCancel, MissionCreate, MissionDelete
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.snapshot import (
    SnapshotGet,
    SnapshotPrune,
    SnapshotRecord,
    SnapshotVerify,
)
from fleetd.protocol.requests.system import SystemDoctor, SystemForget, SystemStatus
from tests.support.fleet import DAY, MINUTE, Clock, Fleet, opened

NAMES = {"machine-a": "alpha", "machine-b": "beta"}
BETA = "beta (machine-b)"


@asynccontextmanager
async def machines(root: Path, clock: Clock | None = None) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """Open two daemons' engines on one store, as two machines with a clock in common."""
    clock = clock or Clock()
    async with (
        machine(root, "machine-a", clock) as a,
        machine(root, "machine-b", clock) as b,
    ):
        await here(a, b)
        yield a, b


def machine(root: Path, name: str, clock: Clock) -> AbstractAsyncContextManager[Fleet]:
    """Open the engine of one machine."""
    return opened(root / name, clock=clock, machine=name, database=root / "data" / "shared.db")


async def here(*fleets: Fleet) -> None:
    """Let the store hear of machines, which are called what a person would call them."""
    for fleet in fleets:
        await fleet.beat(NAMES[fleet.engine.machine])


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Fleet]]:
    async with machines(tmp_path) as both:
        yield both


async def test_a_file_lies_on_the_machine_whose_daemon_took_the_checkpoint(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    first, second = await a.checkpoint(mission), await b.checkpoint(mission)
    assert a.file_of(first).is_file()
    assert not a.file_of(second).exists()
    assert b.file_of(second).is_file()
    assert not b.file_of(first).exists()
    # The newest of those that lie here, on either machine.
    assert os.readlink(a.file_of(first).with_name("latest.json")) == f"{first.id}.json"
    assert os.readlink(b.file_of(second).with_name("latest.json")) == f"{second.id}.json"
    told_of = [
        (e.data["checkpoint_id"], e.data["machine"])
        for e in await a.events(mission)
        if e.type == "checkpoint_created"
    ]
    assert told_of == [(first.id, "machine-a"), (second.id, "machine-b")]


async def test_a_checkpoint_of_a_machine_that_is_alone_is_its_own(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    assert taken.file_on is None
    (event,) = await fleet.events(mission, "checkpoint_created")
    assert event.data.get("machine", "") == fleet.engine.machine
    assert fleet.sql("SELECT DISTINCT machine FROM checkpoints") == [
        {"machine": fleet.engine.machine}
    ]


async def test_a_record_says_on_which_other_machine_its_file_lies(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    taken = await b.checkpoint(mission)
    snapshot = await b.do(SnapshotRecord("run-1"))
    assert (await a.do(CheckpointGet(taken.id))).file_on == BETA
    assert (await b.do(CheckpointGet(taken.id))).file_on is None
    assert (await a.do(SnapshotGet(snapshot.snapshot_id))).file_on == BETA
    assert (await b.do(SnapshotGet(snapshot.snapshot_id))).file_on is None
    joined = await a.do(SnapshotRecord("run-1"))
    assert (joined.snapshot_id, joined.file_on) == (snapshot.snapshot_id, BETA)


async def test_what_another_machine_keeps_is_not_written_here(pair: tuple[Fleet, Fleet]) -> None:
    a, b = pair
    mission = await a.mission()
    taken = await b.checkpoint(mission)
    assert (await a.engine.read(backup, "checkpoint", taken.id)).data is None
    a.engine.outbox.post(WriteBackup("checkpoint", taken.id))
    a.engine.outbox.post(RemoveBackup("checkpoint", taken.id))
    await a.settle()
    assert a.files() == {}
    assert b.file_of(taken).is_file()
    assert (await a.do(SystemStatus())).backup_backlog == 0


async def test_rows_of_another_machine_are_not_missed_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with machine(tmp_path, "machine-a", clock) as a:
        mission = await a.mission()
        taken = await a.checkpoint(mission)
        await a.do(SnapshotRecord("run-1"))
    async with machine(tmp_path, "machine-b", clock) as b:
        await b.settle()
        assert b.files() == {}
        assert "missing" not in caplog.text
    async with machine(tmp_path, "machine-a", clock) as a:
        assert a.file_of(taken).is_file()


async def test_a_row_that_was_lost_comes_back_from_its_file_as_this_machines(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with machine(tmp_path, "machine-a", clock) as a:
        mission = await a.mission()
        taken = await a.checkpoint(mission)
        snapshot = await a.do(SnapshotRecord("run-1"))
        a.sql("DELETE FROM checkpoints")
        a.sql("DELETE FROM snapshots")
    async with machine(tmp_path, "machine-b", clock) as b:
        assert b.sql("SELECT id FROM checkpoints") == []
    async with machine(tmp_path, "machine-a", clock) as a:
        back = a.sql("SELECT id, machine FROM checkpoints UNION SELECT id, machine FROM snapshots")
        assert sorted((row["id"], row["machine"]) for row in back) == sorted(
            [(taken.id, "machine-a"), (snapshot.snapshot_id, "machine-a")]
        )


async def test_checking_compares_own_files_and_the_rows_of_others(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    ours, theirs = await a.checkpoint(mission), await b.checkpoint(mission)
    b.file_of(theirs).unlink()
    found = await a.do(CheckpointVerify())
    assert found.ok
    details = {finding.subject: finding.detail for finding in found.findings}
    assert details == {
        ours.id: "both copies are intact",
        theirs.id: f"its row is intact; its file is on {BETA} and was not compared",
    }
    (line,) = [f.detail for f in (await a.do(SystemDoctor())).findings if f.check == "checkpoints"]
    assert line == "1 intact in both stores, 1 intact rows with files on other machines"
    found = await b.do(CheckpointVerify(repair=True))
    assert [finding.subject for finding in found.findings if finding.fixed] == [theirs.id]
    assert b.file_of(theirs).is_file()


async def test_a_damaged_row_of_another_machine_is_left_for_that_one_to_heal(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    taken = await b.checkpoint(mission)
    a.sql("UPDATE checkpoints SET sorties_json = '[]' WHERE id = :id", id=taken.id)
    with pytest.raises(Corrupt) as refused:
        await a.do(CheckpointGet(taken.id))
    assert f"its file is on {BETA}" in refused.value.message
    found = await a.do(CheckpointVerify(repair=True))
    assert not found.ok
    (bad,) = [finding for finding in found.findings if not finding.ok]
    assert f"its file is on {BETA}" in bad.detail
    assert "delete it" not in bad.detail
    healed = await b.do(CheckpointGet(taken.id))
    assert "restored from its file" in healed.warnings[-1]
    assert (await a.do(CheckpointVerify())).ok


async def test_another_machine_recovers_from_the_row_alone(pair: tuple[Fleet, Fleet]) -> None:
    a, b = pair
    mission = await a.mission()
    await a.agents(mission, "dispatch-1", "worker-1")
    await a.work(mission, 0, "worker-1", 50, "Half of it")
    taken = await a.checkpoint(mission)
    a.clock.pass_by(10 * MINUTE)
    briefing = await b.do(RecoveryContextGet(mission_id=mission.id))
    result = await b.restore(taken)
    assert result.checkpoint_id == taken.id
    for told_here in (briefing, result):
        assert told_here.warnings == []
        assert str(a.checkpoints) not in str(told_here)
        assert str(b.checkpoints) not in str(told_here)
    await b.settle()
    assert b.files() == {}
    assert (await b.do(CheckpointGet(taken.id))).consumed_at is not None


async def test_pruning_marks_what_another_machine_then_removes(pair: tuple[Fleet, Fleet]) -> None:
    a, b = pair
    mission = await a.mission()
    ours, theirs = await a.checkpoint(mission), await b.checkpoint(mission)
    kept = await b.checkpoint(mission)
    await a.do(MissionCancel(mission.id, "Over"))
    assert (await a.do(CheckpointPrune())).deleted == 2
    assert not a.file_of(ours).exists()
    assert [
        row["id"] for row in a.sql("SELECT id FROM checkpoints WHERE deleted_at IS NOT NULL")
    ] == [theirs.id]
    assert b.file_of(theirs).is_file()
    await b.engine.outbox.catch_up()
    await b.settle()
    assert set(b.files()) == {f"{mission.id}/{kept.id}.json", f"{mission.id}/latest.json"}
    assert [row["id"] for row in a.sql("SELECT id FROM checkpoints")] == [kept.id]


async def test_deleting_anothers_checkpoint_and_snapshots_leaves_their_files_to_it(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    taken = await b.checkpoint(mission)
    await b.do(SnapshotRecord("run-1"))
    await a.do(CheckpointDelete(taken.id))
    a.clock.pass_by(15 * DAY)
    assert (await a.do(SnapshotPrune())).deleted == 1
    await a.settle()
    assert len(b.files()) == 4  # both with their latest.json
    await b.engine.outbox.catch_up()
    await b.settle()
    assert b.files() == {}
    assert b.sql("SELECT id FROM checkpoints UNION SELECT id FROM snapshots") == []


async def test_only_this_machines_history_is_compressed(pair: tuple[Fleet, Fleet]) -> None:
    a, b = pair
    ours, theirs = await a.do(SnapshotRecord("run-1")), await b.do(SnapshotRecord("run-2"))
    a.clock.pass_by(2 * DAY)
    await compress(a.engine)
    assert [path for path in a.files() if path.endswith(".gz")] == [
        f"run-1/history/{ours.snapshot_id}.json.gz"
    ]
    assert (await b.do(SnapshotGet(theirs.snapshot_id))).compressed_at is None
    assert (await b.do(SnapshotVerify())).ok


async def look(*fleets: Fleet) -> None:
    """Let daemons do what they do about files every minute."""
    for fleet in fleets:
        await fleet.engine.outbox.post_pending()
        await collect_garbage(fleet.engine)
        await fleet.settle()


async def test_each_machine_looks_every_minute_at_what_others_left_to_it(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    clock = Clock()
    clock.follow_trio()
    async with machines(tmp_path, clock) as (a, b):
        mission, other = await a.mission(), await a.mission()
        await b.checkpoint(mission)
        taken = await b.checkpoint(other)
        nursery.start_soon(timers.follow_other_machines, b.engine)
        await trio.sleep(1)
        await a.do(CheckpointDelete(taken.id))
        await a.do(SystemForget(mission_id=mission.id))
        await trio.sleep(timers.FILES_S)
        await b.settle()
        assert b.files() == {}
        assert b.sql("SELECT id FROM checkpoints") == []
        nursery.cancel_scope.cancel()


async def test_what_waits_to_be_tried_again_is_not_taken_on_twice(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    obstacle = b.checkpoints / mission.id
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("in the way")
    taken = await b.checkpoint(mission)
    (failed,) = await b.events(mission, "backup_failed")
    for _ in range(3):
        await b.engine.outbox.post_pending()
        await b.engine.outbox.settled()
    assert await b.events(mission, "backup_failed") == [failed]
    assert (await b.do(SystemStatus())).backup_backlog == 1
    obstacle.unlink()
    b.engine.outbox.post(WriteBackup("checkpoint", taken.id))
    await b.settle()
    assert b.file_of(taken).is_file()


async def test_what_one_machine_forgets_the_others_remove_when_they_hear_of_it(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission, other = await a.mission(), await a.mission()
    await a.checkpoint(mission)
    gone, kept = await b.checkpoint(mission), await b.checkpoint(other)
    preview = await a.do(SystemForget(mission_id=mission.id, dry_run=True))
    forgotten = await a.do(SystemForget(mission_id=mission.id))
    for answer in (preview, forgotten):
        (warning,) = answer.warnings
        assert BETA in warning
        assert "within a minute" in warning
    assert not (a.checkpoints / mission.id).exists()
    assert b.file_of(gone).is_file()
    await look(b)
    assert set(b.files()) == {f"{other.id}/{kept.id}.json", f"{other.id}/latest.json"}
    assert not (b.checkpoints / mission.id).exists()
    assert (await a.do(SystemForget(mission_id=other.id, dry_run=True))).warnings != []


async def test_a_machine_that_was_off_hears_of_it_at_its_start(tmp_path: Path) -> None:
    clock = Clock()
    async with machine(tmp_path, "machine-b", clock) as b:
        mission = await b.mission()
        await b.checkpoint(mission)
        deleted = await b.mission()
        await b.checkpoint(deleted)
        await b.do(MissionCancel(deleted.id, "Over"))
        await b.settle()
    async with machine(tmp_path, "machine-a", clock) as a:
        await a.do(SystemForget(mission_id=mission.id))
        await a.do(MissionDelete(deleted.id))
        assert len(b.files()) > 2
    async with machine(tmp_path, "machine-b", clock) as b:
        assert b.files() == {}
        assert b.sql("SELECT id FROM missions UNION SELECT id FROM checkpoints") == []


async def test_deleting_a_mission_that_others_keep_nothing_of_leaves_no_note(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    for keeper, notes in ((a, 0), (b, 1)):
        mission = await keeper.mission()
        await keeper.do(MissionCancel(mission.id, "Over"))
        await keeper.checkpoint(mission)
        await a.do(MissionDelete(mission.id))
        assert len(a.sql("SELECT * FROM forgotten")) == notes
    await look(b)
    assert b.files() == {}


async def test_single_snapshots_on_another_machine_go_and_say_nothing_until_then(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission, other = await a.mission(), await a.mission()
    for each in (mission, other):
        await a.agents(each, "worker-1")
        await b.do(SnapshotRecord("run-1", agent_id="worker-1", note=f"of {each.id}"))
        a.clock.pass_by(MINUTE)
    gone, kept = (row["id"] for row in b.sql("SELECT id FROM snapshots ORDER BY seq"))
    forgotten = await a.do(SystemForget(mission_id=mission.id))
    assert forgotten.snapshots == 1
    assert BETA in forgotten.warnings[0]
    (row,) = a.sql("SELECT * FROM snapshots WHERE id = :id", id=gone)
    assert row["deleted_at"] is not None
    assert (row["note"], row["agent_id"], row["document_json"]) == (None, None, "")
    assert a.sql("SELECT * FROM snapshot_missions WHERE snapshot_id = :id", id=gone) == []
    # Another forgetting has nothing to do with it.
    await a.do(MissionCreate("Elsewhere", project_dir="/elsewhere"))
    await a.do(SystemForget(project_dir="/elsewhere"))
    assert f"run-1/history/{gone}.json" in b.files()
    await look(b)
    assert set(b.files()) == {f"run-1/history/{kept}.json", "run-1/latest.json"}
    assert [row["id"] for row in a.sql("SELECT id FROM snapshots")] == [kept]


async def test_a_run_goes_whole_although_the_end_of_the_log_goes_with_it(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    await a.agents(mission, "worker-1")
    await b.do(SnapshotRecord("run-1", agent_id="worker-1"))
    assert (await a.do(SystemForget(mission_id=mission.id))).runs == 1
    await look(b)
    assert b.files() == {}
    again = await b.do(SnapshotRecord("run-1"))
    await look(a, b)
    assert f"run-1/history/{again.snapshot_id}.json" in b.files()


async def test_what_a_machine_deleted_that_never_comes_back_is_purged_by_another(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with machine(tmp_path, "machine-b", clock) as b:
        await here(b)
        mission = await b.mission()
        gone, kept = await b.checkpoint(mission), await b.checkpoint(mission)
        await b.do(SnapshotRecord("run-1"))
    async with machine(tmp_path, "machine-a", clock) as a:
        await here(a)
        await a.do(CheckpointDelete(gone.id))
        clock.pass_by(15 * DAY)
        await here(a)
        assert (await a.do(SnapshotPrune())).deleted == 1
        waiting = {row["id"] for row in a.sql("SELECT id FROM checkpoints WHERE deleted_at > ''")}
        assert waiting == {gone.id}
        assert await a.engine.write(purge_departed) == 2
        assert a.sql("SELECT id FROM snapshots") == []
        assert [row["id"] for row in a.sql("SELECT id FROM checkpoints")] == [kept.id]
    # It comes back after all: its files do not bring back what was deleted.
    async with machine(tmp_path, "machine-b", clock) as b:
        assert set(b.files()) == {f"{mission.id}/{kept.id}.json", f"{mission.id}/latest.json"}
        assert b.sql("SELECT id FROM snapshots") == []
        assert [row["id"] for row in b.sql("SELECT id FROM checkpoints")] == [kept.id]
        later = await b.checkpoint(mission)
        b.sql("DELETE FROM checkpoints WHERE id = :id", id=later.id)
    async with machine(tmp_path, "machine-b", clock) as b:
        assert later.id in await b.checkpoint_ids(mission)


async def test_what_a_machine_keeps_that_may_come_back_stays_marked(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    taken = await b.checkpoint(mission)
    await a.do(CheckpointDelete(taken.id))
    await leave_cluster(b.engine)
    a.clock.pass_by(6 * DAY)
    assert await a.engine.write(purge_departed) == 0
    a.clock.pass_by(2 * DAY)
    await here(b)  # nobody heard its daemon's end, and it runs again
    assert await a.engine.write(purge_departed) == 0


async def test_a_machine_that_lost_its_id_keeps_its_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with machine(tmp_path, "machine-a", clock) as a:
        await here(a)
        mission = await a.mission()
        kept, gone = await a.checkpoint(mission), await a.checkpoint(mission)
        before = a.files()
    (tmp_path / "machine-a").rename(tmp_path / "machine-b")
    async with machine(tmp_path, "machine-c", clock) as c:
        await c.do(CheckpointDelete(gone.id))
    async with machine(tmp_path, "machine-b", clock) as b:
        await b.settle()
        del before[f"{mission.id}/{gone.id}.json"]
        assert b.files() == before | {f"{mission.id}/latest.json": f"{kept.id}.json"}
        assert "This machine now keeps 2 checkpoint files of a removed machine" in caplog.text
        assert b.sql("SELECT id, machine FROM checkpoints") == [
            {"id": kept.id, "machine": "machine-b"}
        ]
        assert (await b.do(CheckpointVerify())).ok


async def test_copies_of_files_that_another_machine_keeps_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with machine(tmp_path, "machine-a", clock) as a:
        await here(a)
        mission = await a.mission()
        taken = await a.checkpoint(mission)
        shutil.copytree(
            a.checkpoints, tmp_path / "machine-b/.flightline/checkpoints", symlinks=True
        )
        async with machine(tmp_path, "machine-b", clock) as b:
            assert "1 checkpoint files here belong to other machines" in caplog.text
            assert b.file_of(taken).is_file()
            found = await b.do(CheckpointVerify())
            assert [each.check for each in found.findings if each.subject == taken.id] == ["row"]
        assert a.sql("SELECT machine FROM checkpoints") == [{"machine": "machine-a"}]
