"""What happens by itself happens once, though the daemons of several machines all do it."""

from contextlib import AsyncExitStack

import pytest
import trio

from fleetd.domain.artifacts.ingest import ingest
from fleetd.domain.erasure.journal import unfinished
from fleetd.domain.erasure.scope import ErasureTarget
from fleetd.domain.erasure.steps import step
from fleetd.domain.recovery import roll_forward
from fleetd.engine.jobs import daily
from fleetd.engine.jobs.cluster import heartbeat, leave_cluster
from fleetd.engine.jobs.liveness import scan
from fleetd.harness.report import PlanItem, Planned
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import MissionCancel, MissionCreate, MissionList
from fleetd.protocol.requests.snapshot import SnapshotList
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import DAY, MINUTE, SECOND, Clock, opened
from tests.support.hook_sessions import Window

NORTH, SOUTH = "0000000000000001", "0000000000000002"


@pytest.fixture
async def machines(tmp_path):
    """Two machines, each with an engine of its own on one database, that are in touch."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        fleets = [
            await stack.enter_async_context(
                opened(tmp_path / name, clock=clock, machine=name, database=tmp_path / "shared.db")
            )
            for name in (NORTH, SOUTH)
        ]
        await touch(*fleets)
        yield fleets


async def touch(*fleets):
    for fleet in fleets:
        await heartbeat(fleet.engine)


async def pass_by(ms, *fleets):
    """Let time pass in which all machines are heard of."""
    for _ in range(ms // (10 * SECOND)):
        fleets[0].clock.pass_by(10 * SECOND)
        await touch(*fleets)


async def both(fleets, look):
    """Let all of them do something in the same moment."""
    async with trio.open_nursery() as nursery:
        for fleet in fleets:
            nursery.start_soon(look, fleet.engine)


async def test_what_comes_due_is_told_once(machines):
    north, south = machines
    mission, briefed = await north.mission(), await north.mission()
    await north.agents(mission, "spec-1")
    await south.agents(mission, "spec-2")
    await south.agents(briefed, "spec-3")
    await north.checkpoint(briefed)
    await south.restore(mission_id=briefed.id, agent_id="spec-3")
    await pass_by(5 * MINUTE + 10 * SECOND, *machines)

    for _ in range(2):
        await both(machines, scan)

    assert len(await north.events(mission, "context_compacted")) == 1
    assert len(await north.events(briefed, "context_compacted")) == 1
    assert len(await north.events(mission, "recovery_available")) == 1
    assert len(await north.events(briefed, "recovery_unconfirmed")) == 1
    lost = [event.agent_id for event in await north.events(kind="agent_lost")]
    assert sorted(lost) == ["spec-1", "spec-2", "spec-3"]
    assert len(await north.checkpoint_ids(mission)) == 1


async def test_a_run_beats_on_its_own_machine(machines):
    north, south = machines
    window = Window(south)
    await window.tell(Planned((PlanItem("Model", "in_progress"),), whole=True))
    await pass_by(2 * MINUTE, *machines)

    await scan(north.engine)
    (first,) = (await north.do(SnapshotList())).snapshots
    await scan(south.engine)

    newest, before = (await north.do(SnapshotList())).snapshots
    assert before == first
    assert newest.source == "timer"
    rows = north.sql("SELECT DISTINCT machine FROM snapshots")
    assert rows == [{"machine": SOUTH}]


async def test_cleaning_up_side_by_side_is_cleaning_up_once(machines, caplog):
    north, south = machines
    made = await north.do(MissionCreate("Login"))
    north.sql("UPDATE missions SET origin = 'session'")
    await north.do(MissionCancel(made.id, "enough"))
    mission = await south.mission()
    await south.agents(mission, "spec-1")
    for fleet in (north, south) * 4:
        await fleet.checkpoint(mission)
        await fleet.settle()
    north.clock.pass_by(40 * DAY)
    # Else it waits for recovery, and needs its checkpoints.
    work = EventAppend("file_modified", agent_id="spec-1", data={"file": "a.py"})
    await south.do(work)

    async with trio.open_nursery() as nursery:
        for fleet in machines:
            nursery.start_soon(daily.tidy, fleet.engine)

    assert "is postponed" not in caplog.text
    assert "failed" not in caplog.text
    assert [each.id for each in (await north.do(MissionList())).missions] == [mission.id]
    deleted = [event.data["deleted"] for event in await north.events(kind="checkpoints_pruned")]
    assert sum(deleted) == 8 - len(await north.checkpoint_ids(mission)) > 0


async def test_a_mission_that_another_machine_deletes_keeps_no_other_from_going(
    machines, monkeypatch, caplog
):
    north, south = machines
    ids = []
    for _ in range(2):
        made = await north.do(MissionCreate("Login"))
        north.sql("UPDATE missions SET origin = 'session'")
        await north.do(MissionCancel(made.id, "enough"))
        ids.append(made.id)
    north.clock.pass_by(40 * DAY)
    perform = north.engine.handle

    async def late(request, *rest, **more):
        if getattr(request, "mission_id", None) == sorted(ids)[0]:
            south.sql("DELETE FROM missions WHERE id = :id", id=request.mission_id)
        return await perform(request, *rest, **more)

    monkeypatch.setattr(north.engine, "handle", late)
    await daily.tidy(north.engine)

    assert "is postponed" not in caplog.text
    assert (await north.do(MissionList())).missions == []


async def test_what_another_machine_is_forgetting_is_finished_by_that_machine(machines):
    north, south = machines
    mission = await north.mission()
    await south.checkpoint(mission)
    await south.settle()
    await south.engine.write(step, ErasureTarget(kind="mission", name=mission.id), [])

    assert (await north.engine.read(unfinished)).targets == []
    assert len((await south.engine.read(unfinished)).targets) == 1
    north.sql("UPDATE machines SET status = 'lost' WHERE id = :id", id=SOUTH)
    assert len((await north.engine.read(unfinished)).targets) == 1


async def test_a_machine_that_has_taken_its_files_in_ends_no_other_ones_import(machines):
    north, south = machines
    for fleet in machines:
        await fleet.engine.write(ingest, [])

    await south.engine.write(roll_forward.finish_import, 0)

    keys = [row["key"] for row in north.sql("SELECT key FROM store_meta")]
    assert [key for key in keys if key.startswith("import")] == [f"import:{NORTH}"]


async def test_forgetting_names_machines_that_may_still_have_something_in_their_spools(machines):
    north, south = machines
    await touch(*machines)
    mission = await north.mission()
    await leave_cluster(south.engine)

    done = await north.do(SystemForget(mission.id))

    (told,) = [text for text in done.warnings if "disconnected machines" in text]
    assert "repeat this then" in told
