"""Noticing silence by itself: when, once, with which data, and what does not count as silence."""

from collections.abc import AsyncIterator

import pytest
import trio

from fleetd.config import DetectionSettings
from fleetd.engine import repositories
from fleetd.engine.jobs.liveness import scan
from fleetd.engine.jobs.timers import scan_liveness
from fleetd.protocol.requests.agent import AgentDeregister, AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointGet
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.message import MessageInbox
from fleetd.protocol.requests.mission import MissionComplete, MissionFail
from fleetd.protocol.requests.recovery import (
    RecoveryContextGet,
    RecoveryDetect,
    RecoveryList,
    RecoveryRestore,
)
from fleetd.protocol.requests.system import SystemStatus
from fleetd.protocol.timestamps import iso, to_ms
from tests.support.fleet import DAY, HOUR, MINUTE, SECOND, Clock, Fleet, opened

THRESHOLD = 5 * MINUTE


@pytest.fixture
async def watched(
    fleet: Fleet, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Fleet]:
    """A fleet whose silences are noticed, with trio's time on both of its clocks.

    The test itself must ask for autojump_clock. Git is not asked: virtual time would run on while
    a real process works.
    """

    async def nothing(directory: str | None) -> None:
        return None

    monkeypatch.setattr(repositories, "working_tree", nothing)
    fleet.clock.follow_trio()
    nursery.start_soon(scan_liveness, fleet.engine)
    yield fleet
    nursery.cancel_scope.cancel()


async def pass_by(ms: int) -> None:
    await trio.sleep(ms / 1000)


async def detected(fleet, **more):
    found = await fleet.do(RecoveryDetect(**more))
    return [candidate.mission_id for candidate in found.candidates]


async def compacted(fleet, mission=None):
    return await fleet.events(mission, "context_compacted")


async def report(fleet, agent, kind, **data):
    return await fleet.do(EventAppend(kind, agent_id=agent, data=data))


async def states(fleet):
    return [recovery.state for recovery in (await fleet.do(RecoveryList())).recoveries]


# --- the plan's cases -------------------------------------------------------------------------


@pytest.mark.case("DET-001")
async def test_DET_001_an_active_mission_without_completion_is_detected(fleet):
    found = await fleet.do(RecoveryDetect())
    assert (found.needed, found.candidates) == (False, [])
    mission = await fleet.mission()
    pending = await fleet.mission(start=False)
    fleet.clock.pass_by(THRESHOLD + 1)

    found = await fleet.do(RecoveryDetect())

    assert not found.needed  # there is no checkpoint to recover from
    assert [(c.mission_id, c.checkpoint_id) for c in found.candidates] == [(mission.id, None)]
    assert await detected(fleet, mission_id=pending.id) == []


@pytest.mark.case("DET-002")
async def test_DET_002_a_mission_without_recent_activity_is_detected(fleet):
    quiet, busy = await fleet.mission(), await fleet.mission()
    await fleet.agents(busy, "spec-1")
    fleet.clock.pass_by(10 * MINUTE)
    await report(fleet, "spec-1", "file_modified", file="a.py")

    found = (await fleet.do(RecoveryDetect())).candidates

    assert [candidate.mission_id for candidate in found] == [quiet.id]
    assert found[0].mission_title == quiet.title
    assert found[0].last_activity_at == quiet.last_activity_at
    assert found[0].inactivity_duration_ms == 10 * MINUTE


@pytest.mark.case("DET-003")
async def test_DET_003_the_threshold_is_five_minutes_and_exactly_there_nobody_is_silent(fleet):
    mission = await fleet.mission()

    for passed, expected in ((4 * MINUTE, []), (MINUTE, []), (1, [mission.id])):
        fleet.clock.pass_by(passed)
        assert await detected(fleet) == expected


@pytest.mark.case("DET-003")
async def test_DET_003_the_threshold_can_be_configured(tmp_path):
    async with opened(tmp_path, detection=DetectionSettings(threshold_ms=2_000)) as fleet:
        mission = await fleet.mission()
        fleet.clock.pass_by(2_000)
        assert await detected(fleet) == []
        assert await detected(fleet, threshold_ms=1_999) == [mission.id]
        fleet.clock.pass_by(1)
        assert await detected(fleet) == [mission.id]
        assert await detected(fleet, threshold_ms=3_000) == []


@pytest.mark.case("DET-004")
async def test_DET_004_whoever_starts_up_is_told_what_can_be_recovered(fleet):
    mission = await fleet.mission()
    fleet.clock.pass_by(THRESHOLD + 1)

    recovery = (await fleet.do(AgentRegister("dispatch-1", "dispatch"))).recovery

    assert recovery.needed
    (candidate,) = recovery.candidates
    assert candidate.mission_id == mission.id
    (event,) = await compacted(fleet, mission)
    assert candidate.checkpoint_id == event.data["checkpoint_id"]


@pytest.mark.case("DET-005")
async def test_DET_005_context_compacted_is_emitted_once_with_its_data(watched, autojump_clock):
    mission = await watched.mission()

    await pass_by(THRESHOLD)
    assert await compacted(watched) == []
    await pass_by(SECOND)
    (event,) = await compacted(watched)

    assert to_ms(event.timestamp) - to_ms(mission.last_activity_at) == THRESHOLD + 1
    (checkpoint_id,) = await watched.checkpoint_ids(mission)
    assert event.data == {
        "mission_id": mission.id,
        "last_activity_at": mission.last_activity_at,
        "inactivity_duration_ms": THRESHOLD + 1,
        "checkpoint_available": True,
        "checkpoint_id": checkpoint_id,
    }
    await pass_by(DAY)
    assert len(await compacted(watched)) == 1


@pytest.mark.case("DET-006")
async def test_DET_006_auto_resume_needs_nobody_to_answer(fleet):
    # The command line's part is tests/cli/test_imports.py; this is what it asks for.
    mission = await fleet.mission()
    fleet.clock.pass_by(THRESHOLD + 1)
    registered = await fleet.do(AgentRegister("dispatch-1", "dispatch", mission_id=mission.id))
    (candidate,) = registered.recovery.candidates

    outcome = await fleet.restore(mission_id=candidate.mission_id, agent_id="dispatch-1")

    assert (outcome.success, outcome.checkpoint_id) == (True, candidate.checkpoint_id)
    assert outcome.prompt.startswith("## Recovery Context")


@pytest.mark.case("DET-007")
async def test_DET_007_a_mission_that_is_over_is_not_detected(watched, autojump_clock):
    done, failed = await watched.mission(0), await watched.mission(0)
    await watched.do(MissionComplete(done.id))
    await watched.do(MissionFail(failed.id, "no use"))

    await pass_by(DAY)

    assert await compacted(watched) == []
    assert await detected(watched) == []


@pytest.mark.case("DET-008")
async def test_DET_008_several_silent_missions_each_have_their_own_episode(watched, autojump_clock):
    first = await watched.mission(title="First")
    await pass_by(MINUTE)
    second = await watched.mission(title="Second")
    third = await watched.mission(title="Third")

    await pass_by(THRESHOLD + SECOND)

    told = [event.mission_id for event in await compacted(watched)]
    assert (told[0], sorted(told[1:])) == (first.id, sorted([second.id, third.id]))
    found = await detected(watched)  # the newest silence first
    assert (found[-1], sorted(found[:-1])) == (first.id, sorted([second.id, third.id]))


@pytest.mark.sqlite_only("501 transactions; no statement here that others do not run there")
async def test_however_many_fall_silent_at_once_all_are_noticed_at_once(fleet):
    mission = await fleet.mission(0)
    fleet.sql(
        "WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 500)"
        " INSERT INTO missions (id, title, status, created_at, updated_at, started_at,"
        " last_activity_at, last_activity_seq, active_awake_ms) SELECT 'msn-' || (10000000 + n),"
        " title, status, created_at, updated_at, started_at, last_activity_at, last_activity_seq,"
        " active_awake_ms FROM missions, more"
    )
    fleet.clock.pass_by(THRESHOLD + 1)

    await scan(fleet.engine)

    noticed = {event.mission_id for event in await compacted(fleet)}
    assert len(noticed) == 501
    assert mission.id in noticed


# --- the detection scenarios of the second document --------------------------------------------


async def test_detection_1_detect_stale_mission_with_checkpoint(fleet):
    mission = await fleet.mission()
    checkpoint = await fleet.checkpoint(mission)
    fleet.clock.pass_by(THRESHOLD + 1)

    found = await fleet.do(RecoveryDetect())

    assert found.needed
    assert found.candidates[0].checkpoint_id == checkpoint.id
    assert found.candidates[0].checkpoint_progress == 0
    assert found.candidates[0].checkpoint_timestamp == checkpoint.timestamp


async def test_detection_3_ignore_active_missions_with_recent_activity(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")

    for _ in range(10):
        await pass_by(4 * MINUTE)
        await report(watched, "spec-1", "file_modified", file="a.py")

    assert await compacted(watched) == []


async def test_detection_8_a_mission_with_no_events_counts_from_its_start(fleet):
    mission = await fleet.mission()
    fleet.sql("DELETE FROM events")
    fleet.sql("UPDATE missions SET last_activity_at = NULL")
    fleet.clock.pass_by(THRESHOLD + 1)

    (candidate,) = (await fleet.do(RecoveryDetect())).candidates

    assert (candidate.mission_id, candidate.last_activity_at) == (mission.id, mission.started_at)


# --- the checkpoint at silence ------------------------------------------------------------------


async def test_silence_takes_a_checkpoint_of_what_is_there(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await watched.work(mission, 0, "spec-1", notes="half of the parser")

    await pass_by(THRESHOLD + SECOND)

    (event,) = await compacted(watched)
    taken = await watched.do(CheckpointGet(event.data["checkpoint_id"]))
    assert (taken.trigger, taken.trigger_details) == ("compaction", "Mission fell silent")
    assert (taken.created_by, taken.undo) == ("fleetd", False)
    assert taken.sorties[0].progress_notes == "half of the parser"


@pytest.mark.parametrize("trigger", ["manual", "milestone"])
async def test_silence_takes_none_when_nothing_was_done_since_the_last(
    watched, autojump_clock, trigger
):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    if trigger == "manual":
        await watched.checkpoint(mission)
    else:
        await watched.complete(mission, 0)
    (known,) = await watched.checkpoint_ids(mission)

    await pass_by(THRESHOLD + SECOND)

    (event,) = await compacted(watched)
    assert event.data["checkpoint_id"] == known
    assert await watched.checkpoint_ids(mission) == [known]


async def test_an_undo_checkpoint_does_not_stand_for_the_state_at_silence(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    checkpoint = await watched.checkpoint(mission)
    await watched.work(mission, 0, "spec-1")
    undo = (await watched.restore(checkpoint)).undo_checkpoint_id
    assert undo is not None
    await watched.work(mission, 1, "spec-1")

    await pass_by(THRESHOLD + SECOND)

    (event,) = await compacted(watched)
    assert event.data["checkpoint_id"] not in (undo, checkpoint.id)


async def test_a_silence_that_cannot_be_kept_does_not_hide_the_others(watched, autojump_clock):
    broken, other = await watched.mission(title="Broken"), await watched.mission(title="Other")
    await watched.agents(broken, "spec-1")
    watched.sql("UPDATE sorties SET files_json = '{' WHERE mission_id = :id", id=broken.id)

    await pass_by(THRESHOLD + SECOND)

    assert [event.mission_id for event in await compacted(watched)] == [other.id]


# --- episodes -----------------------------------------------------------------------------------


async def test_new_activity_ends_the_episode_and_the_next_silence_is_another(
    watched, autojump_clock
):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await pass_by(THRESHOLD + SECOND)
    await report(watched, "spec-1", "file_modified", file="a.py")
    assert await detected(watched) == []

    await pass_by(THRESHOLD + SECOND)

    assert len(await compacted(watched, mission)) == 2
    assert len(await watched.checkpoint_ids(mission)) == 2


async def test_what_the_daemon_says_itself_is_no_activity(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "dispatch-1", "spec-1")
    await watched.write(mission, ["spec-1"])
    await pass_by(4 * MINUTE)
    await watched.do(MessageInbox("spec-1"))  # delivers
    await watched.do(RecoveryContextGet(mission.id))
    await watched.do(SystemStatus())

    await pass_by(MINUTE + SECOND)

    assert len(await compacted(watched)) == 1
    await pass_by(HOUR)  # nor do the checkpoint and the event at silence end it
    assert len(await compacted(watched)) == 1
    assert await detected(watched) == [mission.id]


async def test_a_silence_is_noticed_once_however_many_look(watched, autojump_clock):
    mission = await watched.mission()
    await pass_by(THRESHOLD + SECOND)

    async with trio.open_nursery() as nursery:
        for n in range(5):
            nursery.start_soon(watched.do, AgentRegister(f"spec-{n}", "specialist"))

    assert len(await compacted(watched, mission)) == 1


async def test_an_episode_survives_a_restart_of_the_daemon(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
        clock.pass_by(THRESHOLD + 1)
        await fleet.do(AgentRegister("spec-1", "specialist"))
        assert len(await compacted(fleet, mission)) == 1

    async with opened(tmp_path, clock=clock) as fleet:
        clock.pass_by(THRESHOLD)
        await fleet.do(AgentRegister("spec-2", "specialist"))
        assert len(await compacted(fleet, mission)) == 1


async def test_a_silence_that_passed_while_no_daemon_ran_is_noticed_at_the_start(
    tmp_path, autojump_clock, nursery
):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
    clock.pass_by(THRESHOLD + 1)

    async with opened(tmp_path, clock=clock) as fleet:
        nursery.start_soon(scan_liveness, fleet.engine)
        await fleet.settle()
        (event,) = await compacted(fleet, mission)
        assert event.data["inactivity_duration_ms"] == THRESHOLD + 1
        nursery.cancel_scope.cancel()


async def test_a_mission_that_starts_while_nothing_else_is_going_on_is_watched(
    watched, autojump_clock
):
    await pass_by(7 * MINUTE + 123)
    mission = await watched.mission()

    await pass_by(THRESHOLD + SECOND)

    (event,) = await compacted(watched, mission)
    assert event.data["inactivity_duration_ms"] == THRESHOLD + 1


# --- clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_stepped_wall_clock_neither_causes_nor_hides_silence(watched, autojump_clock, step):
    mission = await watched.mission()
    await pass_by(MINUTE)

    watched.clock.step(step)

    await pass_by(3 * MINUTE)
    assert await compacted(watched) == []
    assert await detected(watched) == []
    await pass_by(MINUTE + SECOND)
    (event,) = await compacted(watched, mission)
    assert event.data["inactivity_duration_ms"] == THRESHOLD + 1
    assert event.data["last_activity_at"] == mission.last_activity_at


async def test_time_in_which_the_machine_was_suspended_does_not_count(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
        clock.pass_by(4 * MINUTE)
        clock.suspend(8 * HOUR)
        assert await detected(fleet) == []

    async with opened(tmp_path, clock=clock) as fleet:  # nor does it after a restart of the daemon
        clock.pass_by(MINUTE)
        assert await detected(fleet) == []
        clock.pass_by(1)
        assert await detected(fleet) == [mission.id]


async def test_after_a_restart_of_the_machine_the_time_it_was_off_counts(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
        clock.pass_by(MINUTE)
    clock.reboot(off_ms=3 * MINUTE)

    async with opened(tmp_path, clock=clock) as fleet:
        assert await detected(fleet) == []
        clock.pass_by(MINUTE + 1)
        (candidate,) = (await fleet.do(RecoveryDetect())).candidates
        assert candidate.mission_id == mission.id
        assert candidate.inactivity_duration_ms == THRESHOLD + 1


async def test_a_silence_from_before_the_machine_was_restarted_is_noticed_at_the_start(
    tmp_path, nursery
):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
    clock.reboot(off_ms=HOUR)

    async with opened(tmp_path, clock=clock) as fleet:
        nursery.start_soon(scan_liveness, fleet.engine)
        await fleet.settle()
        (event,) = await compacted(fleet, mission)
        assert event.data["inactivity_duration_ms"] == HOUR
        nursery.cancel_scope.cancel()


async def test_after_a_restart_with_a_clock_set_back_silence_is_still_noticed(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
    clock.reboot()
    clock.step(-30 * DAY)
    clock.pass_by(2 * MINUTE)

    async with opened(tmp_path, clock=clock) as fleet:
        clock.pass_by(3 * MINUTE)
        assert await detected(fleet) == []
        clock.pass_by(1)
        assert await detected(fleet) == [mission.id]


async def test_who_was_lost_before_the_machine_was_restarted_does_not_end_the_idleness_of_others(
    tmp_path,
):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
        await fleet.agents(mission, "spec-1", "spec-2")
        fleet.sql("UPDATE agents SET status = 'lost' WHERE id = 'spec-1'")
    clock.reboot()

    async with opened(tmp_path, clock=clock) as fleet:
        clock.pass_by(MINUTE)
        await fleet.agents(mission, "spec-2")
        await fleet.do(EventAppend("agent_paused", agent_id="spec-2"))
        clock.pass_by(HOUR)
        assert await detected(fleet) == []


async def test_a_database_from_before_there_was_an_awake_clock_keeps_its_silences(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
        fleet.sql("UPDATE missions SET active_awake_ms = 0")
        fleet.sql("DELETE FROM store_meta WHERE key = 'boot'")
    clock.pass_by(THRESHOLD)

    async with opened(tmp_path, clock=clock) as fleet:
        assert await detected(fleet) == []
        clock.pass_by(1)
        assert await detected(fleet) == [mission.id]


# --- what is no silence -------------------------------------------------------------------------


async def test_an_open_tool_call_is_no_silence(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await report(watched, "spec-1", "command_started", command="make", call_id="t1")

    for _ in range(10):
        await pass_by(4 * MINUTE)
        await watched.do(AgentHeartbeat("spec-1"))
    assert await compacted(watched, mission) == []

    await report(watched, "spec-1", "command_finished", command="make", call_id="t1")
    await pass_by(THRESHOLD + SECOND)
    assert len(await compacted(watched, mission)) == 1


async def test_a_tool_call_of_an_agent_that_is_lost_excuses_nothing(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await report(watched, "spec-1", "command_started", command="make")

    await pass_by(THRESHOLD + SECOND)

    assert [event.agent_id for event in await watched.events(mission, "agent_lost")] == ["spec-1"]
    assert len(await compacted(watched, mission)) == 1


async def test_a_tool_call_that_is_open_for_more_than_an_hour_was_forgotten(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    await report(fleet, "spec-1", "command_started", command="sleep 1d")

    fleet.clock.pass_by(60 * MINUTE)
    assert await detected(fleet) == []
    fleet.clock.pass_by(1)
    assert await detected(fleet) == [mission.id]


async def test_of_two_open_calls_the_end_of_one_leaves_the_other(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    await report(fleet, "spec-1", "command_started", command="a", call_id="a")
    await report(fleet, "spec-1", "command_started", command="b", call_id="b")
    await report(fleet, "spec-1", "tool_failed", name="Bash", call_id="a")
    fleet.clock.pass_by(THRESHOLD + 1)

    assert await detected(fleet) == []
    await report(fleet, "spec-1", "command_finished", command="b", call_id="b")
    fleet.clock.pass_by(THRESHOLD + 1)
    assert await detected(fleet) == [mission.id]


@pytest.mark.parametrize("end", ["prompt_submitted", "register", "deregister"])
async def test_a_turn_that_is_over_has_no_open_calls(fleet, end):
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    await report(fleet, "spec-1", "command_started", command="make")
    if end == "register":
        await fleet.agents(mission, "spec-1")
    elif end == "deregister":
        await fleet.do(AgentDeregister("spec-1"))
    else:
        await report(fleet, "spec-1", end, prompt="Stop. Do the docs first.")
    fleet.clock.pass_by(THRESHOLD + 1)

    assert await detected(fleet) == [mission.id]


async def test_a_call_of_an_agent_that_nobody_knows_is_just_an_event(fleet):
    mission = await fleet.mission()
    await fleet.do(EventAppend("command_started", mission.id, "stranger", {"command": "make"}))
    fleet.clock.pass_by(THRESHOLD + 1)

    assert await detected(fleet) == [mission.id]


async def test_agents_that_wait_for_their_user_are_idle_and_not_silent(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "dispatch-1", "spec-1")
    await report(watched, "spec-1", "agent_paused")
    await pass_by(4 * MINUTE)
    await report(watched, "dispatch-1", "agent_paused")

    await pass_by(8 * HOUR)
    assert await compacted(watched) == []

    await report(watched, "spec-1", "prompt_submitted", prompt="Go on")
    await pass_by(THRESHOLD + SECOND)
    assert len(await compacted(watched, mission)) == 1


async def test_pausing_is_not_what_an_agent_did_last(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    await report(fleet, "spec-1", "file_modified", file="a.py")
    await report(fleet, "spec-1", "agent_paused")

    told = await fleet.do(RecoveryContextGet(mission.id))

    assert told.recovery_context.last_action == "spec-1 edited a.py"


async def test_an_agent_that_was_lost_long_ago_does_not_end_the_idleness_of_others(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "dispatch-1", "spec-1")
    await report(fleet, "spec-1", "file_modified", file="a.py")
    fleet.clock.pass_by(MINUTE)
    await report(fleet, "dispatch-1", "agent_paused")
    fleet.sql("UPDATE agents SET status = 'lost' WHERE id = 'spec-1'")
    fleet.clock.pass_by(HOUR)

    assert await detected(fleet) == []


async def test_one_agent_at_work_is_enough_for_silence_to_mean_something(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "dispatch-1", "spec-1")
    await report(fleet, "dispatch-1", "agent_paused")
    fleet.clock.pass_by(THRESHOLD + 1)

    assert await detected(fleet) == [mission.id]


# --- the states of a recovery -------------------------------------------------------------------


async def test_a_recovery_is_pending_when_detected(watched, autojump_clock):
    mission = await watched.mission()
    await pass_by(THRESHOLD + SECOND)

    (recovery,) = (await watched.do(SystemStatus())).recoveries

    (compaction,) = await compacted(watched)
    assert (recovery.mission_id, recovery.state) == (mission.id, "pending")
    assert recovery.checkpoint_id == compaction.data["checkpoint_id"]
    assert (recovery.requested_by, recovery.briefed_at) == ("fleetd", None)
    (event,) = await watched.events(mission, "recovery_available")
    assert event.data == {"recovery_id": recovery.id, "checkpoint_id": recovery.checkpoint_id}


async def test_a_recovery_is_briefed_then_resumed_at_the_first_activity(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await pass_by(THRESHOLD + SECOND)
    (pending,) = (await watched.do(RecoveryList())).recoveries

    outcome = await watched.restore(agent_id="spec-1")

    assert outcome.recovery_id == pending.id  # the one that was pending, not another
    assert await states(watched) == ["briefed"]
    await pass_by(MINUTE)
    await report(watched, "spec-1", "file_modified", file="a.py")
    (resumed,) = (await watched.do(RecoveryList())).recoveries
    assert (resumed.state, resumed.agent_id) == ("resumed", "spec-1")
    assert to_ms(resumed.resumed_at) - to_ms(resumed.briefed_at) == MINUTE
    assert len(await watched.events(mission, "recovery_confirmed")) == 1
    assert (await watched.do(SystemStatus())).recoveries == []


async def test_a_recovery_that_nobody_follows_is_unconfirmed_after_five_minutes(
    watched, autojump_clock
):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await watched.checkpoint(mission)
    await watched.restore(agent_id="spec-1")

    await pass_by(THRESHOLD)
    assert await states(watched) == ["briefed"]
    await pass_by(SECOND)

    assert "unconfirmed" in await states(watched)
    (event,) = await watched.events(mission, "recovery_unconfirmed")
    assert event.agent_id == "spec-1"
    await pass_by(HOUR)
    assert len(await watched.events(mission, "recovery_unconfirmed")) == 1


async def test_a_recovery_of_a_mission_that_is_over_is_under_way_no_more(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    await fleet.checkpoint(mission)
    await fleet.restore(agent_id="spec-1")
    assert len((await fleet.do(SystemStatus())).recoveries) == 1

    await fleet.complete(mission, 0)
    await fleet.do(MissionComplete(mission.id))

    assert (await fleet.do(SystemStatus())).recoveries == []
    assert len((await fleet.do(RecoveryList(mission.id))).recoveries) == 1


async def test_nobody_waits_for_the_briefed_when_the_mission_is_over(watched, autojump_clock):
    mission = await watched.mission(0)
    await watched.agents(mission, "spec-1")
    await watched.checkpoint(mission)
    await watched.restore(agent_id="spec-1")
    await watched.do(MissionComplete(mission.id))

    await pass_by(HOUR)

    assert await watched.events(mission, "recovery_unconfirmed") == []


async def test_an_agent_that_leaves_a_mission_for_another_excuses_the_first_no_longer(fleet):
    first, second = await fleet.mission(title="First"), await fleet.mission(title="Second")
    await fleet.agents(first, "spec-1")
    await report(fleet, "spec-1", "agent_paused")
    fleet.clock.pass_by(THRESHOLD + 1)
    await fleet.checkpoint(second)
    assert await compacted(fleet) == []

    await fleet.agents(second, "spec-1")

    assert [event.mission_id for event in await compacted(fleet)] == [first.id]


async def test_a_late_first_activity_still_confirms(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await pass_by(THRESHOLD + SECOND)
    await watched.restore(agent_id="spec-1")
    await pass_by(HOUR)
    assert await states(watched) == ["unconfirmed"]

    await report(watched, "spec-1", "file_modified", file="a.py")

    assert await states(watched) == ["resumed"]


async def test_others_at_work_do_not_confirm_the_briefing_of_one(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1", "spec-2")
    await watched.checkpoint(mission)
    await watched.restore(agent_id="spec-1", scope="agent")

    await report(watched, "spec-2", "file_modified", file="b.py")

    assert await states(watched) == ["briefed"]


async def test_a_mission_that_goes_on_without_a_briefing_waits_no_longer(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await pass_by(THRESHOLD + SECOND)
    assert await states(watched) == ["pending"]

    await watched.agents(mission, "spec-1")  # it may be about to ask for the recovery
    assert await states(watched) == ["pending"]
    await report(watched, "spec-1", "file_modified", file="a.py")

    (recovery,) = (await watched.do(RecoveryList())).recoveries
    assert (recovery.state, recovery.briefed_at) == ("resumed", None)


async def test_a_dry_run_leaves_the_pending_recovery_pending(watched, autojump_clock):
    await watched.mission()
    await pass_by(THRESHOLD + SECOND)

    await watched.do(RecoveryRestore(dry_run=True))

    assert await states(watched) == ["pending"]


async def test_after_silence_the_recovery_changes_nothing_but_briefs(watched, autojump_clock):
    mission = await watched.mission()
    await watched.agents(mission, "spec-1")
    await watched.work(mission, 0, "spec-1")
    await pass_by(THRESHOLD + SECOND)
    before = await watched.sorties(mission)

    outcome = await watched.restore()

    assert outcome.mission_id == mission.id
    assert (outcome.changed, outcome.undo_checkpoint_id) == ([], None)
    after = await watched.sorties(mission)
    assert [(s.status, s.progress) for s in after] == [(s.status, s.progress) for s in before]


async def test_a_reopened_mission_is_silent_only_when_its_time_has_passed_again(fleet):
    mission = await fleet.mission()
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(MissionFail(mission.id, "no use"))
    fleet.clock.pass_by(HOUR)

    await fleet.restore(checkpoint, rewind=True)

    assert await detected(fleet) == []
    fleet.clock.pass_by(THRESHOLD + 1)
    assert await detected(fleet) == [mission.id]


async def test_the_status_tells_silence_by_the_awake_clock(fleet):
    await fleet.mission()
    fleet.clock.pass_by(MINUTE)
    fleet.clock.step(HOUR)

    (line,) = (await fleet.do(SystemStatus())).missions

    assert line.silence_ms == MINUTE
    assert line.last_activity_at == iso(fleet.clock() - HOUR - MINUTE)


# --- each agent that comes back -----------------------------------------------------------------


async def returns(fleet, agent):
    """Register an agent again; return what waits, as mission and agent."""
    found = await fleet.do(AgentRegister(agent, "specialist"))
    return [(each.mission_id, each.agent_id) for each in found.recovery.candidates]


async def silent_pair(fleet):
    """Return a mission of two agents that has fallen silent."""
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1", "spec-2")
    await fleet.work(mission, 0, "spec-1")
    await fleet.work(mission, 1, "spec-2")
    fleet.clock.pass_by(THRESHOLD + 1)
    return mission


async def test_each_agent_of_a_silent_mission_is_told_when_it_comes_back(fleet):
    mission = await silent_pair(fleet)

    assert await returns(fleet, "spec-1") == [(mission.id, None)]
    await fleet.restore(mission_id=mission.id, agent_id="spec-1")
    await report(fleet, "spec-1", "file_modified", file="a.py")

    assert await returns(fleet, "spec-2") == [(mission.id, "spec-2")]
    await fleet.restore(mission_id=mission.id, agent_id="spec-2", scope="agent")
    assert await returns(fleet, "spec-2") == []
    assert await returns(fleet, "spec-1") == []


async def test_an_agent_that_came_back_and_was_not_briefed_is_told_again(fleet):
    mission = await silent_pair(fleet)

    assert await returns(fleet, "spec-1") == [(mission.id, None)]
    assert await returns(fleet, "spec-1") == [(mission.id, None)]
    assert await detected(fleet) == [mission.id]  # a bare resume finds it too
    await report(fleet, "spec-1", "file_modified", file="a.py")

    assert await returns(fleet, "spec-1") == []
    assert await detected(fleet) == []


async def test_a_lost_agent_is_told_also_when_the_others_never_stopped(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1", "spec-2")
    await fleet.work(mission, 1, "spec-2")
    fleet.sql("UPDATE agents SET status = 'lost' WHERE id = 'spec-2'")
    await report(fleet, "spec-1", "file_modified", file="a.py")

    found = (await fleet.do(AgentRegister("spec-2", "specialist"))).recovery

    assert [(each.mission_id, each.agent_id) for each in found.candidates] == [
        (mission.id, "spec-2")
    ]
    assert found.candidates[0].checkpoint_id is None
    assert not found.needed


async def test_an_agent_whose_work_went_to_another_has_no_part_left(fleet):
    mission = await silent_pair(fleet)
    await fleet.agents(mission, "spec-3")
    await fleet.restore(
        mission_id=mission.id, agent_id="spec-3", take_over_from="spec-2", scope="agent"
    )
    await report(fleet, "spec-3", "file_modified", file="b.py")

    assert await returns(fleet, "spec-2") == []


async def test_an_agent_that_starts_up_is_told_of_the_newest_silences_only(fleet):
    missions = [await fleet.mission(0, title=f"M{n}") for n in range(25)]
    fleet.clock.pass_by(THRESHOLD + 1)

    told = await returns(fleet, "new")

    assert len(told) == 20
    assert {mission_id for mission_id, _ in told} < {mission.id for mission in missions}
    assert len(await detected(fleet)) == 25
