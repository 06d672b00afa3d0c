"""Agents that end without a word: noticed, the state kept, their locks given up after a grace."""

import pytest
import trio

from fleetd.domain.agents import agent_loss
from fleetd.engine import repositories
from fleetd.engine.jobs import timers
from fleetd.protocol.errors import LockConflict, Storage
from fleetd.protocol.requests.agent import AgentGet, AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointGet
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire, LockCheck
from fleetd.protocol.requests.mission import MissionSelect
from fleetd.protocol.requests.recovery import RecoveryDetect
from fleetd.protocol.requests.sortie import SortieProgress
from fleetd.protocol.requests.system import SystemStatus
from fleetd.protocol.timestamps import to_ms
from tests.support.fleet import HOUR, MINUTE, SECOND, opened

UNHEARD = 5 * MINUTE
GRACE = 60 * SECOND


async def until(condition):
    """Wait, in real time, for what another process has a part in."""
    with trio.fail_after(10):
        while not await condition():  # noqa: ASYNC110 - a process of its own decides
            await trio.sleep(0.01)


async def status(fleet, agent):
    return (await fleet.do(AgentGet(agent))).status


async def lost(fleet, mission=None):
    return await fleet.events(mission, "agent_lost")


async def start(fleet, mission, agent, process):
    await fleet.do(AgentRegister(agent, "specialist", pid=process.pid, mission_id=mission.id))


def end(process):
    process.kill()
    process.wait()


@pytest.fixture
async def watching(fleet, nursery):
    """A fleet whose processes are watched, in real time: they are real."""
    nursery.start_soon(timers.watch_processes, fleet.engine)
    yield fleet
    nursery.cancel_scope.cancel()


async def test_an_agent_whose_process_dies_is_lost(watching, mortal):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)

    end(process)
    await until(lambda: lost(watching))

    (event,) = await lost(watching, mission)
    assert (event.agent_id, event.data) == ("spec-1", {"reason": f"process {process.pid} is gone"})
    assert await status(watching, "spec-1") == "lost"


async def test_a_lost_agent_leaves_an_error_checkpoint_with_its_locks(watching, mortal):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)
    await watching.work(mission, 0, "spec-1")
    await watching.lock(mission, "/srv/a.py", "spec-1")

    end(process)
    await until(lambda: watching.checkpoint_ids(mission))

    (checkpoint_id,) = await watching.checkpoint_ids(mission, "error")
    kept = await watching.do(CheckpointGet(checkpoint_id))
    told = f"spec-1 ended without notice (process {process.pid} is gone)"
    assert kept.trigger_details == f"AgentLost: {told}"
    assert kept.recovery_context.blockers[0] == f"Error: {told}"
    assert kept.created_by == "fleetd"
    assert [lock.held_by for lock in kept.active_locks] == ["spec-1"]
    assert kept.sorties[0].assigned_to == "spec-1"


async def test_a_process_that_ends_after_its_agent_left_or_came_back_means_nothing(
    watching, mortal
):
    mission, first, second = await watching.mission(), mortal(), mortal()
    await start(watching, mission, "spec-1", first)
    await start(watching, mission, "spec-1", second)

    end(first)
    await until(lambda: _no_longer_watched(watching, first))

    assert await lost(watching) == []
    assert await status(watching, "spec-1") == "active"


async def _no_longer_watched(fleet, process):
    return all(work.pid != process.pid for work in fleet.engine.process_watcher._watched)


async def test_a_process_that_ended_while_no_daemon_ran_is_noticed_at_the_start(
    tmp_path, mortal, nursery
):
    process = mortal()
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        await start(fleet, mission, "spec-1", process)
    end(process)

    async with opened(tmp_path) as fleet:
        nursery.start_soon(timers.watch_processes, fleet.engine)
        await until(lambda: lost(fleet))
        assert await status(fleet, "spec-1") == "lost"
        nursery.cancel_scope.cancel()


async def test_where_the_system_has_no_descriptors_for_processes_they_are_asked_for(
    watching, mortal, monkeypatch
):
    monkeypatch.delattr("os.pidfd_open")
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)

    end(process)

    await until(lambda: lost(watching, mission))
    assert await status(watching, "spec-1") == "lost"


async def test_the_loss_of_the_last_one_at_work_can_end_an_excuse(watching, mortal):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)
    await watching.do(EventAppend("command_started", agent_id="spec-1", data={"command": "make"}))
    watching.clock.pass_by(10 * MINUTE)
    assert not (await watching.do(RecoveryDetect())).candidates

    end(process)

    await until(lambda: watching.events(mission, "context_compacted"))


async def test_a_loss_that_cannot_be_noted_now_is_noted_later(
    watching, mortal, monkeypatch, caplog
):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)
    monkeypatch.setattr(timers, "PAUSE_S", 0.01)
    write, refusals = watching.engine.write, iter(range(2))

    async def full(rule, *rest):
        if rule is agent_loss.process_ended and next(refusals, None) is not None:
            raise Storage("The disk is full.")
        return await write(rule, *rest)

    monkeypatch.setattr(watching.engine, "write", full)
    end(process)
    await until(lambda: lost(watching, mission))

    assert caplog.text.count("ProcessEnded is postponed: The disk is full.") == 2


# --- lost with work left open -------------------------------------------------------------------


async def waiting(fleet):
    """Return what the status lists under "Waiting for recovery"."""
    return (await fleet.do(SystemStatus())).candidates


async def lose(fleet, process, number=1):
    end(process)

    async def noticed():
        return len(await lost(fleet)) == number

    await until(noticed)


async def test_a_lost_agent_with_open_work_waits_for_recovery_at_once_as_agent_lost(
    watching, mortal
):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)
    await watching.work(mission, 0, "spec-1")
    assert await waiting(watching) == []

    await lose(watching, process)

    (each,) = await waiting(watching)
    assert (each.mission_id, each.reason, each.lost_agents) == (
        mission.id,
        "agent_lost",
        ["spec-1"],
    )
    assert (each.checkpoint_id,) == (*await watching.checkpoint_ids(mission),)
    assert (each.agent_id, each.project_dir) == (None, str(watching.project))
    # What counts as silence stays as it is: DET-002, DET-003.
    assert (await watching.do(RecoveryDetect())).candidates == []
    assert await watching.events(mission, "context_compacted") == []


async def test_the_directory_s_mission_of_a_lost_agent_is_the_one_to_resume(watching, mortal):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)
    await lose(watching, process)
    busy = await watching.mission(title="At work")
    await watching.checkpoint(busy)

    request = MissionSelect("recovery", str(watching.project))
    found = await watching.do(request)

    assert (found.mission.id, found.reason) == (mission.id, "directory")
    assert [each.reason for each in found.candidates] == ["agent_lost"]


async def test_what_a_lost_agent_left_open_while_others_go_on_is_only_its_part(watching, mortal):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)
    await watching.agents(mission, "spec-2")
    await watching.work(mission, 0, "spec-1")

    await lose(watching, process)

    (each,) = await waiting(watching)
    assert (each.reason, each.agent_id) == ("agent_lost", "spec-1")
    # By itself nobody brings the whole mission back, at which others work.
    found = await watching.do(MissionSelect("recovery", str(watching.project)))
    assert (found.mission.id, found.candidates) == (mission.id, [])
    await watching.restore(
        mission_id=mission.id, agent_id="spec-2", take_over_from="spec-1", scope="agent"
    )
    assert await waiting(watching) == []


async def test_a_lost_agent_that_left_nothing_open_waits_for_nothing(watching, mortal):
    mission, done, helper = await watching.mission(1), mortal(), mortal()
    await start(watching, mission, "spec-1", done)
    await start(watching, mission, "spec-2", helper)
    await watching.lock(mission, "/srv/a.py", "spec-2")
    await lose(watching, helper)
    assert await waiting(watching) == []  # the other one goes on, and no sortie was spec-2's

    await watching.work(mission, 0, "spec-1")
    await watching.complete(mission, 0)
    await lose(watching, done, 2)
    assert await waiting(watching) == []


async def test_a_lost_agent_waits_no_longer_when_it_is_back_or_its_mission_was_recovered(
    watching, mortal
):
    mission, process = await watching.mission(), mortal()
    await start(watching, mission, "spec-1", process)
    await watching.work(mission, 0, "spec-1")
    await lose(watching, process)
    assert await waiting(watching)

    again = mortal()
    await start(watching, mission, "spec-1", again)
    assert await waiting(watching) == []
    await lose(watching, again, 2)
    assert await waiting(watching)
    await watching.restore(mission_id=mission.id)

    assert await waiting(watching) == []


# --- orphaned locks -----------------------------------------------------------------------------


async def orphan(fleet, mortal, file="/srv/a.py"):
    """Let an agent die while it holds a file; returns the mission and the lock."""
    mission, process = await fleet.mission(), mortal()
    await start(fleet, mission, "spec-1", process)
    lock = await fleet.lock(mission, file, "spec-1")
    end(process)
    await until(lambda: lost(fleet))
    return mission, lock


async def test_the_locks_of_a_dead_agent_stand_for_a_grace_of_a_minute(watching, mortal):
    mission, lock = await orphan(watching, mortal)

    (held,) = await watching.locks(mission)
    assert to_ms(held.expires_at) == watching.clock() + GRACE
    assert (await watching.do(LockCheck("/srv/a.py", lock.fencing_token))).valid
    watching.clock.pass_by(GRACE - 1)
    with pytest.raises(LockConflict):
        await watching.do(LockAcquire("spec-2", "/srv/a.py"))
    watching.clock.pass_by(1)

    taken = await watching.do(LockAcquire("spec-2", "/srv/a.py"))

    assert taken.fencing_token > lock.fencing_token
    assert not (await watching.do(LockCheck("/srv/a.py", lock.fencing_token))).valid


async def test_an_agent_that_registers_again_within_the_grace_keeps_its_locks(watching, mortal):
    mission, lock = await orphan(watching, mortal)
    watching.clock.pass_by(30 * SECOND)

    await start(watching, mission, "spec-1", mortal())

    (held,) = await watching.locks(mission)
    assert (held.id, held.fencing_token) == (lock.id, lock.fencing_token)
    assert to_ms(held.expires_at) == watching.clock() + lock.timeout_ms
    watching.clock.pass_by(9 * MINUTE)
    await watching.do(EventAppend("file_modified", agent_id="spec-1", data={"file": "a.py"}))
    (held,) = await watching.locks(mission)  # and its activity renews them as before
    assert to_ms(held.expires_at) == watching.clock() + lock.timeout_ms


async def test_work_reported_in_the_name_of_the_dead_does_not_keep_its_locks(watching, mortal):
    mission, _ = await orphan(watching, mortal)
    (sortie, *_) = await watching.sorties(mission)
    watching.clock.pass_by(30 * SECOND)

    await watching.do(SortieProgress(sortie.id, 50, agent_id="spec-1"))

    watching.clock.pass_by(30 * SECOND)
    assert await watching.locks(mission) == []
    assert await status(watching, "spec-1") == "lost"


async def test_a_lock_that_is_asked_for_again_is_no_orphan(watching, mortal):
    _, lock = await orphan(watching, mortal)

    again = await watching.do(LockAcquire("spec-1", "/srv/a.py"))

    assert again.id == lock.id
    assert to_ms(again.expires_at) == watching.clock() + again.timeout_ms
    assert watching.sql("SELECT orphaned_at FROM locks") == [{"orphaned_at": None}]


async def test_the_next_recovery_gives_orphaned_locks_back_or_names_them(watching, mortal):
    mission, _ = await orphan(watching, mortal)
    watching.clock.pass_by(GRACE)
    await watching.do(LockAcquire("spec-2", "/srv/a.py", mission_id=mission.id))

    outcome = await watching.restore(mission_id=mission.id)

    assert outcome.errors == ["Lock conflict: /srv/a.py held by spec-2"]
    assert "Lock released: /srv/a.py (spec-1 was lost while holding it)" in outcome.warnings
    again = await watching.restore(mission_id=mission.id)
    assert not [warning for warning in again.warnings if warning.startswith("Lock released")]


# --- heartbeats -----------------------------------------------------------------------------------


@pytest.fixture
async def virtual(fleet, nursery, monkeypatch):
    """A fleet whose heartbeats are waited for; the test itself must ask for autojump_clock."""

    async def nothing(directory):
        return None

    monkeypatch.setattr(repositories, "working_tree", nothing)
    fleet.clock.follow_trio()
    nursery.start_soon(timers.scan_liveness, fleet.engine)
    yield fleet
    nursery.cancel_scope.cancel()


async def test_an_agent_without_a_process_is_lost_after_five_minutes_unheard(
    virtual, autojump_clock
):
    mission = await virtual.mission()
    await virtual.agents(mission, "spec-1")

    await trio.sleep(UNHEARD / 1000)
    assert await lost(virtual) == []
    await trio.sleep(1)

    (event,) = await lost(virtual, mission)
    assert event.agent_id == "spec-1"
    assert event.data == {"reason": "no heartbeat for 5m 0s"}
    assert await status(virtual, "spec-1") == "lost"


async def test_heartbeats_keep_an_agent_alive_and_its_mission_as_silent_as_it_is(
    virtual, autojump_clock
):
    mission = await virtual.mission()
    await virtual.agents(mission, "spec-1")

    for _ in range(10):
        await trio.sleep(60)
        await virtual.do(AgentHeartbeat("spec-1"))

    assert await lost(virtual) == []
    assert len(await virtual.events(mission, "context_compacted")) == 1


@pytest.mark.parametrize("sign", ["heartbeat", "activity"])
async def test_a_sign_of_life_brings_an_unheard_agent_back(virtual, autojump_clock, sign):
    mission = await virtual.mission()
    await virtual.agents(mission, "spec-1")
    await trio.sleep(UNHEARD / 1000 + 1)
    assert await status(virtual, "spec-1") == "lost"

    if sign == "heartbeat":
        assert (await virtual.do(AgentHeartbeat("spec-1"))).status == "active"
    else:
        await virtual.do(EventAppend("file_modified", agent_id="spec-1", data={"file": "a"}))
        assert await status(virtual, "spec-1") == "active"

    await trio.sleep(UNHEARD / 1000 + 1)
    assert len(await lost(virtual)) == 2


async def test_an_unheard_agent_keeps_its_locks_as_long_as_their_leases(virtual, autojump_clock):
    mission = await virtual.mission()
    await virtual.agents(mission, "spec-1")
    lock = await virtual.lock(mission, "/srv/a.py", "spec-1")

    await trio.sleep(UNHEARD / 1000 + 1)

    (held,) = await virtual.locks(mission)
    assert held.expires_at == lock.expires_at


async def test_who_waits_for_its_user_need_not_say_that_it_lives(virtual, autojump_clock):
    mission = await virtual.mission()
    await virtual.agents(mission, "spec-1")
    await virtual.do(EventAppend("agent_paused", agent_id="spec-1"))

    await trio.sleep(HOUR / 1000)

    assert await lost(virtual) == []
    assert await status(virtual, "spec-1") == "waiting"


async def test_agents_could_not_be_heard_while_no_daemon_ran(tmp_path, autojump_clock, nursery):
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        await fleet.agents(mission, "spec-1")
        clock = fleet.clock
    clock.pass_by(HOUR)

    async with opened(tmp_path, clock=clock) as fleet:
        clock.follow_trio()
        nursery.start_soon(timers.scan_liveness, fleet.engine)
        await trio.sleep(UNHEARD / 1000)
        assert await lost(fleet) == []
        await trio.sleep(1)
        assert len(await lost(fleet)) == 1
        nursery.cancel_scope.cancel()


async def test_a_full_disk_does_not_make_a_dead_agent_look_alive(
    virtual, autojump_clock, nursery, mortal, caplog
):
    # The process is real and gone before anybody looks, so virtual time has nothing to outrun.
    mission, process = await virtual.mission(), mortal()
    await start(virtual, mission, "spec-1", process)
    virtual.sql(
        "CREATE TRIGGER full BEFORE UPDATE OF status ON agents BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    end(process)
    nursery.start_soon(timers.watch_processes, virtual.engine)
    await trio.sleep(1)
    assert await status(virtual, "spec-1") == "active"
    assert "ProcessEnded failed" in caplog.text

    virtual.sql("DROP TRIGGER full")
    await trio.sleep(timers.PAUSE_S)

    assert await status(virtual, "spec-1") == "lost"
