"""CKP-001 to CKP-015 of the test plan: when a checkpoint is taken, and what it holds."""

import hashlib
import json

import msgspec
import pytest

from fleetd.protocol.errors import InvalidState, LockConflict
from fleetd.protocol.requests.agent import AgentDeregister
from fleetd.protocol.requests.checkpoint import CheckpointGet, ErrorReport
from fleetd.protocol.requests.lock import LockRelease
from fleetd.protocol.requests.message import MessageAck, MessageInbox, MessageSend
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieCreate,
    SortieFail,
    SortieRemove,
)
from tests.support.fleet import MINUTE, opened, place_of

OUTSIDE_THE_DIGEST = {
    "integrity",
    "source_details",
    "consumed_at",
    "backed_up_at",
    "storage_locations",
    "file_on",
    "warnings",
}
CHECKPOINTED = {
    "checkpoint_id",
    "mission_id",
    "trigger",
    "progress_percent",
    "sortie_count",
    "lock_count",
    "message_count",
}


def plain(record):
    return msgspec.to_builtins(record)


async def reached(fleet, percent):
    """Bring a mission of four sorties to a progress; return it with its newest checkpoint."""
    mission = await fleet.mission(4)
    await fleet.complete(mission, *range(percent // 25))
    newest = (await fleet.checkpoint_ids(mission))[0]
    return mission, await fleet.do(CheckpointGet(newest))


async def assert_milestone(fleet, percent):
    mission, checkpoint = await reached(fleet, percent)

    assert checkpoint.trigger == "progress"
    assert checkpoint.trigger_details == f"Reached {percent}% milestone"
    assert checkpoint.progress_percent == percent
    assert checkpoint.mission_id == mission.id
    completed = [sortie.status for sortie in checkpoint.sorties].count("completed")
    assert completed == percent // 25
    assert len(await fleet.checkpoint_ids(mission)) == percent // 25
    events = await fleet.events(mission)
    kinds = [event.type for event in events if event.type != "checkpoint_created"]
    # Taken by the very transaction that completed the sortie: nothing lies between the two.
    assert kinds[-2:] == ["sortie_completed", "fleet_checkpointed"]


@pytest.mark.case("CKP-001")
async def test_CKP_001_checkpoint_at_25_percent(fleet):
    await assert_milestone(fleet, 25)


@pytest.mark.case("CKP-002")
async def test_CKP_002_checkpoint_at_50_percent(fleet):
    await assert_milestone(fleet, 50)


@pytest.mark.case("CKP-003")
async def test_CKP_003_checkpoint_at_75_percent(fleet):
    await assert_milestone(fleet, 75)


async def test_one_step_over_several_milestones_makes_one_checkpoint_for_the_highest(fleet):
    mission = await fleet.mission(1)
    await fleet.complete(mission, 0)

    (only,) = await fleet.checkpoint_ids(mission)
    checkpoint = await fleet.do(CheckpointGet(only))

    assert (checkpoint.trigger_details, checkpoint.progress_percent) == (
        "Reached 75% milestone",
        100,
    )


async def test_a_milestone_never_fires_twice_also_after_sorties_were_added(fleet):
    mission = await fleet.mission(2)
    await fleet.complete(mission, 0)
    for number in range(2):
        await fleet.do(SortieCreate(mission.id, f"Added {number}"))
    assert (await fleet.again(mission)).progress_percent == 25

    await fleet.complete(mission, 1)

    assert (await fleet.again(mission)).progress_percent == 50
    assert len(await fleet.checkpoint_ids(mission)) == 1


async def test_removing_an_open_sortie_may_cross_a_milestone_too(fleet):
    mission = await fleet.mission(5)
    await fleet.complete(mission, 0)
    assert await fleet.checkpoint_ids(mission) == []

    await fleet.do(SortieRemove((await fleet.sorties(mission))[4].id))

    (only,) = await fleet.checkpoint_ids(mission)
    assert (await fleet.do(CheckpointGet(only))).trigger_details == "Reached 25% milestone"


@pytest.mark.case("CKP-004")
@pytest.mark.parametrize(
    ("completed", "total", "percent"),
    [(0, 0, 0), (0, 3, 0), (1, 2, 50), (1, 3, 33), (2, 3, 67), (1, 8, 13), (5, 8, 63), (3, 3, 100)],
)
async def test_CKP_004_progress_is_completed_of_total_half_up(fleet, completed, total, percent):
    mission = await fleet.mission(total)
    await fleet.complete(mission, *range(completed))

    now = await fleet.again(mission)

    assert now.progress_percent == percent
    assert (now.completed_sorties, now.total_sorties) == (completed, total)
    assert (await fleet.checkpoint(mission)).progress_percent == percent


@pytest.mark.case("CKP-004")
async def test_CKP_004_a_failed_sortie_is_not_a_completed_one(fleet):
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0)
    await fleet.do(SortieFail((await fleet.sorties(mission))[1].id, "no way"))

    assert (await fleet.again(mission)).progress_percent == 25


@pytest.mark.case("CKP-005")
async def test_CKP_005_checkpoint_holds_every_sortie_with_all_its_fields(fleet):
    mission = await fleet.mission(6)
    sorties = await fleet.sorties(mission)
    await fleet.do(SortieAssign(sorties[0].id, "spec-1"))
    await fleet.work(mission, 1, "spec-2", 40, "Half of the parser")
    await fleet.work(mission, 2, "spec-1")
    await fleet.do(SortieBlock(sorties[2].id, "waiting for the schema"))
    await fleet.do(SortieFail(sorties[3].id, "impossible"))
    await fleet.complete(mission, 4)

    checkpoint = await fleet.checkpoint(mission, created_by="dispatch-1")

    live = [plain(sortie) for sortie in await fleet.sorties(mission)]
    for sortie in live:
        del sortie["mission_id"], sortie["recovery_context"], sortie["author"]
        del sortie["waits_for"]
    assert plain(checkpoint)["sorties"] == live
    assert [sortie.status for sortie in checkpoint.sorties] == [
        "assigned",
        "in_progress",
        "blocked",
        "failed",
        "completed",
        "pending",
    ]
    assert checkpoint.sorties[0].assigned_to == "spec-1"
    assert checkpoint.sorties[1].progress_notes == "Half of the parser"
    assert checkpoint.created_by == "dispatch-1"


@pytest.mark.case("CKP-006")
async def test_CKP_006_checkpoint_holds_every_lock_that_is_held(fleet):
    mission, other = await fleet.mission(1), await fleet.mission(1)
    await fleet.lock(mission, "src/gone.py", "spec-3", timeout_ms=1_000)
    fleet.clock.pass_by(1_000)
    first = await fleet.lock(mission, "src/a.py", "spec-1", purpose="refactor")
    second = await fleet.lock(mission, "src/b.py", "spec-2", timeout_ms=90_000)
    given_back = await fleet.lock(mission, "src/c.py", "spec-4")
    await fleet.do(LockRelease(given_back.id, "spec-4"))
    await fleet.lock(other, "src/d.py", "spec-5")

    checkpoint = await fleet.checkpoint(mission)

    live = sorted(await fleet.locks(mission), key=lambda lock: lock.file)
    assert sorted(checkpoint.active_locks, key=lambda lock: lock.file) == live
    assert [lock.id for lock in live] == [first.id, second.id]
    assert place_of(live[0].normalized_path) == str(fleet.project / "src" / "a.py")
    assert (live[0].purpose, live[1].timeout_ms) == ("refactor", 90_000)


@pytest.mark.case("CKP-007")
async def test_CKP_007_checkpoint_holds_every_message_not_yet_delivered(fleet):
    mission, other = await fleet.mission(1), await fleet.mission(1)
    first = await fleet.write(mission, ["spec-1"], "First", body="Please look", thread_id="t-1")
    both = await fleet.write(mission, ["spec-2", "spec-3"], "Both", priority="high")
    read = await fleet.write(mission, ["spec-4"], "Read")
    done = await fleet.write(mission, ["spec-4"], "Done")
    await fleet.write(other, ["spec-1"], "Elsewhere")
    await fleet.do(MessageInbox("spec-2"))
    await fleet.do(MessageInbox("spec-4"))
    await fleet.do(MessageAck(done.id, "spec-4"))

    checkpoint = await fleet.checkpoint(mission)

    assert plain(checkpoint)["pending_messages"] == [
        {
            "id": first.id,
            "from": "dispatch-1",
            "to": ["spec-1"],
            "subject": "First",
            "sent_at": fleet.clock.now,
            "delivered": False,
            "body": "Please look",
            "thread_id": "t-1",
            "priority": "medium",
        },
        {
            "id": both.id,
            "from": "dispatch-1",
            "to": ["spec-3"],
            "subject": "Both",
            "sent_at": fleet.clock.now,
            "delivered": False,
            "body": None,
            "thread_id": None,
            "priority": "high",
        },
    ]
    assert read.id not in {message.id for message in checkpoint.pending_messages}


@pytest.mark.case("CKP-008")
async def test_CKP_008_checkpoint_emits_fleet_checkpointed_with_exactly_its_data(fleet):
    mission = await fleet.mission(4)
    await fleet.lock(mission, "src/a.py", "spec-1")
    await fleet.write(mission, ["spec-1"])
    await fleet.complete(mission, 0)
    (checkpoint_id,) = await fleet.checkpoint_ids(mission)
    await fleet.checkpoint(mission)  # waits for its backup, and so for the one before

    (taken, _) = await fleet.events(mission, "fleet_checkpointed")

    assert set(taken.data) == CHECKPOINTED
    assert taken.data == {
        "checkpoint_id": checkpoint_id,
        "mission_id": mission.id,
        "trigger": "progress",
        "progress_percent": 25,
        "sortie_count": 4,
        "lock_count": 1,
        "message_count": 1,
    }
    assert taken.timestamp == fleet.clock.now
    created = await fleet.events(mission, "checkpoint_created")
    where = {"machine": fleet.engine.machine} if fleet.engine.machine else {}
    assert created[0].data == {
        "checkpoint_id": checkpoint_id,
        "mission_id": mission.id,
        "trigger": "progress",
        "storage_locations": ["sqlite", "file"],
        **where,
    }
    assert len(created) == 2


async def test_only_a_checkpoint_by_hand_counts_as_activity(fleet):
    mission = await fleet.mission(2)
    before = (await fleet.again(mission)).last_activity_at
    fleet.clock.pass_by(MINUTE)

    await fleet.checkpoint(mission, trigger="compaction")
    assert (await fleet.again(mission)).last_activity_at == before

    await fleet.checkpoint(mission)
    assert (await fleet.again(mission)).last_activity_at == fleet.clock.now


async def report(fleet, mission, **changes):
    """Report an error and return the checkpoint that it took."""
    values = {
        "agent_id": "spec-1",
        "kind": "exception",
        "name": "ValueError",
        "message": "Unhandled exception",
        "mission_id": mission.id,
    }
    result = await fleet.do(ErrorReport(**values | changes))
    return await fleet.do(CheckpointGet(result.checkpoint_id))


@pytest.mark.case("CKP-009")
async def test_CKP_009_checkpoint_on_unhandled_exception(fleet):
    mission = await fleet.mission()

    checkpoint = await report(fleet, mission)

    assert checkpoint.trigger == "error"
    assert checkpoint.trigger_details == "ValueError: Unhandled exception"
    assert "Error: Unhandled exception" in checkpoint.recovery_context.blockers
    assert checkpoint.created_by == "spec-1"
    (event,) = await fleet.events(mission, "error_reported")
    assert event.data == {
        "kind": "exception",
        "name": "ValueError",
        "message": "Unhandled exception",
    }


@pytest.mark.case("CKP-010")
@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_CKP_010_checkpoint_on_api_error(fleet, status):
    mission = await fleet.mission()

    checkpoint = await report(
        fleet, mission, kind="api_error", name="APIError", message="overloaded", status=status
    )

    assert checkpoint.trigger == "error"
    assert checkpoint.trigger_details == "APIError: overloaded"
    assert checkpoint.recovery_context.blockers[0] == "Error: overloaded"
    (event,) = await fleet.events(mission, "error_reported")
    assert event.data["status"] == status


@pytest.mark.case("CKP-011")
async def test_CKP_011_checkpoint_on_lock_timeout(fleet, autojump_clock):
    fleet.clock.follow_trio()
    mission = await fleet.mission()
    await fleet.lock(mission, "src/a.py", "spec-1")

    with pytest.raises(LockConflict) as refused:
        await fleet.lock(mission, "src/a.py", "spec-2", wait_ms=2_000)

    assert refused.value.values["existing_lock"].held_by == "spec-1"
    (checkpoint_id,) = await fleet.checkpoint_ids(mission, "error")
    checkpoint = await fleet.do(CheckpointGet(checkpoint_id))
    assert checkpoint.created_by == "spec-2"
    told = "waited 2000 ms for src/a.py, held by spec-1"
    assert checkpoint.trigger_details == f"LockTimeout: {told}"
    assert checkpoint.recovery_context.blockers[0] == f"Error: {told}"


async def test_a_refusal_without_a_wait_is_no_timeout(fleet):
    mission = await fleet.mission()
    await fleet.lock(mission, "src/a.py", "spec-1")

    with pytest.raises(LockConflict):
        await fleet.lock(mission, "src/a.py", "spec-2")

    assert await fleet.checkpoint_ids(mission) == []


async def test_checkpoint_on_message_delivery_failure(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "dispatch-1", "spec-1")
    await fleet.do(AgentDeregister("spec-1"))

    with pytest.raises(InvalidState, match="spec-1 has left the fleet") as refused:
        await fleet.write(mission, ["spec-1"], "Review")

    assert refused.value.values["gone"] == ["spec-1"]
    (failed,) = await fleet.events(mission, "message_failed")
    assert (failed.agent_id, failed.data["to"]) == ("dispatch-1", ["spec-1"])
    (checkpoint_id,) = await fleet.checkpoint_ids(mission, "error")
    blockers = (await fleet.do(CheckpointGet(checkpoint_id))).recovery_context.blockers
    assert blockers[0] == "Error: message to spec-1 could not be delivered: Review"


async def test_a_letter_to_nobody_yet_is_no_failure(fleet):
    mission = await fleet.mission()

    await fleet.do(MessageSend("dispatch-1", ["not-here-yet"], "Welcome", mission_id=mission.id))

    assert await fleet.checkpoint_ids(mission) == []
    (letter,) = (await fleet.do(MessageInbox("not-here-yet"))).messages
    assert letter.subject == "Welcome"


@pytest.mark.case("CKP-012")
async def test_CKP_012_the_error_stands_first_in_the_blockers(fleet):
    mission = await fleet.mission()
    await fleet.work(mission, 0, "spec-1")
    await fleet.do(SortieBlock((await fleet.sorties(mission))[0].id, "no schema"))

    checkpoint = await report(fleet, mission, message="Lock acquisition timeout")

    assert checkpoint.recovery_context.blockers == [
        "Error: Lock acquisition timeout",
        "S0: “no schema”",
    ]


@pytest.mark.case("CKP-013")
@pytest.mark.parametrize(
    "kind", ["exception", "api_error", "lock_timeout", "delivery_failure", "tool_failure"]
)
async def test_CKP_013_the_trigger_of_every_kind_of_error_is_error(fleet, kind):
    mission = await fleet.mission()

    checkpoint = await report(fleet, mission, kind=kind, name="Name", message="text")

    assert checkpoint.trigger == "error"
    assert checkpoint.trigger_details == "Name: text"
    assert await fleet.checkpoint_ids(mission, "error") == [checkpoint.id]


@pytest.mark.case("CKP-014")
async def test_CKP_014_checkpoint_ids_are_unique(fleet):
    mission = await fleet.mission()

    ids = [(await fleet.checkpoint(mission, wait_for_backup=False)).id for _ in range(50)]

    assert len(set(ids)) == 50
    assert all(len(i) == 12 and i.startswith("chk-") and int(i[4:], 16) >= 0 for i in ids)
    assert all(i == i.lower() for i in ids)


@pytest.mark.case("CKP-014")
async def test_CKP_014_an_id_that_is_taken_is_drawn_again(tmp_path):
    drawn = iter(f"{n:08x}" for n in (1, 2, 2, 2, 3))
    numbers = iter(range(1_000))

    def new_id(prefix):
        return f"{prefix}-{next(drawn) if prefix == 'chk' else f'{next(numbers):08x}'}"

    async with opened(tmp_path, new_id=new_id) as fleet:
        mission = await fleet.mission()
        ids = [(await fleet.checkpoint(mission)).id for _ in range(3)]

    assert ids == ["chk-00000001", "chk-00000002", "chk-00000003"]


@pytest.mark.case("CKP-015")
async def test_CKP_015_checkpoint_carries_its_version_and_a_checksum_anybody_can_form(fleet):
    mission = await fleet.mission(2, title='Größe "Ω" \U0001f680 \\ \n\t\x1b end')
    await fleet.lock(mission, "src/ü.py", "spec-1")
    await fleet.write(mission, ["spec-1"], "Ωmega", body="zwei\nZeilen")

    checkpoint = plain(await fleet.checkpoint(mission, "Vor dem Umbau: äöü"))

    assert checkpoint["version"] == "1.0.0"
    assert checkpoint["integrity"]["algorithm"] == "sha256"
    assert checkpoint["integrity"]["format_version"] == 1
    content = {name: v for name, v in checkpoint.items() if name not in OUTSIDE_THE_DIGEST}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    assert checkpoint["integrity"]["digest"] == digest
    (row,) = fleet.sql("SELECT digest, version FROM checkpoints")
    assert row == {"digest": digest, "version": "1.0.0"}
