"""The restoration scenarios of the integration document, one test each, named after them."""

import pytest

from fleetd.protocol.errors import FleetError, LockConflict
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointGet
from fleetd.protocol.requests.lock import LockAcquire, LockCheck, LockRelease
from fleetd.protocol.requests.message import MessageInbox, MessageList
from tests.support.fleet import MINUTE


@pytest.fixture
async def mission(fleet):
    """A mission of two specialists, one of them at work on its first sortie."""
    made = await fleet.mission()
    await fleet.agents(made, "dispatch-1", "spec-1", "spec-2")
    await fleet.work(made, 0, "spec-1", percent=40, notes="half of the parser")
    return made


async def test_restoration_1_restore_sortie_states(fleet, mission):
    checkpoint = await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "spec-1", percent=90, notes="on the wrong track")
    await fleet.work(mission, 1, "spec-2")

    result = await fleet.restore(checkpoint)

    first, second, *_ = await fleet.sorties(mission)
    assert (first.status, first.progress) == ("in_progress", 40)
    assert first.progress_notes == "half of the parser"
    assert (second.status, second.assigned_to, second.progress) == ("pending", None, 0)
    assert result.restored.sorties == 4


async def test_restoration_2_re_acquire_valid_locks(fleet, mission):
    before = await fleet.lock(mission, "/srv/a.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(before.id, "spec-1"))

    result = await fleet.restore(checkpoint)

    (lock,) = await fleet.locks(mission)
    assert (lock.file, lock.held_by) == ("/srv/a.py", "spec-1")
    assert lock.fencing_token > before.fencing_token
    assert result.restored.locks == 1


async def test_restoration_3_handle_expired_locks(fleet, mission):
    before = await fleet.lock(mission, "/srv/a.py", "spec-1", timeout_ms=MINUTE)
    checkpoint = await fleet.checkpoint(mission)
    fleet.clock.pass_by(2 * MINUTE)

    result = await fleet.restore(checkpoint)

    assert result.recovery_context.blockers[0] == "Lock expired: /srv/a.py"
    assert "Lock expired: /srv/a.py (was held by spec-1)" in result.warnings
    assert not (await fleet.do(LockCheck("/srv/a.py", before.fencing_token))).valid
    (lock,) = await fleet.locks(mission)
    assert lock.held_by == "spec-1"


async def test_restoration_4_handle_lock_conflicts(fleet, mission):
    before = await fleet.lock(mission, "/srv/a.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(before.id, "spec-1"))
    theirs = await fleet.lock(mission, "/srv/a.py", "spec-2")

    result = await fleet.restore(checkpoint)

    assert result.success
    assert result.errors == ["Lock conflict: /srv/a.py held by spec-2"]
    assert result.errors[0] in result.recovery_context.blockers
    assert (await fleet.do(LockCheck("/srv/a.py", theirs.fencing_token))).valid
    with pytest.raises(LockConflict):
        await fleet.do(LockAcquire("spec-1", "/srv/a.py"))


async def test_restoration_5_requeue_pending_messages(fleet, mission):
    message = await fleet.write(mission, ["spec-1"])
    checkpoint = await fleet.checkpoint(mission)
    fleet.sql("DELETE FROM messages")  # a database that was rolled back

    result = await fleet.restore(checkpoint)

    assert result.restored.messages == 1
    (found,) = (await fleet.do(MessageInbox("spec-1"))).messages
    assert (found.id, found.subject) == (message.id, message.subject)


async def test_restoration_6_skip_delivered_messages(fleet, mission):
    message = await fleet.write(mission, ["spec-1"])
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(MessageInbox("spec-1"))

    result = await fleet.restore(checkpoint)

    assert result.restored.messages == 0
    (known,) = (await fleet.do(MessageList(mission.id))).messages
    assert known.id == message.id
    assert [(d.status, d.attempts) for d in known.deliveries] == [("delivered", 1)]


async def test_restoration_7_mark_checkpoint_consumed(fleet, mission):
    checkpoint = await fleet.checkpoint(mission)
    assert checkpoint.consumed_at is None
    fleet.clock.pass_by(MINUTE)

    await fleet.restore(checkpoint)

    again = await fleet.do(CheckpointGet(checkpoint.id))
    assert again.consumed_at == fleet.clock.now


async def test_restoration_8_emit_recovery_event(fleet, mission):
    checkpoint = await fleet.checkpoint(mission)

    await fleet.restore(checkpoint)

    (event,) = await fleet.events(mission, "fleet_recovered")
    assert event.data["checkpoint_id"] == checkpoint.id
    assert event.data["mission_id"] == mission.id
    assert event.data["sorties_restored"] == event.data["recovered_sorties"] == 4


async def test_restoration_9_dry_run_mode(fleet, mission):
    checkpoint = await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "spec-1", percent=90)
    before = fleet.dump()

    result = await fleet.restore(checkpoint, dry_run=True)

    assert (result.dry_run, result.recovery_id) == (True, None)
    assert [change.what for change in result.would_restore] == ["sortie"]
    assert fleet.dump() == before


async def test_restoration_10_transaction_rollback_on_error(fleet, mission):
    await fleet.lock(mission, "/srv/a.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "spec-1", percent=90)
    fleet.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON recoveries"
        " BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    before = fleet.dump()

    with pytest.raises(Exception, match="refused") as failed:
        await fleet.restore(checkpoint)

    assert not isinstance(failed.value, FleetError)
    assert fleet.dump() == before
    fleet.sql("DROP TRIGGER refuse")
    assert (await fleet.restore(checkpoint)).success
    assert (await fleet.do(AgentRegister("spec-1", "specialist"))).agent.status == "active"
