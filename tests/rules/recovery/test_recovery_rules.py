"""Recovery beyond the cases of the plan: kept work, undo, takeover, one agent's part, rehearsal."""

import msgspec
import pytest
import trio

from fleetd.config import Limits
from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointGet,
    CheckpointLatest,
)
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockCheck, LockRelease
from fleetd.protocol.requests.message import MessageAck, MessageInbox
from fleetd.protocol.requests.mission import MissionCancel, MissionComplete, MissionFail
from fleetd.protocol.requests.recovery import RecoveryDetect, RecoveryList
from fleetd.protocol.requests.sortie import (
    SortieComplete,
    SortieCreate,
    SortieProgress,
    SortieRemove,
)
from tests.support.fleet import MINUTE, opened, place_of


def statuses(sorties):
    return [sortie.status for sortie in sorties]


async def milestones(fleet, mission):
    """Return what the progress checkpoints of a mission say, oldest first."""
    ids = (await fleet.checkpoint_ids(mission, "progress"))[::-1]
    return [(await fleet.do(CheckpointGet(each))).trigger_details for each in ids]


async def test_work_finished_since_is_kept_and_listed(fleet):
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 1)
    before = await fleet.sorties(mission)

    result = await fleet.restore(checkpoint)

    (kept,) = result.kept
    assert (kept.sortie_id, kept.reason) == (before[1].id, "completed since the checkpoint")
    assert result.restored.sorties == 3
    assert await fleet.sorties(mission) == before
    assert "S1 (pending)" not in result.recovery_context.next_steps
    assert (await fleet.again(mission)).progress_percent == 50


async def test_rewind_takes_finished_work_back_too(fleet):
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 1, 2)

    result = await fleet.restore(checkpoint, rewind=True)

    assert result.kept == []
    assert result.restored.sorties == 4
    sorties = await fleet.sorties(mission)
    assert statuses(sorties) == ["completed", "pending", "pending", "pending"]
    assert [sortie.completed_at is None for sortie in sorties] == [False, True, True, True]
    assert (await fleet.again(mission)).progress_percent == 25


async def test_sorties_added_since_stay_and_removed_ones_come_back(fleet):
    mission = await fleet.mission(2)
    checkpoint = await fleet.checkpoint(mission)
    removed = (await fleet.sorties(mission))[1]
    await fleet.do(SortieRemove(removed.id))
    added = await fleet.do(SortieCreate(mission.id, "Added"))

    result = await fleet.restore(checkpoint)

    assert [(kept.sortie_id, kept.reason) for kept in result.kept] == [
        (added.id, "created since the checkpoint")
    ]
    ids = [sortie.id for sortie in await fleet.sorties(mission)]
    assert set(ids) == {sortie.id for sortie in checkpoint.sorties} | {added.id}
    assert removed.id in ids
    assert (await fleet.again(mission)).total_sorties == 3


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_a_finished_mission_is_reopened_by_rewind_only(fleet, end):
    mission = await fleet.mission(1)
    checkpoint = await fleet.checkpoint(mission)
    if end == "completed":
        await fleet.complete(mission, 0)
        await fleet.do(MissionComplete(mission.id))
    else:
        await fleet.do({"failed": MissionFail, "cancelled": MissionCancel}[end](mission.id, "x"))
    await fleet.settle()
    before = fleet.dump()

    with pytest.raises(InvalidState, match=f"{mission.id} was {end} at") as refused:
        await fleet.restore(checkpoint)
    assert "--rewind" in refused.value.hint
    assert fleet.dump() == before

    await fleet.restore(checkpoint, rewind=True)
    now = await fleet.again(mission)
    assert (now.status, now.completed_at) == ("in_progress", None)
    assert statuses(await fleet.sorties(mission)) == ["pending"]


async def test_every_recovery_can_be_undone(fleet):
    mission = await fleet.mission(3)
    await fleet.agents(mission, "spec-1")
    target = await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "spec-1", 80, "Nearly there")
    await fleet.complete(mission, 1)
    await fleet.lock(mission, "src/0.py", "spec-1")
    before = await fleet.sorties(mission)
    fleet.clock.pass_by(MINUTE)

    result = await fleet.restore(target, rewind=True, requested_by="operator")
    assert statuses(await fleet.sorties(mission)) == ["pending"] * 3

    undo = await fleet.do(CheckpointGet(result.undo_checkpoint_id))
    assert undo.undo is True
    assert (undo.trigger, undo.created_by) == ("compaction", "operator")
    assert undo.trigger_details == f"Before recovery from {target.id}"
    assert [lock.file for lock in undo.active_locks] == ["src/0.py"]

    await fleet.restore(undo, rewind=True)
    after = await fleet.sorties(mission)
    ignored = {"updated_at": "", "recovery_context": None}
    assert [msgspec.structs.replace(sortie, **ignored) for sortie in after] == [
        msgspec.structs.replace(sortie, **ignored) for sortie in before
    ]


async def test_undo_checkpoints_are_used_only_by_name(fleet):
    mission = await fleet.mission(2)
    target = await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "spec-1")
    fleet.clock.pass_by(MINUTE)
    undo_id = (await fleet.restore(target)).undo_checkpoint_id

    assert (await fleet.do(CheckpointLatest(mission.id))).id == target.id
    assert (await fleet.restore(mission_id=mission.id)).checkpoint_id == target.id
    fleet.clock.pass_by(10 * MINUTE)
    (candidate,) = (await fleet.do(RecoveryDetect())).candidates
    assert candidate.checkpoint_id == target.id
    assert undo_id in await fleet.checkpoint_ids(mission)

    await fleet.do(CheckpointDelete(target.id))
    with pytest.raises(InvalidState, match="No checkpoint found for mission"):
        await fleet.restore(mission_id=mission.id)
    assert (await fleet.restore(checkpoint_id=undo_id)).success


async def test_no_undo_checkpoint_where_the_newest_equals_what_is_there(fleet):
    mission = await fleet.mission(2)
    checkpoint = await fleet.checkpoint(mission)

    result = await fleet.restore(checkpoint)

    assert result.undo_checkpoint_id is None
    assert await fleet.checkpoint_ids(mission) == [checkpoint.id]


async def lost_agent(fleet, mortal):
    """Return a mission whose spec-1 died in the middle of its work, and its process id."""
    mission = await fleet.mission(5)
    process = mortal()
    await fleet.do(AgentRegister("spec-1", "specialist", pid=process.pid, mission_id=mission.id))
    await fleet.agents(mission, "dispatch-1", "spec-2", "spec-3")
    await fleet.work(mission, 0, "spec-1", 100, "Done soon")
    await fleet.complete(mission, 0)
    await fleet.work(mission, 1, "spec-1", 60, "Half of the parser")
    await fleet.work(mission, 2, "spec-3", 30, "Routes")
    await fleet.lock(mission, "src/1.py", "spec-1")
    await fleet.lock(mission, "src/2.py", "spec-3")
    for subject in ("Queued", "Read", "Done"):
        await fleet.write(mission, ["spec-1"], subject)
    await fleet.write(mission, ["spec-3"], "For three")
    return mission, process


async def test_a_successor_gets_sorties_locks_and_mail(fleet, mortal):
    mission, process = await lost_agent(fleet, mortal)
    letters = (await fleet.do(MessageInbox("spec-1", limit=3))).messages
    await fleet.do(MessageAck(letters[2].id, "spec-1"))
    late = await fleet.write(mission, ["spec-1"], "Late")
    checkpoint = await fleet.checkpoint(mission)
    old = next(lock for lock in await fleet.locks() if lock.held_by == "spec-1")
    process.kill()
    process.wait()

    result = await fleet.restore(checkpoint, agent_id="spec-2", take_over_from="spec-1")

    sorties = await fleet.sorties(mission)
    assert [sortie.assigned_to for sortie in sorties] == [
        "spec-1",
        "spec-2",
        "spec-3",
        None,
        None,
    ]
    assert (sorties[1].status, sorties[1].progress) == ("in_progress", 60)
    held = {lock.file: lock for lock in await fleet.locks()}
    assert held["src/1.py"].held_by == "spec-2"
    assert held["src/1.py"].fencing_token > old.fencing_token
    assert held["src/2.py"].held_by == "spec-3"
    assert not (await fleet.do(LockCheck(place_of(old.normalized_path), old.fencing_token))).valid
    assert "\n### Current Blockers\n- None\n" in result.prompt
    assert "\n### Others\n- spec-3 holds src/2.py\n- You took over from spec-1\n" in (result.prompt)
    assert "Half of the parser" in result.prompt
    assert (result.errors, result.warnings) == ([], [])
    mine = (await fleet.do(MessageInbox("spec-2"))).messages
    assert [letter.subject for letter in mine] == ["Queued", "Read", "Late"]
    assert mine[2].id == late.id
    assert (await fleet.do(MessageInbox("spec-1"))).messages == []
    (other,) = (await fleet.do(MessageInbox("spec-3"))).messages
    assert other.subject == "For three"


async def test_the_work_of_a_lost_agent_is_taken_over_once(fleet, mortal):
    mission, process = await lost_agent(fleet, mortal)
    checkpoint = await fleet.checkpoint(mission)
    with pytest.raises(InvalidState, match=f"spec-1 is still running .process {process.pid}"):
        await fleet.restore(checkpoint, agent_id="spec-2", take_over_from="spec-1")
    process.kill()
    process.wait()

    await fleet.restore(checkpoint, agent_id="spec-2", take_over_from="spec-1")
    with pytest.raises(InvalidState, match="already taken over by spec-2"):
        await fleet.restore(checkpoint, agent_id="spec-3", take_over_from="spec-1")
    again = await fleet.restore(checkpoint, agent_id="spec-2", take_over_from="spec-1")

    assert again.success
    assert (await fleet.sorties(mission))[1].assigned_to == "spec-2"


async def test_an_agent_that_never_registered_has_one_successor_too(fleet):
    mission = await fleet.mission(2)
    await fleet.work(mission, 0, "ghost", 40)
    checkpoint = await fleet.checkpoint(mission)

    await fleet.restore(checkpoint, agent_id="spec-2", take_over_from="ghost")
    with pytest.raises(InvalidState, match="The work of ghost was already taken over by spec-2"):
        await fleet.restore(checkpoint, agent_id="spec-3", take_over_from="ghost")

    assert (await fleet.sorties(mission))[0].assigned_to == "spec-2"


async def test_nobody_takes_over_from_an_agent_that_never_was(fleet):
    mission = await fleet.mission(1)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.settle()
    before = fleet.dump()

    with pytest.raises(NotFound, match="Agent not found: spec-l"):
        await fleet.restore(checkpoint, agent_id="spec-2", take_over_from="spec-l")

    assert fleet.dump() == before


@pytest.mark.parametrize("wish", [{"take_over_from": "spec-1"}, {"scope": "agent"}])
async def test_a_successor_or_a_part_without_an_agent_is_refused(fleet, wish):
    checkpoint = await fleet.checkpoint(await fleet.mission(1))

    with pytest.raises(InvalidParams, match="agent_id") as refused:
        await fleet.restore(checkpoint, **wish)
    assert refused.value.values["field"] == "agent_id"


FIVE = [f"spec-{n}" for n in range(1, 6)]


def of_others(fleet):
    """Return every row of sorties, locks and deliveries that is not spec-1's."""
    owners = {"sorties": "assigned_to", "locks": "held_by", "deliveries": "agent_id"}
    return {
        table: [row for row in fleet.sql(f"SELECT * FROM {table}") if row[owner] != "spec-1"]
        for table, owner in owners.items()
    }


async def test_when_one_of_five_compacts_four_do_not_notice(fleet):
    mission = await fleet.mission(6)
    await fleet.agents(mission, *FIVE)
    for number, agent in enumerate(FIVE):
        await fleet.work(mission, number, agent, 20, f"Begun by {agent}")
        await fleet.lock(mission, f"src/{number}.py", agent)
        await fleet.write(mission, [agent], f"For {agent}")
    checkpoint = await fleet.checkpoint(mission)
    for number, agent in enumerate(FIVE):
        await fleet.work(mission, number, agent, 70, f"Further by {agent}")
        await fleet.do(MessageInbox(agent))
    for lock in await fleet.locks():
        await fleet.do(LockRelease(lock.id, lock.held_by))
    fleet.clock.pass_by(MINUTE)
    before = of_others(fleet)

    result = await fleet.restore(checkpoint, agent_id="spec-1", scope="agent")

    assert of_others(fleet) == before
    assert result.restored == msgspec.convert(
        {"sorties": 1, "locks": 1, "messages": 0}, type(result.restored)
    )
    own = (await fleet.sorties(mission))[0]
    assert (own.progress, own.progress_notes) == (20, "Begun by spec-1")
    assert [lock.held_by for lock in await fleet.locks()] == ["spec-1"]
    assert "spec-2" in result.prompt.partition("The rest of the fleet")[2].splitlines()[0]
    assert "Begun by spec-2" not in result.prompt
    assert [e.data["sortie_id"] for e in await fleet.events(mission, "sortie_restored")] == [own.id]


async def test_one_agents_part_does_not_take_back_what_went_to_another(fleet):
    mission = await fleet.mission(2)
    await fleet.work(mission, 0, "spec-1", 20)
    checkpoint = await fleet.checkpoint(mission)
    sortie = (await fleet.sorties(mission))[0]
    fleet.sql("UPDATE sorties SET assigned_to = 'spec-2' WHERE id = :id", id=sortie.id)
    before = of_others(fleet)

    result = await fleet.restore(checkpoint, agent_id="spec-1", scope="agent")

    assert of_others(fleet) == before
    assert [(kept.sortie_id, kept.reason) for kept in result.kept] == [
        (sortie.id, "now with spec-2")
    ]


@pytest.mark.parametrize("rewind", [False, True])
async def test_a_dry_run_changes_nothing_and_counts_like_the_real_one(fleet, mortal, rewind):
    mission, process = await lost_agent(fleet, mortal)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 1)
    await fleet.work(mission, 3, "spec-3", 10)
    lock = next(lock for lock in await fleet.locks() if lock.held_by == "spec-3")
    await fleet.do(LockRelease(lock.id, "spec-3"))
    await fleet.lock(mission, "src/late.py", "spec-1")
    process.kill()
    process.wait()
    await fleet.settle()
    before, files = fleet.dump(), fleet.files()
    wish = {"agent_id": "spec-2", "take_over_from": "spec-1", "rewind": rewind}

    shown = await fleet.restore(checkpoint, dry_run=True, **wish)
    await fleet.settle()
    assert fleet.dump() == before
    assert fleet.files() == files
    real = await fleet.restore(checkpoint, **wish)

    for name in ("restored", "kept", "released_locks", "errors", "warnings", "recovery_context"):
        assert getattr(shown, name) == getattr(real, name), name
    assert (shown.success, shown.dry_run, real.dry_run) == (True, True, False)
    assert (shown.recovery_id, shown.undo_checkpoint_id) == (None, None)
    assert real.undo_checkpoint_id is not None
    assert real.would_restore is None
    whats = {change.what for change in shown.would_restore}
    assert whats == {"sortie", "lock", "message"}
    assert all(change.before != change.after for change in shown.would_restore)


async def test_a_dry_run_of_nothing_to_do_lists_nothing(fleet):
    mission = await fleet.mission(2)
    checkpoint = await fleet.checkpoint(mission)

    assert (await fleet.restore(checkpoint, dry_run=True)).would_restore == []


async def test_the_undo_checkpoint_does_not_push_out_the_one_it_undoes(tmp_path):
    async with opened(tmp_path, limits=Limits(checkpoints_per_mission=5)) as fleet:
        mission = await fleet.mission(1)
        ids = []
        for _ in range(5):
            fleet.clock.pass_by(MINUTE)
            ids.append((await fleet.checkpoint(mission)).id)
        await fleet.work(mission, 0, "spec-1")

        undo_id = (await fleet.restore(checkpoint_id=ids[0])).undo_checkpoint_id

        assert set(await fleet.checkpoint_ids(mission)) == {ids[0], *ids[2:], undo_id}
        assert (await fleet.restore(checkpoint_id=ids[0])).success


async def test_a_rewind_rearms_the_milestones_above(fleet):
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 1, 2)
    first = ["Reached 25% milestone", "Reached 50% milestone", "Reached 75% milestone"]
    assert await milestones(fleet, mission) == first

    await fleet.restore(checkpoint, rewind=True)
    await fleet.complete(mission, 1)
    assert await milestones(fleet, mission) == [*first, "Reached 50% milestone"]
    await fleet.complete(mission, 2)
    assert await milestones(fleet, mission) == [*first, *first[1:]]


async def test_a_recovery_that_keeps_the_work_does_not_fire_again(fleet):
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 1)
    before = await milestones(fleet, mission)

    await fleet.restore(checkpoint)
    await fleet.do(SortieProgress((await fleet.sorties(mission))[2].id, 99))

    assert await milestones(fleet, mission) == before
    await fleet.do(SortieComplete((await fleet.sorties(mission))[2].id))
    assert await milestones(fleet, mission) == [*before, "Reached 75% milestone"]


async def test_after_a_plain_compaction_nothing_is_rewound(fleet):
    mission = await fleet.mission(3)
    await fleet.agents(mission, "spec-1")
    await fleet.work(mission, 0, "spec-1")
    await fleet.lock(mission, "src/0.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission, trigger="compaction")
    before = await fleet.sorties(mission)

    result = await fleet.restore(checkpoint, agent_id="spec-1", scope="agent")

    assert result.undo_checkpoint_id is None
    ignored = {"recovery_context": None}
    after = [msgspec.structs.replace(s, **ignored) for s in await fleet.sorties(mission)]
    assert after == before
    assert await fleet.events(mission, "sortie_restored") == []
    assert "### Now\n- srt-" in result.prompt


async def test_a_recovery_is_confirmed_by_the_first_activity_of_the_one_briefed(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1", "spec-2")
    checkpoint = await fleet.checkpoint(mission)
    result = await fleet.restore(checkpoint, agent_id="spec-1", requested_by="dispatch-1")

    async def now():
        (recovery,) = (await fleet.do(RecoveryList(mission.id))).recoveries
        return recovery.state, recovery.resumed_at

    await fleet.do(EventAppend("file_modified", mission.id, "spec-2", {"file": "a"}))
    await fleet.do(AgentHeartbeat("spec-1"))
    assert await now() == ("briefed", None)
    fleet.clock.pass_by(MINUTE)
    await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": "a"}))
    assert await now() == ("resumed", fleet.clock.now)
    (event,) = await fleet.events(mission, "recovery_confirmed")
    assert event.data == {"recovery_id": result.recovery_id}


@pytest.mark.parametrize("ran_out", [False, True])
async def test_an_orphaned_lock_goes_to_the_checkpoints_holder_before_a_waiter(
    fleet, mortal, ran_out
):
    mission = await fleet.mission(2)
    held = await fleet.lock(mission, "src/0.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(held.id, "spec-1"))
    process = mortal()
    await fleet.do(AgentRegister("spec-x", "specialist", pid=process.pid, mission_id=mission.id))
    await fleet.lock(mission, "src/0.py", "spec-x")
    process.kill()
    process.wait()
    got = []

    async def wait():
        got.append(await fleet.lock(mission, "src/0.py", "spec-w", wait_ms=2 * MINUTE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await fleet.settle()
        if ran_out:  # nobody was there to notice it in time
            fleet.clock.pass_by(10 * MINUTE)

        result = await fleet.restore(checkpoint)

        await fleet.settle()
        (now,) = await fleet.locks(mission)
        assert (now.held_by, got, result.errors) == ("spec-1", [], [])
        assert result.restored.locks == 1
        await fleet.do(LockRelease(now.id, "spec-1"))
    assert [lock.held_by for lock in got] == ["spec-w"]
