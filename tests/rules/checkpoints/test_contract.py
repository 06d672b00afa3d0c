"""The contract tests of the plan, section 7: pruning, consuming, and conflicts of locks."""

import os

import msgspec
import pytest

from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointPrune
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire, LockCheck, LockRelease
from fleetd.protocol.requests.mission import MissionCancel, MissionComplete, MissionFail
from fleetd.protocol.requests.sortie import SortieProgress
from tests.support.fleet import DAY, MINUTE, SECOND, place_of


async def taken(fleet, mission, number, apart=MINUTE):
    """Take checkpoints with some time between them; return their ids, oldest first."""
    ids = []
    for _ in range(number):
        fleet.clock.pass_by(apart)
        ids.append((await fleet.checkpoint(mission, wait_for_backup=False)).id)
    await fleet.settle()
    return ids


async def left(fleet, mission):
    return (await fleet.checkpoint_ids(mission))[::-1]


async def stir(fleet, mission):
    """Let somebody do something, so that the mission does not wait for recovery."""
    await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": "a"}))


async def test_prunable_is_what_is_old_and_not_among_the_newest(fleet):
    mission = await fleet.mission()
    old = await taken(fleet, mission, 5, DAY)
    fleet.clock.pass_by(8 * DAY)
    recent = await taken(fleet, mission, 3)
    await stir(fleet, mission)

    pruned = await fleet.do(CheckpointPrune())

    assert [detail.id for detail in pruned.details] == old
    assert pruned.deleted == 5
    assert await left(fleet, mission) == recent


async def test_the_newest_three_stay_however_old(fleet):
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 5, DAY)
    fleet.clock.pass_by(100 * DAY)
    await stir(fleet, mission)

    pruned = await fleet.do(CheckpointPrune(older_than_days=1, keep_per_mission=3))

    assert pruned.deleted == 2
    assert await left(fleet, mission) == ids[2:]


async def test_younger_than_seven_days_stays(fleet):
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 6)
    fleet.clock.pass_by(7 * DAY - 6 * MINUTE)
    await stir(fleet, mission)

    assert (await fleet.do(CheckpointPrune())).deleted == 0
    assert await left(fleet, mission) == ids


async def test_a_mission_that_waits_for_recovery_keeps_what_was_not_used(fleet):
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 6)
    await fleet.restore(checkpoint_id=ids[0])
    fleet.clock.pass_by(30 * DAY)

    pruned = await fleet.do(CheckpointPrune(keep_per_mission=1))

    assert [detail.id for detail in pruned.details] == [ids[0]]
    assert await left(fleet, mission) == ids[1:]


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_of_a_finished_mission_the_final_one_stays_for_thirty_days(fleet, end):
    mission = await fleet.mission(0)
    ids = await taken(fleet, mission, 5)
    if end == "completed":
        await fleet.do(MissionComplete(mission.id))
        ids.append((await left(fleet, mission))[-1])
        final = await fleet.do(CheckpointGet(ids[-1]))
        assert (final.trigger, final.trigger_details) == ("progress", "Mission completed")
        assert final.progress_percent == 100
    else:
        request = MissionFail if end == "failed" else MissionCancel
        await fleet.do(request(mission.id, "enough"))

    pruned = await fleet.do(CheckpointPrune())
    assert [detail.id for detail in pruned.details] == ids[:-1]
    assert await left(fleet, mission) == ids[-1:]

    fleet.clock.pass_by(30 * DAY)
    assert (await fleet.do(CheckpointPrune())).deleted == 0
    fleet.clock.pass_by(1)
    assert (await fleet.do(CheckpointPrune())).deleted == 1
    assert await left(fleet, mission) == []
    assert fleet.files() == {}


async def test_the_target_of_latest_json_stays_behind_an_undo_checkpoint(fleet):
    mission = await fleet.mission(2)
    target = await fleet.checkpoint(mission)
    sortie = (await fleet.sorties(mission))[0]
    for percent in (10, 20):
        fleet.clock.pass_by(MINUTE)
        await fleet.do(SortieProgress(sortie.id, percent))
        await fleet.restore(target)
    newest_undo = (await left(fleet, mission))[-1]

    await fleet.do(CheckpointPrune(older_than_days=0, keep_per_mission=1))

    assert await left(fleet, mission) == [target.id, newest_undo]
    assert os.readlink(fleet.file_of(target).parent / "latest.json") == f"{target.id}.json"


async def test_pruning_one_mission_leaves_the_others(fleet):
    mission, other = await fleet.mission(1), await fleet.mission(1)
    mine, theirs = await taken(fleet, mission, 3), await taken(fleet, other, 3)

    prune = CheckpointPrune(older_than_days=0, keep_per_mission=1, mission_id=other.id)
    assert (await fleet.do(prune)).deleted == 2

    assert await left(fleet, mission) == mine
    assert await left(fleet, other) == theirs[2:]
    with pytest.raises(NotFound):
        await fleet.do(CheckpointPrune(mission_id="msn-00000000"))


async def test_bulk_deletion_takes_rows_and_files_together_and_says_how_much(fleet):
    missions = [await fleet.mission(1) for _ in range(3)]
    for mission in missions:
        await taken(fleet, mission, 40, apart=0)
    sizes = {row["id"]: row["size_bytes"] for row in fleet.sql("SELECT * FROM checkpoints")}
    before = fleet.files()
    prune = CheckpointPrune(older_than_days=0, keep_per_mission=2)

    shown = await fleet.do(msgspec.structs.replace(prune, dry_run=True))
    assert fleet.files() == before
    pruned = await fleet.do(prune)

    assert shown == pruned
    assert pruned.deleted == len(pruned.details) == 3 * 38
    assert pruned.freed_bytes == sum(sizes[detail.id] for detail in pruned.details)
    rows = {row["id"] for row in fleet.sql("SELECT id FROM checkpoints")}
    assert len(rows) == 6
    names = {name.rpartition("/")[2] for name in fleet.files()}
    assert names == {f"{checkpoint_id}.json" for checkpoint_id in rows} | {"latest.json"}
    (event,) = await fleet.events(kind="checkpoints_pruned")
    assert event.data == {"deleted": 114, "freed_bytes": pruned.freed_bytes}
    assert (await fleet.do(prune)).deleted == 0


async def test_a_consumed_checkpoint_says_when_and_may_be_used_again(fleet):
    mission = await fleet.mission(2)
    checkpoint = await fleet.checkpoint(mission)
    assert checkpoint.consumed_at is None
    await fleet.restore(checkpoint, dry_run=True)
    assert (await fleet.do(CheckpointGet(checkpoint.id))).consumed_at is None
    written = fleet.file_of(checkpoint).read_bytes()

    moments = []
    for _ in range(2):
        fleet.clock.pass_by(MINUTE)
        moments.append(fleet.clock.now)
        await fleet.restore(checkpoint)
        now = await fleet.do(CheckpointGet(checkpoint.id))
        assert now.consumed_at == moments[-1]
        assert now.integrity == checkpoint.integrity

    assert fleet.file_of(checkpoint).read_bytes() == written
    other = await fleet.checkpoint(mission)
    assert (await fleet.do(CheckpointGet(other.id))).consumed_at is None


async def test_a_recovery_that_is_refused_consumes_nothing(fleet):
    mission = await fleet.mission(0)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(MissionCancel(mission.id, "enough"))

    with pytest.raises(InvalidState):
        await fleet.restore(checkpoint)

    assert (await fleet.do(CheckpointGet(checkpoint.id))).consumed_at is None


async def taken_by_another(fleet):
    """Return a checkpoint with a lock that another agent holds by now, and that other lock."""
    mission = await fleet.mission(2)
    lost = await fleet.lock(mission, "src/a.py", "spec-1")
    await fleet.lock(mission, "src/b.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(lost.id, "spec-1"))
    other = await fleet.do(
        LockAcquire(place_of(lost.normalized_path), "spec-2", timeout_ms=30 * SECOND)
    )
    return checkpoint, other


async def test_a_conflict_leaves_the_lock_where_it_is_and_restores_the_rest(fleet):
    checkpoint, other = await taken_by_another(fleet)

    result = await fleet.restore(checkpoint)

    assert result.success is True
    assert result.errors == ["Lock conflict: src/a.py held by spec-2"]
    assert result.recovery_context.blockers == result.errors
    assert result.warnings == []
    assert (result.restored.sorties, result.restored.locks) == (2, 1)
    held = {lock.normalized_path: lock for lock in await fleet.locks()}
    assert held[other.normalized_path] == other
    assert len(held) == 2


async def test_force_locks_takes_it_and_names_the_old_holder(fleet):
    checkpoint, other = await taken_by_another(fleet)

    result = await fleet.restore(checkpoint, force_locks=True)

    assert result.errors == []
    assert result.warnings == ["Force-released lock: src/a.py (was held by spec-2)"]
    assert result.recovery_context.blockers == []
    assert result.restored.locks == 2
    assert "### Recovery Warnings\n- Force-released lock: src/a.py" in result.prompt
    assert {lock.held_by for lock in await fleet.locks()} == {"spec-1"}
    guard = LockCheck(place_of(other.normalized_path), other.fencing_token)
    assert (await fleet.do(guard)).valid is False
    with pytest.raises(InvalidState, match="forced"):
        await fleet.do(LockRelease(other.id, "spec-2"))


async def test_a_holder_whose_lease_ran_out_is_no_conflict(fleet):
    checkpoint, _ = await taken_by_another(fleet)
    fleet.clock.pass_by(30 * SECOND)

    result = await fleet.restore(checkpoint)

    assert (result.errors, result.warnings) == ([], [])
    assert result.restored.locks == 2
    assert {lock.held_by for lock in await fleet.locks()} == {"spec-1"}


@pytest.mark.parametrize("value", [0, -1])
async def test_at_least_one_checkpoint_is_kept(value):
    with pytest.raises(msgspec.ValidationError, match="keep_per_mission"):
        msgspec.convert({"keep_per_mission": value}, CheckpointPrune)
    assert msgspec.convert({"older_than_days": 0}, CheckpointPrune).older_than_days == 0


async def test_a_checkpoint_of_another_mission_than_the_one_named_is_refused(fleet):
    mission, other = await fleet.mission(1), await fleet.mission(1)
    checkpoint = await fleet.checkpoint(mission)

    with pytest.raises(InvalidParams, match=f"belongs to mission {mission.id}, not to {other.id}"):
        await fleet.restore(checkpoint, mission_id=other.id)
