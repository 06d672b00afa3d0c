"""Machines that share a store: who is here, who left, who is lost, and what becomes of agents."""

from contextlib import AsyncExitStack

import msgspec
import pytest

from fleetd.domain.agents import agent_loss, agents
from fleetd.domain.agents.agent_loss import GRACE_MS
from fleetd.domain.agents.due_work import due_work
from fleetd.domain.cluster import membership
from fleetd.domain.cluster.membership import (
    HEARTBEAT_MS,
    LEFT_MS,
    LOST_MS,
    UNBROKEN_MS,
)
from fleetd.domain.core.context import Facts
from fleetd.domain.core.tx import WatchProcess
from fleetd.domain.locks import queue
from fleetd.domain.system.epoch import continue_after_loss, start_up
from fleetd.engine.engine import DAEMON
from fleetd.engine.jobs import liveness
from fleetd.engine.jobs.cluster import heartbeat, leave_cluster
from fleetd.harness.report import PromptSubmitted
from fleetd.host import processes
from fleetd.protocol.errors import InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentGet, AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.machine import MachineForget
from fleetd.protocol.timestamps import to_ms
from tests.support import shared_store
from tests.support.fleet import MINUTE, SECOND, Clock, opened
from tests.support.hook_sessions import Window

EAST, NORTH, SOUTH = (f"{number:016}" for number in range(3))


@pytest.fixture
async def machines(tmp_path, nursery):
    """Two machines, each with an engine of its own on one database."""
    clock = Clock()
    database = tmp_path / "shared.db"
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                opened(tmp_path / name, clock=clock, machine=name, database=database)
            )
            for name in (NORTH, SOUTH)
        ]


async def beat(fleet, name=None, *, thorough=True):
    return await fleet.beat(name or f"host-{fleet.engine.machine[-1]}", thorough=thorough)


async def touch(fleet):
    await heartbeat(fleet.engine)


async def pass_by(ms, *fleets):
    """Let time pass in which only these machines are heard of."""
    clock = fleets[0].clock
    for _ in range(ms // HEARTBEAT_MS):
        clock.pass_by(HEARTBEAT_MS)
        for fleet in fleets:
            await touch(fleet)
    clock.pass_by(ms % HEARTBEAT_MS)


def standing(fleet):
    return {row["id"]: row["status"] for row in fleet.sql("SELECT id, status FROM machines")}


async def status(fleet, agent):
    return (await fleet.do(AgentGet(agent))).status


async def start(fleet, mission, agent, process):
    await fleet.do(AgentRegister(agent, "specialist", pid=process.pid, mission_id=mission.id))


async def settle_in(*fleets):
    """Let machines have been in touch for long enough to miss each other."""
    for fleet in fleets:
        await touch(fleet)
    await pass_by(LOST_MS, *fleets)


async def lost(fleet):
    return [event.agent_id for event in await fleet.events(kind="agent_lost")]


# --- machines -----------------------------------------------------------------------------------


async def test_a_machine_is_here_from_its_first_beat(machines):
    north, south = machines
    await beat(north, "build-1")
    await beat(south, "laptop")

    rows = north.sql("SELECT id, name, status, heard_at FROM machines")

    now = north.clock.now
    assert rows == [
        {"id": NORTH, "name": "build-1", "status": "here", "heard_at": now},
        {"id": SOUTH, "name": "laptop", "status": "here", "heard_at": now},
    ]


async def test_a_machine_is_lost_when_it_is_not_heard_of_for_a_minute(machines, caplog):
    north, south = machines
    await settle_in(north, south)

    await pass_by(LOST_MS, north)
    assert standing(north) == {NORTH: "here", SOUTH: "here"}
    north.clock.pass_by(1)
    await touch(north)

    assert standing(north) == {NORTH: "here", SOUTH: "lost"}
    assert f"({SOUTH}) has sent no heartbeat for 1m 0s: it is lost" in caplog.text


async def test_of_several_that_miss_a_machine_one_loses_it(tmp_path, machines, caplog):
    north, south = machines
    async with opened(
        tmp_path / "third",
        clock=north.clock,
        machine="0000000000000003",
        database=tmp_path / "shared.db",
    ) as third:
        await settle_in(north, south, third)
        await pass_by(LOST_MS - HEARTBEAT_MS, north, third)
        north.clock.pass_by(HEARTBEAT_MS + 1)
        await beat(north)
        await beat(third)
        seen = [(await each.engine.read(membership.find_lost)).machines for each in (north, third)]
        assert seen == [[SOUTH], []]

        done = [await each.engine.write(membership.lose_machine, SOUTH) for each in (third, north)]
        assert done == [False, True]
        await pass_by(LOST_MS, third)
        third.clock.pass_by(1)
        await touch(third)

        assert standing(third)[NORTH] == "lost"


async def test_a_machine_that_has_just_come_keeps_no_other_from_missing_one(machines, tmp_path):
    north, south = machines
    async with opened(
        tmp_path / "0", clock=north.clock, machine=EAST, database=tmp_path / "shared.db"
    ) as east:
        await settle_in(north, south)
        await pass_by(LOST_MS - HEARTBEAT_MS, north)
        await beat(east)
        await pass_by(2 * HEARTBEAT_MS, north, east)

        assert standing(north) == {EAST: "here", NORTH: "here", SOUTH: "lost"}


async def test_who_was_out_of_touch_itself_misses_nobody(machines):
    north, south = machines
    await settle_in(north, south)
    north.clock.pass_by(10 * MINUTE)  # the store was away

    await pass_by(LOST_MS - HEARTBEAT_MS, north)
    assert standing(north) == {NORTH: "here", SOUTH: "here"}
    await pass_by(2 * HEARTBEAT_MS, north)

    assert standing(north) == {NORTH: "here", SOUTH: "lost"}


async def test_some_beats_may_be_missing_without_a_break(machines):
    north, _ = machines
    since = await _since_after(north, UNBROKEN_MS)
    assert await _since_after(north, UNBROKEN_MS) == since
    assert await _since_after(north, UNBROKEN_MS + 1) == north.clock.uptime().awake_ms


async def _since_after(fleet, ms):
    fleet.clock.pass_by(ms)
    await beat(fleet)
    return fleet.sql("SELECT since_awake_ms FROM machines")[0]["since_awake_ms"]


async def test_a_machine_that_leaves_in_good_order_has_time_to_come_back(machines):
    north, south = machines
    await settle_in(north, south)
    await leave_cluster(south.engine)

    await pass_by(LEFT_MS, north)
    assert standing(north) == {NORTH: "here", SOUTH: "left"}
    await pass_by(HEARTBEAT_MS, north)

    assert standing(north) == {NORTH: "here", SOUTH: "lost"}


async def test_a_machine_is_here_again_when_it_beats_again(machines):
    north, south = machines
    await settle_in(north, south)
    await pass_by(LOST_MS + HEARTBEAT_MS, north)

    assert (await beat(south)).was_lost
    assert not (await beat(south)).was_lost

    assert standing(north) == {NORTH: "here", SOUTH: "here"}


async def test_machines_of_one_name_are_called_by_their_ids_too(machines):
    def names():
        rows = north.sql("SELECT id, name FROM machines")
        return {row["id"]: row["name"] for row in rows}

    north, south = machines
    await beat(north, "vm")
    assert names() == {NORTH: "vm"}
    await beat(south, "vm")
    assert names() == {NORTH: "vm", SOUTH: f"vm ({SOUTH})"}
    await beat(north, "vm")
    assert names() == {NORTH: f"vm ({NORTH})", SOUTH: f"vm ({SOUTH})"}
    # As soon as the other one has another name, the id says nothing.
    await beat(south, "laptop")
    await beat(north, "vm")
    assert names() == {NORTH: "vm", SOUTH: "laptop"}


async def test_only_a_thorough_heartbeat_looks_for_machines_of_one_name(machines):
    def name():
        return north.sql("SELECT name FROM machines WHERE id = :id", id=NORTH)[0]["name"]

    north, south = machines
    await beat(north, "vm")
    await beat(south, "vm")
    await beat(north, "vm", thorough=False)
    assert name() == "vm"
    await beat(north, "vm")
    await beat(south, "laptop")
    await beat(north, "vm", thorough=False)
    assert name() == f"vm ({NORTH})"
    # A name of its own that is new counts at once.
    await beat(north, "laptop", thorough=False)
    assert name() == f"laptop ({NORTH})"


async def test_a_machine_is_called_as_the_settings_say(tmp_path):
    async with opened(tmp_path, machine=NORTH, machine_name="build-7") as north:
        await touch(north)
        assert north.sql("SELECT name FROM machines") == [{"name": "build-7"}]


async def test_a_machine_that_is_forgotten_loses_its_agents_and_keeps_their_work(machines, mortal):
    north, south = machines
    mission, other = await north.mission(), await north.mission(title="Other")
    await start(south, mission, "spec-1", mortal())
    await start(south, mission, "spec-2", mortal())
    await start(south, other, "spec-3", mortal())
    await start(north, mission, "spec-4", mortal())
    await south.do(LockAcquire("spec-1", "/srv/a.py"))
    await settle_in(north, south)
    await leave_cluster(south.engine)

    forgotten = await north.do(MachineForget(SOUTH))

    assert (forgotten.machine_id, forgotten.lost_agents) == (SOUTH, ["spec-1", "spec-2", "spec-3"])
    assert standing(north) == {NORTH: "here"}
    assert await status(north, "spec-4") == "active"
    assert sorted(await lost(north)) == ["spec-1", "spec-2", "spec-3"]
    [event, _] = await north.events(mission, "agent_lost")
    assert event.data["reason"] == f"machine {forgotten.name} was forgotten"
    # Its state is kept once for each mission, and its locks wait for a recovery.
    for each in (mission, other):
        assert len(await north.checkpoint_ids(each, "error")) == 1
    assert [lock.held_by for lock in await north.locks()] == ["spec-1"]
    # It is a machine again as soon as it says so, and finds its agents.
    assert (await beat(south)).was_lost
    assert standing(north) == {NORTH: "here", SOUTH: "here"}
    for process in await south.engine.read(agent_loss.lost_processes):
        assert await south.engine.write(agent_loss.rejoin, process)
    assert await status(north, "spec-1") == "active"


async def test_only_a_machine_that_is_not_at_work_is_forgotten(machines):
    north, south = machines
    await settle_in(north, south)
    north.clock.pass_by(5 * SECOND)
    with pytest.raises(InvalidState, match="is at work: its last heartbeat was 5s ago"):
        await north.do(MachineForget(SOUTH))
    with pytest.raises(InvalidState, match="is this machine"):
        await north.do(MachineForget(NORTH))
    with pytest.raises(NotFound, match="Machine not found: 00000000000000ff"):
        await north.do(MachineForget("00000000000000ff"))
    assert standing(north) == {NORTH: "here", SOUTH: "here"}


async def test_the_end_of_an_engine_says_goodbye(tmp_path):
    async with opened(tmp_path, machine=NORTH) as north:
        await touch(north)
    async with opened(tmp_path) as again:
        assert standing(again) == {NORTH: "left"}


@pytest.mark.skipif(bool(shared_store.SERVER), reason="there every machine has a name")
async def test_in_a_store_of_its_own_a_machine_has_no_name(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    await fleet.do(LockAcquire("spec-1", "/srv/a.py"))
    assert fleet.sql("SELECT * FROM machines") == []
    assert fleet.sql("SELECT DISTINCT machine FROM agents") == [{"machine": ""}]


# --- agents of a machine that is lost -----------------------------------------------------------


async def test_the_agents_of_a_lost_machine_are_lost_once_with_their_state(machines, mortal):
    north, south = machines
    mission = await north.mission()
    await start(south, mission, "spec-1", mortal())
    await start(north, mission, "spec-2", mortal())
    await settle_in(north, south)

    await pass_by(LOST_MS + 3 * HEARTBEAT_MS, north)

    (event,) = await north.events(mission, "agent_lost")
    assert (event.agent_id, await status(north, "spec-1")) == ("spec-1", "lost")
    host = north.sql("SELECT name FROM machines WHERE id = :id", id=SOUTH)[0]["name"]
    assert event.data["reason"] == (f"machine {host} has sent no heartbeat for 1m 10s")
    assert await status(north, "spec-2") == "active"
    assert len(await north.checkpoint_ids(mission, "error")) == 1


async def test_a_mission_that_loses_several_agents_with_a_machine_has_one_error(machines, mortal):
    north, south = machines
    mission, other = await north.mission(), await north.mission()
    for agent in ("spec-1", "spec-2"):
        await start(south, mission, agent, mortal())
    await start(south, other, "spec-3", mortal())
    await settle_in(north, south)
    await pass_by(LOST_MS + HEARTBEAT_MS, north)

    assert sorted(await lost(north)) == ["spec-1", "spec-2", "spec-3"]
    (kept,) = await north.checkpoint_ids(mission, "error")
    assert len(await north.checkpoint_ids(other, "error")) == 1
    (row,) = north.sql("SELECT trigger_details FROM checkpoints WHERE id = :id", id=kept)
    assert "spec-1, spec-2 ended without notice (machine " in row["trigger_details"]
    assert not await north.engine.write(agent_loss.fail_over, "spec-2")


async def test_who_waits_for_its_user_is_lost_without_an_error(machines, mortal):
    north, south = machines
    mission = await north.mission()
    await start(south, mission, "spec-1", mortal())
    await south.do(EventAppend("agent_paused", agent_id="spec-1"))
    await settle_in(north, south)

    await pass_by(LOST_MS + HEARTBEAT_MS, north)

    assert await status(north, "spec-1") == "lost"
    assert await north.checkpoint_ids(mission, "error") == []


async def test_an_agent_that_was_seen_since_is_not_lost_with_its_machine(machines, mortal):
    north, south = machines
    mission = await north.mission()
    await start(south, mission, "spec-1", mortal())
    await settle_in(north, south)
    north.clock.pass_by(LOST_MS + 1)
    await beat(north)
    await start(south, mission, "spec-1", mortal())  # it is back, its next beat not due yet

    north.sql("UPDATE machines SET status = 'lost' WHERE id = :id", id=SOUTH)

    assert not await north.engine.write(agent_loss.fail_over, "spec-1")
    assert await status(north, "spec-1") == "active"


async def test_the_locks_of_those_cut_off_run_their_course(machines, mortal):
    north, south = machines
    mission = await north.mission()
    await start(south, mission, "spec-1", mortal())
    await settle_in(north, south)
    lock = await south.lock(mission, "/srv/a.py", "spec-1")

    await pass_by(LOST_MS + 2 * HEARTBEAT_MS, north)

    assert await lost(north) == ["spec-1"]
    (held,) = await north.locks(mission)
    assert held.expires_at == lock.expires_at
    (row,) = north.sql("SELECT orphaned_at FROM locks WHERE id = :id", id=lock.id)
    assert row["orphaned_at"] is not None


async def test_an_agent_of_which_only_its_machine_was_not_heard_is_not_silent(machines):
    north, south = machines
    mission = await north.mission()
    await settle_in(north, south)
    await south.agents(mission, "spec-1")
    await leave_cluster(south.engine)
    await pass_by(LEFT_MS - HEARTBEAT_MS, north)
    await touch(south)
    await pass_by(2 * HEARTBEAT_MS, north, south)

    assert not await north.engine.write(agent_loss.lose_silent_agent, "spec-1")
    await pass_by(LEFT_MS, north, south)
    assert await north.engine.write(agent_loss.lose_silent_agent, "spec-1")


# --- what is not judged while word may be on its way ----------------------------------------------


async def compacted(fleet, mission):
    return len(await fleet.events(mission, "context_compacted"))


async def scan(*fleets):
    for fleet in fleets:
        await liveness.scan(fleet.engine)


async def test_a_mission_is_silent_only_when_its_machines_could_have_told_otherwise(machines):
    north, south = machines
    mission = await north.mission()
    await south.agents(mission, "spec-1")
    await settle_in(north, south)
    north.clock.pass_by(10 * MINUTE)  # the store was away

    await scan(north, south)
    await touch(north)
    await scan(north, south)
    await touch(south)
    await scan(north, south)
    assert await compacted(north, mission) == 0
    await pass_by(UNBROKEN_MS + HEARTBEAT_MS, north, south)
    await scan(north, south)

    assert await compacted(north, mission) == 1
    assert await lost(north) == []


async def test_a_mission_of_which_nobody_lives_elsewhere_is_silent_at_once(machines):
    north, south = machines
    mission = await north.mission()
    await touch(south)
    north.clock.pass_by(10 * MINUTE)

    await scan(north)

    assert await compacted(north, mission) == 1


async def test_a_mission_all_of_whose_agents_are_lost_with_their_machine_is_silent(machines):
    north, south = machines
    mission = await north.mission()
    await south.agents(mission, "spec-1")
    await settle_in(north, south)
    await pass_by(5 * MINUTE, north)

    await scan(north)

    assert await lost(north) == ["spec-1"]
    assert await compacted(north, mission) == 1


async def test_who_was_briefed_may_have_gone_on_meanwhile(machines):
    north, south = machines
    mission = await north.mission()
    await south.agents(mission, "spec-1")
    await north.checkpoint(mission)
    await settle_in(north, south)
    await south.restore(mission_id=mission.id, agent_id="spec-1")
    north.clock.pass_by(10 * MINUTE)

    for fleet in (north, south):
        await touch(fleet)
        await scan(north, south)
    assert await north.events(mission, "recovery_unconfirmed") == []
    await pass_by(UNBROKEN_MS + HEARTBEAT_MS, north, south)
    await scan(north, south)

    assert len(await north.events(mission, "recovery_unconfirmed")) == 1


async def due(fleet):
    """Return the missions, the number of recoveries and the agents that a machine acts on."""
    since_ms = fleet.engine.awake_since_ms
    found = await fleet.engine.read(due_work, since_ms, only_ours=True)
    return found.missions, len(found.recoveries), found.agents


async def look(fleet):
    """Look for what is due as the timer of a machine does."""
    await liveness.scan(fleet.engine, only_ours=True)


async def test_each_machine_acts_on_what_is_its_own(machines):
    north, south = machines
    northern, southern = await north.mission(), await south.mission()
    await settle_in(north, south)
    await pass_by(10 * MINUTE, north, south)

    assert await due(north) == ([northern.id], 0, [])
    assert await due(south) == ([southern.id], 0, [])
    await look(south)
    assert [await compacted(north, each) for each in (northern, southern)] == [0, 1]
    await look(north)
    assert [await compacted(north, each) for each in (northern, southern)] == [1, 1]


async def test_the_first_machine_at_work_acts_on_what_is_of_one_that_is_not(machines, tmp_path):
    north, south = machines
    async with opened(
        tmp_path / "0", clock=north.clock, machine=EAST, database=tmp_path / "shared.db"
    ) as east:
        mission, recovered = await south.mission(), await south.mission()
        await south.agents(recovered, "spec-1")
        await south.checkpoint(recovered)
        await south.restore(mission_id=recovered.id, agent_id="spec-1")
        await settle_in(east, north, south)
        await leave_cluster(south.engine)
        north.clock.pass_by(10 * MINUTE)
        for fleet in (east, north):
            await beat(fleet)

        assert await due(east) == ([mission.id], 1, [])
        assert await due(north) == ([], 0, [])
        north.clock.pass_by(UNBROKEN_MS + 1)
        await beat(north)  # the other one ended
        assert await due(north) == ([mission.id], 1, [])
        assert await due(east) == ([], 0, [])


async def test_agents_without_a_process_are_missed_by_their_own_machine(machines):
    north, south = machines
    mission = await north.mission()
    await south.agents(mission, "spec-1")
    await settle_in(north, south)
    await pass_by(10 * MINUTE, north, south)

    assert [(await due(each))[2] for each in (north, south)] == [[], ["spec-1"]]


async def test_who_joins_a_silent_mission_of_another_machine_finds_it_silent(machines):
    north, south = machines
    mission = await north.mission()
    await settle_in(north, south)
    await pass_by(10 * MINUTE, north, south)

    await south.agents(mission, "spec-1")

    assert await compacted(south, mission) == 1


async def test_the_end_of_a_process_ends_the_excuse_of_another_machines_mission(machines, mortal):
    north, south = machines
    mission = await north.mission()
    await north.agents(mission, "spec-1")
    process = mortal()
    await start(south, mission, "spec-2", process)
    # Whose agent runs is not silent, nor is one all of whose agents wait for their user.
    for agent in ("spec-1", "spec-2"):
        north.sql(f"UPDATE agents SET status = 'waiting' WHERE id = '{agent}'")
    await settle_in(north, south)
    await pass_by(10 * MINUTE, north, south)
    await look(north)
    assert await compacted(north, mission) == 0

    process.kill()
    process.wait()
    started = south.sql("SELECT pid_started FROM agents WHERE id = 'spec-2'")[0]["pid_started"]
    await liveness.process_ended(south.engine, WatchProcess("spec-2", process.pid, started))

    assert await lost(south) == ["spec-2"]
    assert await compacted(south, mission) == 1


async def test_how_soon_to_look_again_heeds_what_was_not_judged(machines):
    north, _ = machines
    await touch(north)
    for _ in range(2):
        found = await north.engine.read(due_work, north.engine.awake_since_ms)
        assert found.look_again_ms == UNBROKEN_MS + 1
        north.clock.pass_by(10 * MINUTE)  # the store was away, and this machine has not told yet


# --- coming back ----------------------------------------------------------------------------------


async def cut_off(north, south, mission, process, agent="spec-1"):
    await start(south, mission, agent, process)
    await settle_in(north, south)
    lock = await south.lock(mission, "/srv/a.py", agent)
    await pass_by(LOST_MS + 3 * HEARTBEAT_MS, north)
    assert await lost(north) == [agent]
    return lock


async def test_agents_found_at_work_are_back_with_their_locks(machines, mortal):
    north, south = machines
    mission = await north.mission()
    lock = await cut_off(north, south, mission, mortal())

    await touch(south)

    assert await status(north, "spec-1") == "active"
    (event,) = await north.events(mission, "agent_returned")
    assert event.agent_id == "spec-1"
    assert event.data["reason"].endswith("sends heartbeats again")
    assert north.sql("SELECT id, orphaned_at FROM locks") == [{"id": lock.id, "orphaned_at": None}]
    await touch(south)
    assert len(await north.events(mission, "agent_returned")) == 1


async def test_who_waited_for_its_user_waits_again(machines, mortal):
    north, south = machines
    mission = await north.mission()
    await start(south, mission, "spec-1", mortal())
    await south.do(EventAppend("agent_paused", agent_id="spec-1"))
    await settle_in(north, south)
    await pass_by(LOST_MS + HEARTBEAT_MS, north)

    await touch(south)

    assert await status(north, "spec-1") == "waiting"


async def test_agents_that_ended_meanwhile_stay_lost(machines, mortal):
    north, south = machines
    mission, process = await north.mission(), mortal()
    lock = await cut_off(north, south, mission, process)
    process.kill()
    process.wait()

    await touch(south)

    assert await status(north, "spec-1") == "lost"
    assert await north.events(mission, "agent_returned") == []
    # Now that it is known to be dead, it keeps its files for a short grace only.
    (held,) = await north.locks(mission)
    assert to_ms(held.expires_at) == north.clock() + GRACE_MS < to_ms(lock.expires_at)


async def test_an_agent_whose_work_went_to_another_stays_lost(machines, mortal):
    north, south = machines
    mission, process = await north.mission(), mortal()
    await cut_off(north, south, mission, process)
    await north.agents(mission, "spec-2")
    await north.restore(mission_id=mission.id, agent_id="spec-2", take_over_from="spec-1")

    assert await south.engine.read(agent_loss.lost_processes) == []
    back = WatchProcess("spec-1", process.pid, processes.started(process.pid))
    assert not await south.engine.write(agent_loss.rejoin, back)
    assert await status(north, "spec-1") == "lost"


async def test_only_its_own_machine_finds_an_agent_at_work(machines, mortal):
    north, south = machines
    mission, process = await north.mission(), mortal()
    await cut_off(north, south, mission, process)
    back = WatchProcess("spec-1", process.pid, processes.started(process.pid))

    assert not await north.engine.write(agent_loss.rejoin, back)
    older = msgspec.structs.replace(back, started="0")
    assert not await south.engine.write(agent_loss.rejoin, older)
    assert await south.engine.write(agent_loss.rejoin, back)


@pytest.mark.parametrize("sign", ["heartbeat", "activity"])
async def test_one_without_a_process_comes_back_where_it_is_heard(machines, sign):
    north, south = machines
    mission = await north.mission()
    await south.agents(mission, "spec-1")
    await settle_in(north, south)
    await pass_by(LOST_MS + HEARTBEAT_MS, north)
    assert await status(north, "spec-1") == "lost"

    if sign == "heartbeat":
        await north.do(AgentHeartbeat("spec-1"))
    else:
        await north.do(EventAppend("file_modified", agent_id="spec-1", data={"file": "a"}))

    assert await status(north, "spec-1") == "active"
    await pass_by(2 * LOST_MS, north)
    assert await lost(north) == ["spec-1"]


# --- processes of several machines ----------------------------------------------------------------


async def test_the_same_pid_on_another_machine_is_another_process(machines, mortal):
    north, south = machines
    mission, process = await north.mission(), mortal()
    await start(north, mission, "spec-1", process)
    started = processes.started(process.pid)

    gone = WatchProcess("spec-1", process.pid, started)
    assert not await south.engine.write(agent_loss.process_ended, gone)
    assert await south.engine.read(agent_loss.living_processes) == []
    assert await north.engine.write(agent_loss.process_ended, gone)


async def test_an_agent_that_registers_on_another_machine_moves_there(machines, mortal):
    north, south = machines
    mission, first, second = await north.mission(), mortal(), mortal()
    await start(north, mission, "spec-1", first)
    await start(south, mission, "spec-1", second)

    ended = WatchProcess("spec-1", first.pid, processes.started(first.pid))
    assert not await north.engine.write(agent_loss.process_ended, ended)
    assert await north.engine.read(agent_loss.living_processes) == []
    (known,) = await south.engine.read(agent_loss.living_processes)
    assert (known.agent_id, known.pid) == ("spec-1", second.pid)


async def test_a_session_that_is_resumed_on_another_machine_moves_there(machines):
    north, south = machines
    here, there = Window(north), Window(south)
    there.told = 1  # its next event is another one
    for window in (here, there):
        window.process = (101, "5")  # the same pid, started as late: another process all the same
        north.clock.pass_by(MINUTE)
        recorded = await window.tell(PromptSubmitted("Add login"))

    (known,) = await south.engine.read(agent_loss.living_processes)
    assert (known.agent_id, known.pid) == (recorded.agent_id, 101)
    assert await north.engine.read(agent_loss.living_processes) == []


async def test_a_new_session_does_not_take_the_agent_of_a_process_elsewhere(machines):
    north, south = machines
    request = AgentRegister("spec-1", "specialist", pid=101)
    await north.engine.run(agents.register, request, facts=Facts(pid_started="5"))
    there, here = Window(south), Window(north, "another")
    for window in (there, here):
        window.process = (101, "5")

    assert (await there.tell(PromptSubmitted("Add login"))).agent_id != "spec-1"
    assert (await here.tell(PromptSubmitted("Add login"))).agent_id == "spec-1"


async def test_the_work_of_an_agent_elsewhere_is_not_taken_while_it_is_heard_of(machines, mortal):
    north, south = machines
    mission, process = await north.mission(), mortal()
    await beat(south, "laptop")
    await start(south, mission, "spec-1", process)
    await north.agents(mission, "spec-2")
    await north.checkpoint(mission)

    async def take_over():
        return await north.restore(
            mission_id=mission.id, agent_id="spec-2", take_over_from="spec-1"
        )

    with pytest.raises(InvalidState) as refused:
        await take_over()
    running = f"Agent spec-1 runs on laptop (process {process.pid})."
    assert refused.value.message == running
    await leave_cluster(south.engine)
    with pytest.raises(InvalidState, match="last ran on laptop"):
        await take_over()

    north.sql("UPDATE machines SET status = 'lost' WHERE id = :id", id=SOUTH)
    await take_over()

    assert await status(north, "spec-1") == "lost"


async def test_one_that_nobody_watches_elsewhere_is_taken_over_from_with_a_warning(machines):
    north, south = machines
    mission = await north.mission()
    await beat(south, "laptop")
    await south.agents(mission, "spec-1")
    await north.agents(mission, "spec-2")
    await north.checkpoint(mission)

    result = await north.restore(mission_id=mission.id, agent_id="spec-2", take_over_from="spec-1")

    told = "spec-1 was seen 0s ago on laptop; if it still runs, stop it there"
    assert told in result.warnings


@pytest.mark.parametrize("spooled", [False, True])
async def test_whose_work_was_taken_over_is_told_once_when_it_comes_back(machines, spooled):
    north, south = machines
    mission = await north.mission()
    await beat(north, "desk")
    window = Window(south)
    window.process = (101, "5")
    owner = (await window.tell(PromptSubmitted("Go"), wanted_mission_id=mission.id)).agent_id
    await south.lock(mission, "/srv/a.py", owner)
    await north.agents(mission, "bob")
    await north.checkpoint(mission)
    north.sql("UPDATE agents SET status = 'lost' WHERE id = :id", id=owner)
    await north.restore(mission_id=mission.id, agent_id="bob", take_over_from=owner)

    if spooled:  # nobody reads the reply to that
        unread = await window.tell(PromptSubmitted("Earlier"), happened_ms=south.clock())
        assert unread.lines == []
    first = await window.tell(PromptSubmitted("Go on"))
    again = await window.tell(PromptSubmitted("And on"))

    told = f"The work of {owner} was taken over by bob on desk while {owner} counted as lost"
    assert first.lines[0].startswith(told)
    assert first.lines[0].endswith(
        f"{owner} holds none of these locks any more, bob does: /srv/a.py."
    )
    assert not any("taken over" in line for line in again.lines)
    assert await status(south, owner) == "active"
    assert [lock.held_by for lock in await north.locks(mission)] == ["bob"]


# --- waits for locks ------------------------------------------------------------------------------


async def wait_for(fleet, file, agent):
    """Line up for a file that is locked, as another machine names it, too."""
    (held,) = await fleet.locks()
    waiter = fleet.engine.on_behalf_of(DAEMON, Facts(lock_key=held.normalized_path))
    return await waiter.write(queue.enqueue, LockAcquire(agent, file))


async def test_a_start_forgets_the_waits_of_its_own_machine_only(machines):
    north, south = machines
    mission = await north.mission()
    await north.agents(mission, "spec-1", "spec-2", "spec-3")
    await north.lock(mission, "/srv/a.py", "spec-1")
    here = await wait_for(north, "/srv/a.py", "spec-2")
    there = await wait_for(south, "/srv/a.py", "spec-3")

    await north.engine.write(start_up)

    with pytest.raises(NotFound, match="machine was lost"):
        await north.engine.write(queue.take_turn, here)
    assert await south.engine.write(queue.take_turn, there) is None


async def test_a_number_that_is_another_ones_by_now_serves_nobody_else(machines):
    north, south = machines
    mission = await north.mission()
    await north.agents(mission, "spec-1", "spec-2", "spec-3")
    await north.lock(mission, "/srv/a.py", "spec-1")
    there = await wait_for(south, "/srv/a.py", "spec-3")
    lost = queue.LockTicket(wait_id=there.wait_id, agent_id="spec-2", target=there.target)
    north.sql("UPDATE locks SET expires_at = acquired_at")

    assert (await north.engine.read(queue.check_turn, lost)).due
    with pytest.raises(NotFound, match="The wait for the lock has ended"):
        await north.engine.write(queue.take_turn, lost)
    for keep in (True, False):
        assert await north.engine.write(queue.dequeue, lost, keep=keep) is None

    assert (await south.engine.write(queue.take_turn, there)).held_by == "spec-3"


async def test_a_store_that_came_back_gives_the_number_of_no_lost_wait_again(machines):
    north, _ = machines
    mission = await north.mission()
    await north.agents(mission, "spec-1", "spec-2", "spec-3")
    await north.lock(mission, "/srv/a.py", "spec-1")
    before = await wait_for(north, "/srv/a.py", "spec-2")

    await north.engine.write(continue_after_loss, 1, 5)

    after = await wait_for(north, "/srv/a.py", "spec-3")
    assert after.wait_id > before.wait_id + queue.UNSEEN
    waits = north.sql("SELECT id FROM lock_waits ORDER BY id")
    assert [row["id"] for row in waits] == [before.wait_id, after.wait_id]


async def test_an_epoch_serves_those_who_were_told_of_less_and_no_others(machines):
    north, south = machines
    await north.mission()
    await north.engine.write(continue_after_loss, 1, 5)
    begins = "SELECT seq FROM events WHERE type = 'store_restored' ORDER BY seq"
    [seq] = [row["seq"] for row in north.sql(begins)]

    told = seq - 1
    assert not await south.engine.write(continue_after_loss, told, told)  # it is news there
    assert await south.engine.write(continue_after_loss, seq, seq)  # it was something else

    assert [row["seq"] for row in north.sql(begins)] == [seq, seq + 1]


@pytest.mark.parametrize("how", ["lost", "left"])
async def test_who_waits_on_a_machine_that_is_gone_is_not_served(machines, how):
    north, south = machines
    mission = await north.mission()
    await north.agents(mission, "spec-1", "spec-2", "spec-3")
    await settle_in(north, south)
    await north.lock(mission, "/srv/a.py", "spec-1")
    await wait_for(south, "/srv/a.py", "spec-2")
    mine = await wait_for(north, "/srv/a.py", "spec-3")
    if how == "left":
        await leave_cluster(south.engine)
    else:
        await pass_by(LOST_MS + HEARTBEAT_MS, north)

    north.clock.pass_by(10 * MINUTE + SECOND)

    assert (await north.engine.write(queue.take_turn, mine)).held_by == "spec-3"
