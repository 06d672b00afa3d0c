"""RST-001 to RST-012 of the test plan: what a recovery brings back, and how it says so."""

import hashlib
import json

import msgspec
import pytest

from fleetd.protocol.errors import Incompatible, InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentGet, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointLatest
from fleetd.protocol.requests.lock import LockAcquire, LockRelease
from fleetd.protocol.requests.message import MessageAck, MessageInbox, MessageList
from fleetd.protocol.requests.mission import MissionCreate, MissionStart
from fleetd.protocol.requests.recovery import RecoveryList
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieGet,
    SortieProgress,
    SortieStart,
)
from tests.support.fleet import MINUTE, SECOND, place_of

RECOVERED = {
    "checkpoint_id",
    "mission_id",
    "recovered_sorties",
    "recovered_locks",
    "requeued_messages",
    "recovery_duration_ms",
    "sorties_restored",
    "locks_restored",
    "messages_requeued",
    "errors",
    "warnings",
    "progress",
}


def plain(record):
    return msgspec.to_builtins(record)


async def busy_mission(fleet):
    """Return a mission in the middle of its work: two agents, a lock each, mail for both."""
    mission = await fleet.mission(4)
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    await fleet.complete(mission, 0)
    await fleet.work(mission, 1, "spec-1", 60, "Half of the parser")
    await fleet.work(mission, 2, "spec-2", 30, "Routes")
    await fleet.lock(mission, "src/1.py", "spec-1")
    await fleet.lock(mission, "src/2.py", "spec-2")
    await fleet.write(mission, ["spec-1"], "Review auth")
    return mission


@pytest.mark.case("RST-001")
async def test_RST_001_recovery_starts_from_the_newest_checkpoint_in_sqlite(fleet):
    mission = await busy_mission(fleet)
    await fleet.checkpoint(mission, "older")
    fleet.clock.pass_by(MINUTE)
    newest = await fleet.checkpoint(mission, "newest")
    for path in fleet.checkpoints.rglob("*.json"):
        path.unlink()  # the row alone must do

    result = await fleet.restore(mission_id=mission.id)

    assert result.success is True
    assert result.checkpoint_id == newest.id == (await fleet.do(CheckpointLatest(mission.id))).id
    assert result.mission_id == mission.id
    assert plain(result.restored) == {"sorties": 4, "locks": 2, "messages": 1}
    told = f"the file of {newest.id} was missing; its database row was used"
    assert result.warnings == [told]
    await fleet.settle()
    assert fleet.file_of(newest).exists()
    assert (await fleet.do(CheckpointGet(newest.id))).consumed_at == fleet.clock.now


@pytest.mark.case("RST-001")
async def test_RST_001_without_a_name_the_newest_silent_mission_of_the_directory_is_recovered(
    fleet,
):
    older, newer = await fleet.mission(1, title="Older"), await fleet.mission(1, title="Newer")
    await fleet.checkpoint(older)
    fleet.clock.pass_by(MINUTE)
    wanted = await fleet.checkpoint(newer)
    fleet.clock.pass_by(MINUTE)
    elsewhere = await fleet.do(MissionCreate("Elsewhere", project_dir="/srv/elsewhere"))
    await fleet.do(MissionStart(elsewhere.id))
    await fleet.checkpoint(elsewhere)
    fleet.clock.pass_by(5 * MINUTE + 1)

    result = await fleet.restore(cwd=str(fleet.project))

    assert (result.mission_id, result.checkpoint_id) == (newer.id, wanted.id)
    assert (result.project_dir, result.mission_title) == (str(fleet.project), "Newer")
    with pytest.raises(InvalidState, match="3 missions wait for recovery") as error:
        await fleet.restore()
    found = [each["id"] for each in error.value.values["candidates"]]
    assert found == [elsewhere.id, newer.id, older.id]


@pytest.mark.case("RST-001")
async def test_RST_001_nothing_to_recover_is_said(fleet):
    with pytest.raises(InvalidState, match=r"^No missions need recovery\.$"):
        await fleet.restore(cwd=str(fleet.project))

    mission = await fleet.mission(1)
    with pytest.raises(InvalidState, match=f"^No checkpoint found for mission: {mission.id}$"):
        await fleet.restore(mission_id=mission.id)


@pytest.mark.case("RST-002")
async def test_RST_002_recovery_from_a_checkpoint_that_is_named(fleet):
    mission = await busy_mission(fleet)
    named = await fleet.checkpoint(mission, "named")
    await fleet.work(mission, 1, "spec-1", 90, "Nearly there")
    fleet.clock.pass_by(MINUTE)
    await fleet.checkpoint(mission, "newer")

    result = await fleet.restore(named)

    assert result.checkpoint_id == named.id
    sortie = (await fleet.sorties(mission))[1]
    assert (sortie.progress, sortie.progress_notes) == (60, "Half of the parser")
    (recovery,) = (await fleet.do(RecoveryList(mission.id))).recoveries
    assert (recovery.id, recovery.checkpoint_id) == (result.recovery_id, named.id)
    assert recovery.state == "briefed"


@pytest.mark.case("RST-002")
async def test_RST_002_a_checkpoint_that_does_not_exist(fleet):
    with pytest.raises(NotFound, match=r"^Checkpoint not found: chk-00000000$"):
        await fleet.restore(checkpoint_id="chk-00000000")


@pytest.mark.case("RST-003")
async def test_RST_003_sorties_go_back_to_what_the_checkpoint_says(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)
    before = [plain(sortie) for sortie in await fleet.sorties(mission)]
    sorties = await fleet.sorties(mission)
    fleet.clock.pass_by(SECOND)
    await fleet.do(SortieProgress(sorties[1].id, 95, "Rewrote it all", files=["src/other.py"]))
    await fleet.do(SortieBlock(sorties[2].id, "no disk"))
    await fleet.do(SortieAssign(sorties[3].id, "spec-2"))

    result = await fleet.restore(checkpoint)

    assert result.restored.sorties == 4
    after = [plain(sortie) for sortie in await fleet.sorties(mission)]
    for sortie in (*before, *after):
        del sortie["updated_at"], sortie["recovery_context"]
    assert after == before
    changed = await fleet.events(mission, "sortie_restored")
    assert [(event.data["sortie_id"], event.data["status"]) for event in changed] == [
        (sorties[1].id, "in_progress"),
        (sorties[2].id, "in_progress"),
        (sorties[3].id, "pending"),
    ]


@pytest.mark.case("RST-003")
async def test_RST_003_a_sortie_that_the_store_has_lost_is_made_again(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)
    lost = (await fleet.sorties(mission))[1]
    fleet.sql("DELETE FROM sorties WHERE id = :id", id=lost.id)

    await fleet.restore(checkpoint)

    found = (await fleet.sorties(mission))[1]
    ignored = {"recovery_context": None, "updated_at": ""}
    assert msgspec.structs.replace(found, **ignored) == msgspec.structs.replace(lost, **ignored)
    assert (await fleet.again(mission)).total_sorties == 4


@pytest.mark.case("RST-003")
async def test_RST_003_each_open_sortie_carries_its_context_until_its_next_progress(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.restore(checkpoint)

    sorties = await fleet.sorties(mission)
    assert [sortie.recovery_context is not None for sortie in sorties] == [
        False,
        True,
        True,
        False,
    ]
    own = sorties[1].recovery_context
    assert own.files_modified == ["src/1.py"]
    assert own.next_steps == ["S1 (in progress, 60%): “Half of the parser”"]

    await fleet.do(SortieProgress(sorties[1].id, 70))
    sorties = await fleet.sorties(mission)
    assert sorties[1].recovery_context is None
    assert sorties[2].recovery_context is not None


async def test_what_sorties_carry_stands_once_for_each_agent_however_often_it_recovers(fleet):
    mission = await fleet.mission(6)
    await fleet.agents(mission, "spec-1", "spec-2")
    for position in range(6):
        await fleet.work(mission, position, "spec-1" if position < 4 else "spec-2")
    checkpoint = await fleet.checkpoint(mission)
    for _ in range(3):
        await fleet.restore(checkpoint)

    carried = [sortie.recovery_context for sortie in await fleet.sorties(mission)]
    assert len(fleet.dump()["briefings"]) == 2
    assert [len(part.next_steps) for part in carried] == [4, 4, 4, 4, 2, 2]

    await fleet.restore(checkpoint, scope="agent", agent_id="spec-2")
    assert len(fleet.dump()["briefings"]) == 2
    first = (await fleet.sorties(mission))[0]
    assert (await fleet.do(SortieGet(first.id))).recovery_context == carried[0]


@pytest.mark.case("RST-004")
async def test_RST_004_valid_locks_are_taken_again_for_their_holders(fleet):
    mission = await busy_mission(fleet)
    released, held = sorted(await fleet.locks(mission), key=lambda lock: lock.file)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(released.id, "spec-1"))
    fleet.clock.pass_by(MINUTE)

    result = await fleet.restore(checkpoint)

    locks = sorted(await fleet.locks(mission), key=lambda lock: lock.file)
    assert [(lock.file, lock.held_by) for lock in locks] == [
        ("src/1.py", "spec-1"),
        ("src/2.py", "spec-2"),
    ]
    assert result.restored.locks == 2
    assert (result.errors, result.warnings) == ([], [])
    assert min(lock.fencing_token for lock in locks) > held.fencing_token
    assert {lock.acquired_at for lock in locks} == {fleet.clock.now}
    assert all(lock.expires_at > held.expires_at for lock in locks)
    assert {lock.normalized_path for lock in locks} == {
        released.normalized_path,
        held.normalized_path,
    }


@pytest.mark.case("RST-005")
async def test_RST_005_recovery_context_is_put_into_the_prompt(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)

    result = await fleet.restore(checkpoint, agent_id="dispatch-1")

    context = result.recovery_context
    assert context.mission_summary == "Implementing authentication"
    assert context.last_action == "dispatch-1 wrote to spec-1: “Review auth”"
    assert context.next_steps == [
        "S1 (in progress by spec-1, 60%): “Half of the parser”",
        "S2 (in progress by spec-2, 30%): “Routes”",
        "S3 (pending)",
    ]
    assert context.blockers == []
    assert set(context.files_modified) == {"src/0.py", "src/1.py", "src/2.py"}
    assert result.prompt.startswith("## Recovery Context\n")
    for text in (context.mission_summary, context.last_action, *context.next_steps):
        assert text in result.prompt
    (briefed,) = await fleet.events(mission, "recovery_briefed")
    assert briefed.data == {"recovery_id": result.recovery_id}
    assert briefed.agent_id == "dispatch-1"


@pytest.mark.case("RST-006")
async def test_RST_006_fleet_recovered_has_the_fields_of_both_documents(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)
    (lock, _) = await fleet.locks(mission)
    await fleet.do(LockRelease(lock.id, lock.held_by))
    await fleet.do(LockAcquire("intruder", place_of(lock.normalized_path)))
    activity = (await fleet.again(mission)).last_activity_at
    fleet.clock.pass_by(MINUTE)

    await fleet.restore(checkpoint)

    (event,) = await fleet.events(mission, "fleet_recovered")
    assert set(event.data) == RECOVERED
    took = event.data.pop("recovery_duration_ms")
    assert isinstance(took, int)
    assert took >= 0
    assert event.data == {
        "checkpoint_id": checkpoint.id,
        "mission_id": mission.id,
        "recovered_sorties": 4,
        "recovered_locks": 1,
        "requeued_messages": 1,
        "sorties_restored": 4,
        "locks_restored": 1,
        "messages_requeued": 1,
        "errors": 1,
        "warnings": 0,
        "progress": 25,
    }
    assert event.timestamp == fleet.clock.now
    # What the daemon does by itself is no activity: the mission is as silent as before.
    assert (await fleet.again(mission)).last_activity_at == activity


@pytest.mark.case("RST-007")
async def test_RST_007_locks_of_crashed_agents_are_released(fleet, mortal):
    mission = await fleet.mission(2)
    process = mortal()
    await fleet.do(AgentRegister("spec-1", "specialist", pid=process.pid, mission_id=mission.id))
    await fleet.agents(mission, "spec-2")
    await fleet.lock(mission, "src/kept.py", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    orphan = await fleet.lock(mission, "src/orphan.py", "spec-1")
    living = await fleet.lock(mission, "src/living.py", "spec-2")
    process.kill()
    process.wait()

    result = await fleet.restore(checkpoint)

    assert result.released_locks == ["src/orphan.py"]
    held = {lock.file: lock for lock in await fleet.locks(mission)}
    assert set(held) == {"src/kept.py", "src/living.py"}
    assert held["src/living.py"] == living
    assert held["src/kept.py"].held_by == "spec-1"
    (lost,) = await fleet.events(mission, "agent_lost")
    assert lost.agent_id == "spec-1"
    assert (await fleet.do(AgentGet("spec-1"))).status == "lost"
    (forced,) = await fleet.events(mission, "lock_force_released")
    assert (forced.data["lock_id"], forced.data["held_by"]) == (orphan.id, "spec-1")
    again = await fleet.lock(mission, "src/orphan.py", "spec-2")
    assert again.fencing_token > orphan.fencing_token


@pytest.mark.case("RST-007")
async def test_RST_007_a_dead_agent_does_not_keep_a_lock_from_its_holder(fleet, mortal):
    mission = await fleet.mission(2)
    lock = await fleet.lock(mission, "src/0.py", "spec-2")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(lock.id, "spec-2"))
    process = mortal()
    await fleet.do(AgentRegister("spec-1", "specialist", pid=process.pid, mission_id=mission.id))
    await fleet.lock(mission, "src/0.py", "spec-1")
    process.kill()
    process.wait()

    result = await fleet.restore(checkpoint)

    assert result.errors == []
    assert result.released_locks == ["src/0.py"]
    assert [(lock.file, lock.held_by) for lock in await fleet.locks()] == [("src/0.py", "spec-2")]


@pytest.mark.case("RST-008")
async def test_RST_008_expired_locks_are_named_and_taken_again(fleet):
    mission = await fleet.mission(2)
    lock = await fleet.lock(mission, "src/auth.ts", "spec-1", timeout_ms=SECOND)
    checkpoint = await fleet.checkpoint(mission)
    fleet.clock.pass_by(MINUTE)

    result = await fleet.restore(checkpoint)

    assert result.success is True
    assert result.recovery_context.blockers == ["Lock expired: src/auth.ts"]
    assert result.warnings == ["Lock expired: src/auth.ts (was held by spec-1)"]
    assert result.errors == []
    assert result.restored.locks == 1
    (again,) = await fleet.locks(mission)
    assert (again.held_by, again.timeout_ms) == ("spec-1", SECOND)
    assert again.fencing_token > lock.fencing_token


@pytest.mark.case("RST-008")
@pytest.mark.parametrize(("after_ms", "expired"), [(29_999, False), (30_000, True)])
async def test_RST_008_a_record_without_expires_at_lasts_its_timeout(fleet, after_ms, expired):
    mission = await fleet.mission(1)
    await fleet.lock(mission, "src/auth.ts", "spec-1", timeout_ms=30 * SECOND)
    checkpoint = await fleet.checkpoint(mission)
    content = json.loads(fleet.file_of(checkpoint).read_bytes())
    del content["active_locks"][0]["expires_at"], content["integrity"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content["integrity"] = {"digest": hashlib.sha256(text.encode()).hexdigest()}
    fleet.file_of(checkpoint).write_text(json.dumps(content))
    fleet.sql("DELETE FROM checkpoints")
    fleet.sql("DELETE FROM locks")
    fleet.clock.pass_by(after_ms)

    result = await fleet.restore(checkpoint)

    told = ["Lock expired: src/auth.ts"] if expired else []
    assert result.recovery_context.blockers == told
    assert result.restored.locks == 1


@pytest.mark.case("RST-009")
async def test_RST_009_lock_conflicts_are_errors_and_blockers(fleet):
    mission = await fleet.mission(2)
    lock = await fleet.lock(mission, "src/auth.ts", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(lock.id, "spec-1"))
    other = await fleet.do(LockAcquire("other-agent", place_of(lock.normalized_path)))

    result = await fleet.restore(checkpoint)

    told = "Lock conflict: src/auth.ts held by other-agent"
    assert result.success is True
    assert result.errors == [told]
    assert result.recovery_context.blockers == [told]
    assert result.restored.locks == 0
    assert f"### Current Blockers\n- {told}\n" in result.prompt
    assert f"### Recovery Errors\n- {told}" in result.prompt
    assert await fleet.locks() == [other]
    (event,) = await fleet.events(mission, "lock_conflicted")
    assert (event.data["held_by"], event.data["wanted_by"]) == ("other-agent", "spec-1")


@pytest.mark.case("RST-010")
async def test_RST_010_undelivered_messages_are_queued_again(fleet):
    mission = await fleet.mission(1)
    lost = await fleet.write(mission, ["spec-1", "spec-2"], "Lost")
    kept = await fleet.write(mission, ["spec-1"], "Kept")
    checkpoint = await fleet.checkpoint(mission)
    fleet.sql("DELETE FROM deliveries WHERE message_id = :id", id=lost.id)
    fleet.sql("DELETE FROM messages WHERE id = :id", id=lost.id)

    result = await fleet.restore(checkpoint)

    assert result.restored.messages == 2
    letters = (await fleet.do(MessageInbox("spec-1"))).messages
    assert {letter.id for letter in letters} == {lost.id, kept.id}
    (other,) = (await fleet.do(MessageInbox("spec-2"))).messages
    assert (other.subject, other.sender, other.body) == ("Lost", "dispatch-1", None)
    requeued = await fleet.events(mission, "message_requeued")
    assert [event.data["message_id"] for event in requeued] == [lost.id, lost.id]


@pytest.mark.case("RST-010")
async def test_RST_010_what_was_delivered_since_is_not_delivered_twice(fleet, caplog):
    caplog.set_level("INFO")
    mission = await fleet.mission(1)
    read = await fleet.write(mission, ["spec-1"], "Read")
    done = await fleet.write(mission, ["spec-1"], "Done")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(MessageInbox("spec-1"))
    await fleet.do(MessageAck(done.id, "spec-1"))
    before = (await fleet.do(MessageList(mission.id))).messages

    result = await fleet.restore(checkpoint)

    assert result.restored.messages == 0
    assert (await fleet.do(MessageList(mission.id))).messages == before
    assert await fleet.events(mission, "message_requeued") == []
    for letter, state in ((read, "delivered"), (done, "acked")):
        told = f"Message {letter.id} not queued again for spec-1: it was {state} already"
        assert told in caplog.text


@pytest.mark.case("RST-011")
async def test_RST_011_a_checkpoint_of_a_newer_version_is_refused_and_nothing_changes(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)
    content = json.loads(fleet.file_of(checkpoint).read_bytes()) | {"version": "2.0.0"}
    del content["integrity"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    fleet.sql(
        "UPDATE checkpoints SET version = '2.0.0', digest = :digest WHERE id = :id",
        digest=digest,
        id=checkpoint.id,
    )
    await fleet.work(mission, 1, "spec-1", 99)
    before = fleet.dump()

    with pytest.raises(Incompatible, match=r"version 2\.0\.0; this fleetd reads 1\.0\.0"):
        await fleet.restore(checkpoint)

    assert fleet.dump() == before


@pytest.mark.case("RST-012")
async def test_RST_012_twice_is_the_same_as_once(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.work(mission, 1, "spec-1", 90, "Nearly there")
    sorties = await fleet.sorties(mission)
    await fleet.do(SortieComplete(sorties[2].id))
    await fleet.do(SortieStart(sorties[3].id, "spec-2"))

    async def state():
        locks = [(lock.file, lock.held_by, lock.purpose) for lock in await fleet.locks()]
        mail = (await fleet.do(MessageList(mission.id))).messages
        return await fleet.sorties(mission), sorted(locks), mail, await fleet.again(mission)

    first = await fleet.restore(checkpoint, requested_by="dispatch-1")
    once = await state()
    second = await fleet.restore(checkpoint, requested_by="spec-1")
    twice = await state()

    assert twice == once
    assert once[0][1].status == "in_progress"
    assert second.restored == first.restored
    assert second.kept == first.kept
    assert second.recovery_context == first.recovery_context
    told = f"by dispatch-1 at {fleet.clock.now} ({first.recovery_id}); nothing has happened since"
    assert second.warnings == [f"Already recovered from {checkpoint.id} {told}"]
    assert len(await fleet.events(mission, "fleet_recovered")) == 2
    assert len(await fleet.events(mission, "sortie_restored")) == 2


@pytest.mark.case("RST-012")
async def test_RST_012_a_failed_recovery_leaves_nothing_behind(fleet):
    mission = await busy_mission(fleet)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.work(mission, 1, "spec-1", 90)
    fleet.sql(
        "CREATE TRIGGER broken BEFORE INSERT ON recoveries"
        " BEGIN SELECT RAISE(ABORT, 'planted'); END"
    )
    before = fleet.dump()

    with pytest.raises(Exception, match="planted"):
        await fleet.restore(checkpoint)

    assert fleet.dump() == before
    fleet.sql("DROP TRIGGER broken")
    assert (await fleet.restore(checkpoint)).success
