"""Requests sent twice under one key, and records named by the beginning of their id."""

import pytest

from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound
from fleetd.protocol.requests.checkpoint import CheckpointCreate, CheckpointGet
from fleetd.protocol.requests.lock import LockAcquire, LockRelease
from fleetd.protocol.requests.mission import MissionCancel, MissionCreate, MissionGet
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import SortieComplete, SortieCreate
from tests.support.fleet import DAY, opened


async def test_the_same_key_returns_the_first_result_and_changes_nothing(fleet):
    mission = await fleet.mission(2)
    sortie = (await fleet.sorties(mission))[0]
    complete = SortieComplete(sortie.id, "ok", idempotency_key="k")

    first = await fleet.do(complete)
    before = fleet.dump()
    fleet.clock.pass_by(1_000)

    assert await fleet.do(complete) == first
    assert fleet.dump() == before


async def test_a_checkpoint_and_a_recovery_are_made_once_per_key(fleet):
    mission = await fleet.mission(2)
    create = CheckpointCreate(mission.id, idempotency_key="k")
    checkpoint = await fleet.do(create)
    again = await fleet.do(create)
    assert again.id == checkpoint.id
    assert await fleet.checkpoint_ids(mission) == [checkpoint.id]

    restore = RecoveryRestore(checkpoint.id, idempotency_key="k")
    assert await fleet.do(restore) == await fleet.do(restore)
    assert len(await fleet.events(mission, "fleet_recovered")) == 1


async def test_a_lock_that_was_waited_for_is_granted_once_per_key(fleet):
    mission = await fleet.mission(1)
    acquire = LockAcquire("spec-1", "/a", mission_id=mission.id, wait_ms=10, idempotency_key="k")

    first = await fleet.do(acquire)
    await fleet.do(LockRelease(first.id, "spec-1"))

    assert await fleet.do(acquire) == first
    assert await fleet.locks() == []


async def test_a_key_with_other_parameters_is_refused(fleet):
    await fleet.do(MissionCreate("One", idempotency_key="k"))

    with pytest.raises(InvalidParams, match="k was already used with other parameters") as refused:
        await fleet.do(MissionCreate("Two", idempotency_key="k"))

    assert refused.value.values["field"] == "idempotency_key"
    assert len(fleet.sql("SELECT id FROM missions")) == 1


async def test_a_key_belongs_to_its_method(fleet):
    mission = await fleet.do(MissionCreate("One", idempotency_key="k"))

    sortie = await fleet.do(SortieCreate(mission.id, "One", idempotency_key="k"))

    assert sortie.title == "One"


async def test_errors_are_not_kept(fleet):
    mission = await fleet.mission(1)
    lock = await fleet.lock(mission, "src/0.py", "spec-1")
    request = LockRelease(lock.id, "spec-2", idempotency_key="k")
    with pytest.raises(InvalidState, match="held by spec-1"):
        await fleet.do(request)

    fleet.sql("UPDATE locks SET held_by = 'spec-2'")

    assert (await fleet.do(request)).status == "released"


async def test_a_key_is_forgotten_after_24_hours(fleet):
    create = MissionCreate("One", idempotency_key="k")
    first = await fleet.do(create)
    fleet.clock.pass_by(DAY - 1)
    assert await fleet.do(create) == first
    fleet.clock.pass_by(1)
    assert (await fleet.do(create)).id != first.id


@pytest.fixture
async def named(tmp_path):
    """Return a fleet whose missions are msn-abcd0001, msn-abcd0002 and msn-abce0003."""
    numbers = iter(["abcd0001", "abcd0002", "abce0003"])
    others = iter(range(1_000))

    def new_id(prefix):
        return f"{prefix}-{next(numbers) if prefix == 'msn' else f'{next(others):08x}'}"

    async with opened(tmp_path, new_id=new_id) as fleet:
        for title in ("One", "Two", "Three"):
            await fleet.do(MissionCreate(title))
        yield fleet


async def test_a_unique_beginning_is_enough(named):
    assert (await named.do(MissionGet("msn-abce"))).title == "Three"
    assert (await named.do(MissionGet("msn-abcd0002"))).title == "Two"
    assert (await named.do(MissionCancel("msn-abce00", "enough"))).id == "msn-abce0003"
    assert (await named.do(SortieCreate("msn-abcd0001", "S"))).mission_id == "msn-abcd0001"


async def test_an_ambiguous_beginning_is_refused_with_the_candidates(named):
    with pytest.raises(InvalidParams) as refused:
        await named.do(MissionGet("msn-abcd"))

    assert "msn-abcd is ambiguous" in refused.value.message
    assert "msn-abcd0001, msn-abcd0002" in refused.value.message


@pytest.mark.parametrize("unknown", ["msn-abc", "msn-a", "msn-ffff", "srt-abce", "msn-ABCE"])
async def test_too_short_or_unknown_is_not_found(named, unknown):
    with pytest.raises(NotFound, match=f"Mission not found: {unknown}"):
        await named.do(MissionGet(unknown))


async def test_a_checkpoint_is_found_by_its_beginning_everywhere(named):
    mission = await named.do(MissionGet("msn-abce"))
    for _ in range(16):
        await named.do(MissionGet("msn-abce"))
    checkpoint = await named.checkpoint(mission)
    prefix = checkpoint.id[:-1]

    assert (await named.do(CheckpointGet(prefix))).id == checkpoint.id
    assert (await named.restore(checkpoint_id=prefix)).checkpoint_id == checkpoint.id
