"""Checkpoints beyond the cases of the plan: storms of errors, how many stay, how large they are."""

import pytest

from fleetd.config import Limits
from fleetd.protocol.requests.checkpoint import (
    CheckpointGet,
    CheckpointList,
    DeclaredContext,
    ErrorReport,
)
from fleetd.protocol.requests.sortie import SortieAssign
from tests.support.fleet import MINUTE, SECOND, opened


async def fail(fleet, mission, message="disk full", name="OSError", agent="spec-1"):
    """Report an error; return the id of the checkpoint it made or joined."""
    report = ErrorReport(agent, "exception", name, message, mission.id)
    return (await fleet.do(report)).checkpoint_id


async def test_a_storm_of_1000_errors_makes_one_checkpoint(fleet, caplog):
    mission = await fleet.mission(2)
    ids = set()
    for _ in range(1_000):
        fleet.clock.pass_by(2)
        ids.add(await fail(fleet, mission))

    assert len(ids) == 1
    assert await fleet.checkpoint_ids(mission) == list(ids)
    checkpoint = await fleet.do(CheckpointGet(ids.pop()))
    (joined,) = checkpoint.source_details
    assert (joined.source, joined.agent_id) == ("exception:OSError", "spec-1")
    assert joined.count == 999
    assert joined.last_at == fleet.clock.now
    assert len(await fleet.events(mission, "error_reported")) == 1_000
    assert len(await fleet.events(mission, "fleet_checkpointed")) == 1
    told = [each.message for each in caplog.records if "The same error occurred" in each.message]
    assert [line.split()[4] for line in told] == ["10", "100", "1000"]
    assert checkpoint.id in told[-1]


async def test_joining_does_not_touch_the_checksum(fleet):
    mission = await fleet.mission(1)
    first = await fleet.do(CheckpointGet(await fail(fleet, mission)))
    await fail(fleet, mission)

    second = await fleet.do(CheckpointGet(first.id))

    assert second.integrity == first.integrity
    assert [detail.count for detail in second.source_details] == [1]


async def test_the_same_error_of_two_agents_is_counted_for_each(fleet):
    mission = await fleet.mission(1)
    for agent in ("spec-1", "spec-2", "spec-2"):
        checkpoint_id = await fail(fleet, mission, agent=agent)

    details = (await fleet.do(CheckpointGet(checkpoint_id))).source_details
    assert [(detail.agent_id, detail.count) for detail in details] == [("spec-2", 2)]


@pytest.mark.parametrize(
    ("pause", "change", "joins"),
    [
        (3 * SECOND, {}, True),
        (3 * SECOND + 1, {}, False),
        (0, {"message": "disk fuller"}, False),
        (0, {"name": "IOError"}, False),
    ],
)
async def test_only_the_same_error_within_three_seconds_joins(fleet, pause, change, joins):
    mission = await fleet.mission(1)
    first = await fail(fleet, mission)
    fleet.clock.pass_by(pause)

    assert (await fail(fleet, mission, **change) == first) is joins


async def change_sortie(fleet, mission):
    await fleet.do(SortieAssign((await fleet.sorties(mission))[0].id, "spec-2"))


async def change_locks(fleet, mission):
    await fleet.lock(mission, "src/0.py", "spec-2")


async def change_mail(fleet, mission):
    await fleet.write(mission, ["spec-2"])


@pytest.mark.parametrize("change", [change_sortie, change_locks, change_mail])
async def test_an_error_after_a_material_change_does_not_join(fleet, change):
    mission = await fleet.mission(2)
    first = await fail(fleet, mission)
    await change(fleet, mission)

    assert await fail(fleet, mission) != first


async def test_checkpoints_of_other_triggers_never_join(fleet):
    mission = await fleet.mission(1)
    ids = [
        (await fleet.checkpoint(mission, "same", trigger=trigger)).id
        for trigger in ("manual", "manual", "manual", "compaction", "compaction", "compaction")
    ]

    assert len(set(ids)) == 6
    assert await fleet.checkpoint_ids(mission) == ids[::-1]


async def test_an_error_without_a_mission_leaves_an_event_and_no_checkpoint(fleet):
    result = await fleet.do(ErrorReport("spec-1", "exception", "OSError", "disk full"))

    assert result.checkpoint_id is None
    (event,) = await fleet.events(kind="error_reported")
    assert (event.mission_id, event.agent_id) == (None, "spec-1")


async def test_a_mission_keeps_100_checkpoints(fleet):
    mission = await fleet.mission(1)
    ids = [(await fleet.checkpoint(mission, wait_for_backup=False)).id for _ in range(104)]
    await fleet.settle()

    page = await fleet.do(CheckpointList(mission.id, limit=1_000))

    assert page.total == 100
    assert [summary.id for summary in page.checkpoints] == ids[:3:-1]
    names = {name.rpartition("/")[2] for name in fleet.files()}
    assert names == {f"{checkpoint_id}.json" for checkpoint_id in ids[4:]} | {"latest.json"}
    assert len(fleet.sql("SELECT id FROM checkpoints")) == 100


async def test_old_errors_go_first_then_the_oldest_but_not_the_newest_milestone(tmp_path):
    async with opened(tmp_path, limits=Limits(checkpoints_per_mission=6)) as fleet:
        mission = await fleet.mission(4)
        await fleet.complete(mission, 0)
        (milestone,) = await fleet.checkpoint_ids(mission)

        async def by_hand():
            fleet.clock.pass_by(MINUTE)
            return (await fleet.checkpoint(mission)).id

        async def error(message):
            fleet.clock.pass_by(MINUTE)
            return await fail(fleet, mission, message)

        first, second = await by_hand(), await by_hand()
        old_error, new_error = await error("one"), await error("two")
        third = await by_hand()
        assert await fleet.checkpoint_ids(mission) == [
            third,
            new_error,
            old_error,
            second,
            first,
            milestone,
        ]
        # The newest three never go, also not the errors among them: the oldest other one does.
        fourth = await by_hand()
        assert set(await fleet.checkpoint_ids(mission)) == {
            fourth,
            third,
            new_error,
            second,
            first,
            milestone,
        }
        fifth = await by_hand()
        assert new_error not in await fleet.checkpoint_ids(mission)
        sixth = await by_hand()
        await fleet.settle()
        kept = {sixth, fifth, fourth, third, second, milestone}
        assert set(await fleet.checkpoint_ids(mission)) == kept
        names = {name.rpartition("/")[2] for name in fleet.files()}
        assert names == {f"{checkpoint_id}.json" for checkpoint_id in kept} | {"latest.json"}


async def test_over_a_megabyte_the_oldest_files_are_left_out(fleet, caplog):
    mission = await fleet.mission(1)
    files = [f"src/{'d' * 110}/{n:05}.py" for n in range(9_000)]
    declared = DeclaredContext(files_modified=files)

    checkpoint = await fleet.checkpoint(mission, recovery_context=declared)

    assert checkpoint.recovery_context.files_modified == files[:200]
    size, left_out = checkpoint.warnings
    assert size.endswith(" bytes, over the limit of 1000000")
    assert left_out == "8800 older files left out of files_modified"
    assert left_out in caplog.text
    assert fleet.file_of(checkpoint).stat().st_size < 50_000
    assert (await fleet.restore(checkpoint)).success
