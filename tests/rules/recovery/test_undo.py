"""Undoing and repeating recoveries where clocks, ends of missions and deletions come between."""

from fleetd.protocol.requests.checkpoint import CheckpointDelete
from fleetd.protocol.requests.message import MessageInbox
from fleetd.protocol.requests.mission import MissionComplete
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import SortieRemove


async def completed(fleet):
    """Return a completed mission and the id of its final checkpoint."""
    mission = await fleet.mission(1)
    await fleet.complete(mission, 0)
    await fleet.do(MissionComplete(mission.id))
    return mission, (await fleet.checkpoint_ids(mission))[0]


async def status(fleet, mission):
    return (await fleet.again(mission)).status


async def test_undoing_takes_out_again_what_came_back_however_the_clock_was_set(fleet):
    mission = await fleet.mission(2)
    first = await fleet.checkpoint(mission)
    gone = (await fleet.sorties(mission))[1]
    await fleet.do(SortieRemove(gone.id))
    fleet.clock.step(-3_600_000)

    recovery = await fleet.restore(first)
    back = await fleet.sorties(mission)
    await fleet.do(RecoveryRestore(recovery.undo_checkpoint_id))

    assert [sortie.id for sortie in back] == [back[0].id, gone.id]
    assert [sortie.id for sortie in await fleet.sorties(mission)] == [back[0].id]


async def test_a_recovery_is_undone_also_through_a_checkpoint_taken_by_hand(fleet):
    mission = await fleet.mission(2)
    first = await fleet.checkpoint(mission)
    await fleet.do(SortieRemove((await fleet.sorties(mission))[1].id))
    second = await fleet.checkpoint(mission)

    recovery = await fleet.restore(first)
    await fleet.do(RecoveryRestore(recovery.undo_checkpoint_id))

    assert recovery.undo_checkpoint_id == second.id
    assert len(await fleet.sorties(mission)) == 1


async def test_reopening_a_mission_from_its_own_end_can_be_undone(fleet):
    mission, final = await completed(fleet)

    recovery = await fleet.do(RecoveryRestore(mission_id=mission.id, rewind=True))
    reopened = await status(fleet, mission)
    await fleet.do(RecoveryRestore(recovery.undo_checkpoint_id, rewind=True))

    assert recovery.checkpoint_id == final
    assert (reopened, await status(fleet, mission)) == ("in_progress", "completed")


async def test_reopening_a_mission_twice_leaves_it_open(fleet):
    mission, final = await completed(fleet)

    for _ in range(3):
        await fleet.do(RecoveryRestore(final, rewind=True))

        assert await status(fleet, mission) == "in_progress"


async def test_ending_a_mission_again_twice_leaves_it_ended(fleet):
    mission, _ = await completed(fleet)
    recovery = await fleet.do(RecoveryRestore(mission_id=mission.id, rewind=True))

    for _ in range(3):
        await fleet.do(RecoveryRestore(recovery.undo_checkpoint_id, rewind=True))

        assert await status(fleet, mission) == "completed"


async def test_a_repeated_recovery_is_answered_after_its_checkpoint_was_deleted(fleet):
    mission = await fleet.mission(1)
    taken = await fleet.checkpoint(mission)
    request = RecoveryRestore(taken.id, idempotency_key="once")
    first = await fleet.do(request)
    await fleet.do(CheckpointDelete(taken.id))

    again = await fleet.do(request)

    assert again == first


async def test_letters_that_a_successor_has_are_not_queued_for_the_lost_agent_again(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    letter = await fleet.write(mission, ["spec-1"])
    first = await fleet.checkpoint(mission)
    await fleet.do(MessageInbox("spec-1"))
    await fleet.restore(agent_id="spec-2", take_over_from="spec-1", scope="agent")
    await fleet.do(MessageInbox("spec-2"))

    recovery = await fleet.restore(first)

    assert recovery.restored.messages == 0
    assert (await fleet.do(MessageInbox("spec-1"))).messages == []
    (known,) = (await fleet.do(MessageInbox("spec-2"))).messages
    assert [(d.agent_id, d.status, d.attempts) for d in known.deliveries] == [
        ("spec-2", "delivered", 1)
    ]
    assert known.id == letter.id
