"""What differs between two checkpoints, or a checkpoint and now."""

import msgspec
import pytest

from fleetd.protocol.checkpoint_diff import CheckpointDifference
from fleetd.protocol.errors import InvalidParams, NotFound
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import CheckpointCompare
from fleetd.protocol.requests.lock import LockRelease
from fleetd.protocol.requests.message import MessageInbox
from fleetd.protocol.requests.mission import MissionComplete
from fleetd.protocol.requests.sortie import SortieCreate, SortieRemove
from tests.support.fleet import MINUTE, Fleet


async def two(fleet: Fleet) -> tuple[Mission, Checkpoint, Checkpoint]:
    """Return a mission with a checkpoint before and one after an hour's work."""
    mission = await fleet.mission(4)
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    await fleet.work(mission, 0, "spec-1", 30, "Half way")
    held = await fleet.lock(mission, "src/0.py", "spec-1")
    await fleet.lock(mission, "src/same.py", "spec-1")
    await fleet.write(mission, ["spec-1", "spec-2"], "Both")
    await fleet.write(mission, ["spec-2"], "Read me")
    before = await fleet.checkpoint(mission, "Before")
    fleet.clock.pass_by(MINUTE)
    await fleet.complete(mission, 0)
    await fleet.work(mission, 1, "spec-2", 60, "Nearly")
    await fleet.do(LockRelease(held.id, "spec-1"))
    await fleet.lock(mission, "src/0.py", "spec-2")
    await fleet.lock(mission, "src/1.py", "spec-2")
    sorties = await fleet.sorties(mission)
    await fleet.do(SortieRemove(sorties[3].id))
    await fleet.do(SortieCreate(mission.id, "Afterthought"))
    await fleet.do(MessageInbox("spec-2"))
    await fleet.write(mission, ["spec-1"], "New")
    return mission, before, await fleet.checkpoint(mission, "After")


def fields(found: CheckpointDifference) -> dict[str, dict[str, object]]:
    return {
        sortie.title: {each.field: each.after for each in sortie.changes}
        for sortie in found.sorties.changed
    }


async def test_everything_that_is_different_is_named_field_by_field(fleet: Fleet) -> None:
    mission, before, after = await two(fleet)

    found = await fleet.do(CheckpointCompare(before.id, after.id))

    assert (found.mission_id, found.equal) == (mission.id, False)
    assert (found.before.checkpoint_id, found.after.checkpoint_id) == (before.id, after.id)
    assert (found.before.progress_percent, found.after.progress_percent) == (0, 25)
    assert (found.before.completed_sorties, found.after.completed_sorties) == (0, 1)
    assert found.before.seq < found.after.seq
    assert fields(found) == {
        "S0": {"status": "completed", "progress": 100},
        "S1": {
            "status": "in_progress",
            "assigned_to": "spec-2",
            "progress": 60,
            "progress_notes": "Nearly",
        },
    }
    assert [sortie.title for sortie in found.sorties.added] == ["Afterthought"]
    assert [sortie.title for sortie in found.sorties.removed] == ["S3"]
    assert [(c.before, c.after) for c in found.locks.changed] == [("spec-1", "spec-2")]
    assert [lock.file[-8:] for lock in found.locks.gained] == ["src/1.py"]
    assert found.locks.released == []
    assert [each.subject for each in found.messages.new] == ["New"]
    assert [each.subject for each in found.messages.gone] == ["Read me"]
    assert [(c.subject, c.before, c.after) for c in found.messages.changed] == [
        ("Both", ["spec-1", "spec-2"], ["spec-1"])
    ]
    context = {each.field: (each.before, each.after) for each in found.recovery_context}
    assert context["next_steps"][0] == before.recovery_context.next_steps
    assert context["next_steps"][1] == after.recovery_context.next_steps


async def test_what_is_now_is_what_a_checkpoint_taken_now_would_hold(fleet: Fleet) -> None:
    mission, before, _ = await two(fleet)

    now = await fleet.do(CheckpointCompare(before.id))
    taken = await fleet.checkpoint(mission)
    then = await fleet.do(CheckpointCompare(before.id, taken.id))

    assert (now.after.checkpoint_id, now.after.trigger) == (None, None)
    assert msgspec.structs.replace(now, after=then.after) == then
    assert (await fleet.do(CheckpointCompare(taken.id))).equal


async def test_two_checkpoints_of_the_same_are_equal_whatever_time_passed(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    await fleet.lock(mission, "a.py", "spec-1")
    first = await fleet.checkpoint(mission)
    fleet.clock.pass_by(MINUTE)
    second = await fleet.checkpoint(mission)

    found = await fleet.do(CheckpointCompare(first.id, second.id))

    assert found.equal
    assert (found.mission, found.recovery_context) == ([], [])


async def test_backwards_is_the_reverse(fleet: Fleet) -> None:
    _, before, after = await two(fleet)

    there = await fleet.do(CheckpointCompare(before.id, after.id))
    back = await fleet.do(CheckpointCompare(after.id, before.id))

    assert [s.id for s in back.sorties.added] == [s.id for s in there.sorties.removed]
    assert [(c.before, c.after) for c in back.locks.changed] == [("spec-2", "spec-1")]
    assert back.before.seq > back.after.seq


async def test_checkpoints_of_different_missions_are_refused_and_named(fleet: Fleet) -> None:
    first = await fleet.checkpoint(await fleet.mission(1, title="Login"))
    other = await fleet.checkpoint(await fleet.mission(1, title="Search"))

    with pytest.raises(InvalidParams) as refused:
        await fleet.do(CheckpointCompare(first.id, other.id))

    assert f"{first.mission_id} (Login)" in refused.value.message
    assert f"{other.mission_id} (Search)" in refused.value.message


async def test_a_damaged_row_is_healed_and_told(fleet: Fleet) -> None:
    _, before, after = await two(fleet)
    await fleet.settle()
    fleet.sql("UPDATE checkpoints SET locks_json = '[]' WHERE id = :id", id=before.id)

    found = await fleet.do(CheckpointCompare(before.id, after.id))

    assert [c.after for c in found.locks.changed] == ["spec-2"]
    assert found.warnings == [
        f"the database row of {before.id} was damaged; it was restored from its file"
    ]
    assert (await fleet.do(CheckpointCompare(before.id, after.id))).warnings == []


async def test_prefixes_will_do_and_unknown_ones_are_named(fleet: Fleet) -> None:
    _, before, after = await two(fleet)

    found = await fleet.do(CheckpointCompare(before.id[:10], after.id[:10]))
    assert (found.before.checkpoint_id, found.after.checkpoint_id) == (before.id, after.id)
    with pytest.raises(NotFound, match="chk-00000000"):
        await fleet.do(CheckpointCompare(before.id, "chk-00000000"))


async def test_a_mission_that_ended_is_told_of(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    before = await fleet.checkpoint(mission)
    await fleet.complete(mission, 0)
    await fleet.do(MissionComplete(mission.id))

    found = await fleet.do(CheckpointCompare(before.id))

    assert [(c.field, c.before, c.after) for c in found.mission] == [
        ("status", "in_progress", "completed")
    ]
    assert found.after.progress_percent == 100
