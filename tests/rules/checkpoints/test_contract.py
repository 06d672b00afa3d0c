"""The contract tests of the plan, section 7: consuming, and conflicts of locks."""

import pytest

from fleetd.protocol.errors import InvalidParams, InvalidState
from fleetd.protocol.requests.checkpoint import CheckpointGet
from fleetd.protocol.requests.lock import LockAcquire, LockCheck, LockRelease
from fleetd.protocol.requests.mission import MissionCancel
from tests.support.fleet import MINUTE, SECOND, place_of


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
        LockAcquire("spec-2", place_of(lost.normalized_path), timeout_ms=30 * SECOND)
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


async def test_a_checkpoint_of_another_mission_than_the_one_named_is_refused(fleet):
    mission, other = await fleet.mission(1), await fleet.mission(1)
    checkpoint = await fleet.checkpoint(mission)

    with pytest.raises(InvalidParams, match=f"belongs to mission {mission.id}, not to {other.id}"):
        await fleet.restore(checkpoint, mission_id=other.id)
