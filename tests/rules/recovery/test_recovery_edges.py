"""Recovery and its neighbours at their edges: clocks, ends, strangers, other missions."""

import pytest
import trio

from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentDeregister, AgentGet, AgentNote, AgentRegister
from fleetd.protocol.requests.checkpoint import (
    CheckpointGet,
    CheckpointLatest,
    CheckpointPrune,
    ErrorReport,
)
from fleetd.protocol.requests.event import EventList, EventSubscribe
from fleetd.protocol.requests.lock import LockAcquire, LockCheck, LockRelease
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionCurrent,
    MissionDelete,
    MissionStart,
)
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.sortie import SortieProgress, SortieRemove, SortieStart
from tests.support.fleet import HOUR


async def test_a_clock_stepped_back_does_not_make_an_old_checkpoint_the_newest(fleet):
    mission = await fleet.mission(2)
    await fleet.work(mission, 0, "spec-1", 10)
    await fleet.checkpoint(mission)
    fleet.clock.pass_by(-HOUR)
    await fleet.work(mission, 0, "spec-1", 90)
    newer = await fleet.checkpoint(mission)
    await fleet.settle()

    assert (await fleet.do(CheckpointLatest(mission.id))).id == newer.id
    assert (fleet.checkpoints / mission.id / "latest.json").resolve() == fleet.file_of(newer)
    assert (await fleet.restore(mission_id=mission.id)).checkpoint_id == newer.id
    assert (await fleet.sorties(mission))[0].progress == 90


async def test_an_undone_rewind_does_not_pass_its_milestones_again(fleet):
    mission = await fleet.mission(4)
    start = await fleet.checkpoint(mission)
    await fleet.complete(mission, 0, 1, 2)
    undo = (await fleet.restore(start, rewind=True)).undo_checkpoint_id
    await fleet.restore(checkpoint_id=undo, rewind=True)
    before = await fleet.checkpoint_ids(mission, "progress")

    await fleet.do(SortieStart((await fleet.sorties(mission))[3].id, "spec-1"))

    assert (await fleet.again(mission)).progress_percent == 75
    assert await fleet.checkpoint_ids(mission, "progress") == before


async def test_undoing_a_rewind_ends_the_mission_again(fleet):
    mission = await fleet.mission(1)
    start = await fleet.checkpoint(mission)
    await fleet.complete(mission, 0)
    await fleet.do(MissionComplete(mission.id))
    undo = (await fleet.restore(start, rewind=True)).undo_checkpoint_id
    assert (await fleet.again(mission)).status == "in_progress"

    # By itself the next recovery does not go back to the end that was just left.
    again = await fleet.restore(mission_id=mission.id)
    told = await fleet.do(CheckpointGet(again.checkpoint_id))
    assert told.trigger_details == f"Recovered from {start.id}"
    assert (await fleet.again(mission)).status == "in_progress"
    await fleet.restore(checkpoint_id=undo)

    assert (await fleet.again(mission)).status == "completed"
    assert [sortie.status for sortie in await fleet.sorties(mission)] == ["completed"]


async def test_after_an_undo_the_next_recovery_stays_with_it(fleet):
    mission = await fleet.mission(2)
    start = await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "spec-1", 60)
    undo = (await fleet.restore(start)).undo_checkpoint_id
    assert (await fleet.sorties(mission))[0].progress == 0
    await fleet.restore(checkpoint_id=undo)
    assert (await fleet.sorties(mission))[0].progress == 60

    await fleet.restore(mission_id=mission.id)

    assert (await fleet.sorties(mission))[0].progress == 60


async def test_undoing_a_recovery_removes_what_it_brought_back(fleet):
    mission = await fleet.mission(2)
    start = await fleet.checkpoint(mission)
    fleet.clock.pass_by(HOUR)
    await fleet.do(SortieRemove((await fleet.sorties(mission))[1].id))
    fleet.clock.pass_by(HOUR)
    undo = (await fleet.restore(start)).undo_checkpoint_id
    assert len(await fleet.sorties(mission)) == 2

    await fleet.restore(checkpoint_id=undo)

    assert [sortie.title for sortie in await fleet.sorties(mission)] == ["S0"]


async def test_deleting_a_mission_leaves_the_end_of_the_log_where_it_was(fleet):
    mission = await fleet.mission(1)
    await fleet.do(MissionCancel(mission.id, "over"))
    end = (await fleet.do(EventList())).position

    await fleet.do(MissionDelete(mission.id))

    started = await fleet.do(EventSubscribe(since=end))
    assert started.position == end
    assert (await fleet.do(EventList(since=10**9))).position == end + 1
    (told,) = await fleet.events(kind="mission_deleted")
    assert told.mission_id is None


async def test_deleting_a_mission_serves_who_waits_for_its_lock(fleet, autojump_clock):
    fleet.clock.follow_trio()
    mission = await fleet.mission(1)
    await fleet.lock(mission, "/tmp/shared.py", "spec-1")
    granted = []

    async def wait():
        request = LockAcquire("spec-2", "/tmp/shared.py", mission_id=mission.id, wait_ms=60_000)
        granted.append(await fleet.do(request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await fleet.do(MissionCancel(mission.id, "over"))
        await fleet.do(MissionDelete(mission.id))

    assert [(lock.held_by, lock.mission_id) for lock in granted] == [("spec-2", None)]
    assert trio.current_time() < 60


async def test_an_error_after_the_end_leaves_the_final_checkpoint_the_last(fleet):
    mission = await fleet.mission(1)
    await fleet.complete(mission, 0)
    await fleet.do(MissionComplete(mission.id))
    report = ErrorReport("spec-1", "tool_failure", "Bash", "exit 1", mission.id)

    assert (await fleet.do(report)).checkpoint_id is None
    later = await fleet.checkpoint(mission)

    kept = [await fleet.do(CheckpointGet(each)) for each in await fleet.checkpoint_ids(mission)]
    (final,) = [each.id for each in kept if each.trigger_details == "Mission completed"]
    pruned = await fleet.do(CheckpointPrune(older_than_days=0, dry_run=True))
    assert later.id in [each.id for each in pruned.details]
    assert final not in [each.id for each in pruned.details]


async def test_a_lock_that_was_waited_for_is_granted_once_per_key(fleet, autojump_clock):
    fleet.clock.follow_trio()
    held = await fleet.do(LockAcquire("spec-1", "/tmp/once.py"))
    request = LockAcquire("spec-2", "/tmp/once.py", wait_ms=60_000, idempotency_key="k1")

    async def release():
        await trio.sleep(1)
        await fleet.do(LockRelease(held.id, "spec-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(release)
        first = await fleet.do(request)
    await fleet.do(LockRelease(first.id, "spec-2"))
    again = await fleet.do(request)

    assert again == first
    assert await fleet.locks() == []


async def test_those_who_wait_under_keys_of_their_own_do_not_wait_for_each_other(
    fleet, autojump_clock
):
    fleet.clock.follow_trio()
    for file in ("/tmp/one.py", "/tmp/two.py"):
        await fleet.do(LockAcquire("spec-1", file, timeout_ms=30_000))
    granted = []

    async def wait(file, agent, wait_ms):
        request = LockAcquire(agent, file, wait_ms=wait_ms, idempotency_key=agent)
        granted.append((await fleet.do(request)).held_by)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "/tmp/one.py", "spec-2", 600_000)
        await trio.sleep(1)
        nursery.start_soon(wait, "/tmp/two.py", "spec-3", 600_000)
        await trio.sleep(1)
        (two,) = [lock for lock in await fleet.locks() if lock.file == "/tmp/two.py"]
        await fleet.do(LockRelease(two.id, "spec-1"))
        await trio.sleep(1)
        assert granted == ["spec-3"]

    assert granted == ["spec-3", "spec-2"]


async def test_the_second_of_two_recoveries_leaves_the_first_ones_tokens_good(fleet):
    mission = await fleet.mission(1)
    await fleet.lock(mission, "/tmp/mine.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.restore(checkpoint, requested_by="first")
    (lock,) = await fleet.locks(mission)

    second = await fleet.restore(checkpoint, requested_by="second")

    assert "by first at" in second.warnings[0]
    assert second.restored.locks == 1
    assert (await fleet.do(LockCheck("/tmp/mine.py", lock.fencing_token))).valid


async def test_an_agent_that_left_gets_no_lock_back(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    await fleet.lock(mission, "/tmp/left.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(AgentDeregister("spec-1"))

    result = await fleet.restore(checkpoint)

    assert await fleet.locks() == []
    assert result.restored.locks == 0
    assert result.warnings == ["Lock not restored: /tmp/left.py (spec-1 has left the fleet)"]


async def test_a_takeover_stays_within_its_mission(fleet):
    mission, other = await fleet.mission(1), await fleet.mission(1)
    await fleet.work(mission, 0, "spec-1", 10)
    await fleet.lock(mission, "/tmp/here.py", "spec-1")
    await fleet.lock(other, "/tmp/there.py", "spec-1")
    await fleet.write(other, ["spec-1"], "About the other mission")
    await fleet.checkpoint(mission)

    result = await fleet.restore(
        mission_id=mission.id, agent_id="spec-2", take_over_from="spec-1", scope="agent"
    )

    holders = {lock.file: lock.held_by for lock in await fleet.locks()}
    assert holders == {"/tmp/here.py": "spec-2", "/tmp/there.py": "spec-1"}
    assert result.restored.messages == 0
    assert "About the other mission" not in result.prompt


async def test_a_takeover_from_one_who_was_just_seen_warns_and_counts_it_as_lost(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    await fleet.work(mission, 0, "spec-1", 10)
    checkpoint = await fleet.checkpoint(mission)

    result = await fleet.restore(checkpoint, agent_id="spec-2", take_over_from="spec-1")

    assert "spec-1 was seen 0s ago; if it still runs, stop it" in result.warnings
    assert (await fleet.do(AgentGet("spec-1"))).status == "lost"
    letter = await fleet.do(MessageSend("dispatch-1", ["spec-1"], "Later", mission_id=mission.id))
    assert [delivery.agent_id for delivery in letter.deliveries] == ["spec-2"]


async def test_nobody_takes_over_from_itself_and_strangers_have_no_part(fleet):
    mission = await fleet.mission(1)
    checkpoint = await fleet.checkpoint(mission)

    with pytest.raises(InvalidParams, match="cannot take over from itself"):
        await fleet.restore(checkpoint, agent_id="spec-1", take_over_from="spec-1")
    with pytest.raises(NotFound, match="Agent not found: nobody"):
        await fleet.restore(checkpoint, agent_id="nobody", scope="agent")
    with pytest.raises(InvalidParams, match="force_locks takes other agents' locks"):
        await fleet.restore(checkpoint, agent_id="spec-1", scope="agent", force_locks=True)


async def test_one_agent_does_not_reopen_a_mission(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 0)
    await fleet.do(MissionComplete(mission.id))

    with pytest.raises(InvalidState, match="scope agent cannot reopen it"):
        await fleet.restore(checkpoint, agent_id="spec-1", scope="agent", rewind=True)


async def test_who_works_in_a_projects_directory_belongs_to_its_mission(fleet, tmp_path):
    (tmp_path / "real" / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    mission = await fleet.do(MissionCreate("m", project_dir=str(tmp_path / "link")))
    await fleet.do(MissionStart(mission.id))
    await fleet.mission(1)  # another one in progress, elsewhere
    inside = str(tmp_path / "real" / "src")

    registered = await fleet.do(AgentRegister("spec-1", "specialist", cwd=inside))
    lock = await fleet.do(LockAcquire("somebody", "a.py", cwd=inside))
    current = await fleet.do(MissionCurrent(inside))

    assert registered.agent.mission_id == mission.id
    assert lock.mission_id == mission.id
    assert current.mission is not None
    assert current.mission.id == mission.id


async def test_who_starts_a_sortie_joins_its_mission(fleet):
    mission = await fleet.mission(1)
    await fleet.do(AgentRegister("spec-1", "specialist"))
    await fleet.do(SortieStart((await fleet.sorties(mission))[0].id, "spec-1"))
    await fleet.do(AgentNote("spec-1", next_steps=["Write the test"]))

    assert (await fleet.do(AgentGet("spec-1"))).mission_id == mission.id
    told = await fleet.do(RecoveryContextGet(mission.id, "spec-1"))
    assert told.recovery_context.next_steps[0] == "Write the test"


async def test_many_steps_do_not_push_a_blocker_out(fleet):
    mission = await fleet.mission(300)
    await fleet.agents(mission, "spec-1")
    first = (await fleet.sorties(mission))[0]
    await fleet.do(SortieStart(first.id, "spec-1"))
    await fleet.do(SortieProgress(first.id, 10, "Half of it"))
    await fleet.do(AgentNote("spec-1", blockers=["The schema is missing"]))
    await fleet.checkpoint(mission)

    prompt = (await fleet.do(RecoveryContextGet(mission.id, max_chars=3_000))).prompt

    assert len(prompt) <= 3_000
    assert "The schema is missing" in prompt
    assert "S0 (in progress by spec-1, 10%)" in prompt
    assert f"more: fleetctl sortie list --mission {mission.id})" in prompt
