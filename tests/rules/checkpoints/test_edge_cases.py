"""EDGE-001 to EDGE-008 of the test plan; EDGE-003 and every combination is in test_two_copies."""

import json

import pytest

from fleetd.config import Retention
from fleetd.protocol.errors import Corrupt, Incompatible, NotFound
from fleetd.protocol.requests.checkpoint import (
    CheckpointGet,
    CheckpointLatest,
    CheckpointVerify,
)
from fleetd.protocol.requests.lock import LockAcquire, LockRelease
from tests.support.fleet import DAY, opened


@pytest.fixture
async def kept(fleet):
    """Return a mission's only checkpoint."""
    return await fleet.checkpoint(await fleet.mission(2), "Kept")


@pytest.mark.case("EDGE-001")
async def test_EDGE_001_invalid_json_in_the_file_falls_back_to_sqlite(fleet, kept):
    fleet.file_of(kept).write_text("INVALID JSON {")

    assert await fleet.do(CheckpointLatest(kept.mission_id)) == kept
    (found,) = (await fleet.do(CheckpointVerify())).findings
    assert (found.ok, found.subject) == (False, kept.id)
    assert f"Corrupted checkpoint file: {fleet.file_of(kept)} is not a checkpoint" in found.detail
    assert "JSON" in found.detail
    assert (await fleet.restore(kept)).checkpoint_id == kept.id


@pytest.mark.case("EDGE-002")
async def test_EDGE_002_a_missing_file_leaves_the_sqlite_record_and_is_warned_of(
    fleet, kept, caplog
):
    fleet.file_of(kept).unlink()

    assert await fleet.do(CheckpointGet(kept.id)) == kept
    result = await fleet.restore(kept)

    warning = f"the file of {kept.id} was missing; its database row was used"
    assert result.warnings == [warning]
    assert warning in caplog.text
    await fleet.settle()
    assert fleet.file_of(kept).is_file()


@pytest.mark.case("EDGE-004")
async def test_EDGE_004_both_missing_is_an_error_with_options_and_no_recovery(fleet, kept):
    fleet.sql("DELETE FROM checkpoints")
    fleet.file_of(kept).unlink()
    before = fleet.dump()

    with pytest.raises(NotFound, match=f"Checkpoint not found: {kept.id}") as refused:
        await fleet.restore(kept)

    for option in (
        str(fleet.engine.store.where),
        str(fleet.checkpoints),
        "fleetctl checkpoint list",
    ):
        assert option in refused.value.hint
    assert fleet.dump() == before


@pytest.mark.case("EDGE-005")
async def test_EDGE_005_an_older_version_is_migrated_before_it_is_used(fleet, kept):
    content = json.loads(fleet.file_of(kept).read_bytes())
    for name in ("integrity", "mission", "seq", "undo"):
        del content[name]
    fleet.file_of(kept).write_text(json.dumps(content | {"version": "0.9.0"}))
    fleet.sql("DELETE FROM checkpoints")

    result = await fleet.restore(kept)
    await fleet.settle()

    assert result.success
    assert [s["id"] for s in json.loads(fleet.file_of(kept).read_bytes())["sorties"]] == [
        sortie.id for sortie in kept.sorties
    ]
    assert (await fleet.do(CheckpointGet(kept.id))).version == "1.0.0"


@pytest.mark.case("EDGE-005")
async def test_EDGE_005_a_newer_version_is_refused(fleet, kept):
    content = json.loads(fleet.file_of(kept).read_bytes())
    fleet.file_of(kept).write_text(json.dumps(content | {"version": "1.1.0"}))
    fleet.sql("DELETE FROM checkpoints")

    with pytest.raises(Incompatible, match=r"version 1\.1\.0; this fleetd reads 1\.0\.0"):
        await fleet.restore(kept)


@pytest.mark.case("EDGE-006")
async def test_EDGE_006_a_lock_that_another_agent_holds_is_a_blocker(fleet):
    mission = await fleet.mission(1)
    lock = await fleet.lock(mission, "/test/file.ts", "spec-1")
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(LockRelease(lock.id, "spec-1"))
    await fleet.do(LockAcquire("spec-2", "/test/file.ts"))

    result = await fleet.restore(checkpoint)

    assert result.success
    assert result.recovery_context.blockers == ["Lock conflict: /test/file.ts held by spec-2"]


@pytest.mark.case("EDGE-007")
async def test_EDGE_007_an_expired_checkpoint_is_passed_over_unless_it_is_named(tmp_path):
    async with opened(tmp_path, retention=Retention(keep=1)) as fleet:
        mission = await fleet.mission(1)
        old = await fleet.checkpoint(mission)
        fleet.clock.pass_by(8 * DAY)
        newer = await fleet.checkpoint(mission)
        fleet.sql("UPDATE checkpoints SET sorties_json = '[]' WHERE id = :id", id=newer.id)
        fleet.file_of(newer).unlink()

        with pytest.raises(Corrupt) as refused:
            await fleet.restore(mission_id=mission.id)

        assert f"Checkpoint {old.id} has expired" in refused.value.message
        assert f"Checkpoint {newer.id} is damaged in the database" in refused.value.message
        assert (await fleet.restore(old)).success


@pytest.mark.case("EDGE-008")
async def test_EDGE_008_more_than_100_sorties_are_worth_a_warning(fleet, caplog):
    small = await fleet.checkpoint(await fleet.mission(100))
    large = await fleet.checkpoint(await fleet.mission(101))

    assert small.warnings == []
    assert large.warnings == ["101 sorties; a checkpoint of more than 100 takes longer"]
    assert (
        f"Checkpoint {large.id}: 101 sorties; a checkpoint of more than 100 takes longer"
        in caplog.text
    )
    assert (await fleet.do(CheckpointGet(large.id))).warnings == large.warnings
