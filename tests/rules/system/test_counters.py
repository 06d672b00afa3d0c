"""What the triggers count is what is there, whatever made rows come and go."""

from fleetd.domain.system.epoch import begin_epoch
from fleetd.protocol.requests.agent import AgentDeregister, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointDelete
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionDelete,
    MissionFail,
    MissionList,
)
from fleetd.protocol.requests.snapshot import SnapshotPrune, SnapshotRecord
from fleetd.protocol.requests.sortie import SortieRemove
from fleetd.protocol.requests.system import SystemForget, SystemStatus
from fleetd.protocol.status import Counts
from fleetd.store.sqlite.migrate import migrations
from tests.support.fleet import DAY, Fleet

COUNTED = {
    "missions": "SELECT count(*) AS n FROM missions",
    "sorties": "SELECT count(*) AS n FROM sorties",
    "agents": "SELECT count(*) AS n FROM agents WHERE status <> 'gone'",
    "events": "SELECT count(*) AS n FROM events",
    "checkpoints": "SELECT count(*) AS n FROM checkpoints WHERE deleted_at IS NULL",
    "snapshots": "SELECT count(*) AS n FROM snapshots WHERE deleted_at IS NULL",
    "recoveries": "SELECT count(*) AS n FROM recoveries",
}


async def check(fleet: Fleet) -> Counts:
    """Return what the status counts, after comparing it with the rows."""
    told = (await fleet.do(SystemStatus())).counts
    for what, sql in COUNTED.items():
        assert getattr(told, what) == fleet.sql(sql)[0]["n"], what
    return told


async def test_what_comes_is_counted(fleet: Fleet) -> None:
    await check(fleet)
    mission = await fleet.mission(3)
    await fleet.agents(mission, "ann", "bob")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 0)
    await fleet.restore(checkpoint)
    await fleet.do(SnapshotRecord("run-1"))
    await fleet.settle()
    told = await check(fleet)
    assert (told.missions, told.sorties, told.agents) == (1, 3, 2)
    assert told.recoveries == told.snapshots == 1


async def test_what_goes_is_counted_no_more(fleet: Fleet) -> None:
    first, second, third = [await fleet.mission(3) for _ in range(3)]
    for mission in (first, second, third):
        await fleet.agents(mission, f"agent-of-{mission.id}")
        await fleet.restore(await fleet.checkpoint(mission))
    await fleet.do(AgentDeregister(f"agent-of-{first.id}"))
    assert (await check(fleet)).agents == 2
    await fleet.do(AgentRegister(f"agent-of-{first.id}", "specialist"))
    assert (await check(fleet)).agents == 3
    await fleet.do(SortieRemove((await fleet.sorties(third))[0].id))
    await fleet.do(CheckpointDelete((await fleet.checkpoint_ids(third))[0]))
    await fleet.do(MissionFail(first.id, "Given up"))
    await fleet.do(MissionDelete(first.id))
    await fleet.do(SystemForget(mission_id=second.id))
    await fleet.settle()
    told = await check(fleet)
    assert (told.missions, told.sorties) == (1, 2)


async def test_what_is_pruned_is_counted_no_more(fleet: Fleet) -> None:
    for number in range(4):
        await fleet.do(SnapshotRecord("run-1", note=f"{number}", source="error_boundary"))
        fleet.clock.pass_by(DAY)
    fleet.clock.pass_by(400 * DAY)
    before = (await check(fleet)).snapshots
    await fleet.do(SnapshotPrune())
    await fleet.settle()
    assert (await check(fleet)).snapshots < before


async def test_a_log_that_counts_on_from_higher_up_is_no_longer_for_that(fleet: Fleet) -> None:
    await fleet.mission(2)
    before = (await check(fleet)).events
    await fleet.engine.write(begin_epoch, 5_000, 10, "files")
    await fleet.mission(2)
    told = await check(fleet)
    assert before < told.events < 100


async def test_a_mission_is_counted_under_the_status_that_it_has(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.mission(1, start=False)

    async def totals() -> list[int]:
        states = ("pending", "in_progress", "cancelled", None)
        return [(await fleet.do(MissionList(state))).total for state in states]

    assert await totals() == [1, 1, 0, 2]
    await fleet.do(MissionCancel(mission.id, "No more"))
    assert await totals() == [1, 0, 1, 2]


async def test_what_is_undone_was_never_counted(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.complete(mission, 0, 1)
    await fleet.settle()
    before = await check(fleet)
    await fleet.restore(checkpoint, dry_run=True)
    assert await check(fleet) == before


async def test_a_store_of_an_older_version_is_counted_when_it_is_brought_up_to_date(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission(2)
    await fleet.checkpoint(mission)
    await fleet.do(SnapshotRecord("run-1"))
    fleet.sql("DELETE FROM events WHERE seq = 2")
    fleet.sql("DELETE FROM tallies")
    [migration] = [sql for number, sql in migrations() if number == 6]
    counting = migration[: migration.index("CREATE TRIGGER")]
    for statement in counting.split("INSERT INTO")[1:]:
        fleet.sql(f"INSERT INTO {statement}")
    await check(fleet)
