"""STR-001 to STR-010 of the test plan: the two copies of a checkpoint; more in test_two_copies."""

import hashlib
import json
import os
import stat

import msgspec
import pytest
import trio

from fleetd.config import Limits
from fleetd.protocol.errors import Corrupt, Incompatible, NotFound
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointGet,
    CheckpointLatest,
    CheckpointList,
    CheckpointVerify,
    DeclaredContext,
)
from tests.support.copies import damage_row, lose_row
from tests.support.fleet import MINUTE, Clock, opened

SCHEMA_COLUMNS = {
    "id",
    "mission_id",
    "timestamp",
    "trigger",
    "trigger_details",
    "progress_percent",
    "sorties_json",
    "locks_json",
    "messages_json",
    "recovery_context_json",
    "created_by",
    "version",
}
BESIDE_THE_CONTENT = {
    "source_details",
    "consumed_at",
    "backed_up_at",
    "storage_locations",
    "file_on",
    "warnings",
}


def canonical(content):
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def sealed(content):
    """Return the bytes of a checkpoint file with a checksum that fits its content."""
    content = {name: value for name, value in content.items() if name != "integrity"}
    digest = hashlib.sha256(canonical(content)).hexdigest()
    integrity = {"algorithm": "sha256", "digest": digest, "format_version": 1}
    return canonical(content | {"integrity": integrity})


@pytest.fixture
async def kept(fleet):
    """Return a checkpoint of a mission with sorties, a lock and mail."""
    mission = await fleet.mission(2)
    await fleet.lock(mission, "src/0.py", "spec-1")
    await fleet.write(mission, ["spec-1"])
    return await fleet.checkpoint(mission, "Before refactoring")


def without_places(checkpoint):
    return msgspec.structs.replace(checkpoint, warnings=[], backed_up_at=None, storage_locations=[])


@pytest.mark.sqlite_only("the database is a file")
@pytest.mark.case("STR-001")
async def test_STR_001_checkpoint_is_stored_in_sqlite(fleet, kept):
    (row,) = fleet.sql("SELECT * FROM checkpoints")

    assert set(row) >= SCHEMA_COLUMNS
    expected = msgspec.to_builtins(kept)
    for name in ("id", "mission_id", "timestamp", "trigger", "trigger_details", "created_by"):
        assert row[name] == expected[name]
    assert (row["progress_percent"], row["version"]) == (0, "1.0.0")
    assert json.loads(row["sorties_json"]) == expected["sorties"]
    assert json.loads(row["locks_json"]) == expected["active_locks"]
    assert json.loads(row["messages_json"]) == expected["pending_messages"]
    assert json.loads(row["recovery_context_json"]) == expected["recovery_context"]
    assert stat.S_IMODE(fleet.database.stat().st_mode) == 0o600


@pytest.mark.case("STR-001")
async def test_STR_001_a_checkpoint_survives_the_end_of_the_daemon(tmp_path):
    async with opened(tmp_path) as fleet:
        checkpoint = await fleet.checkpoint(await fleet.mission())
    async with opened(tmp_path) as again:
        assert await again.do(CheckpointGet(checkpoint.id)) == checkpoint


@pytest.mark.case("STR-002")
async def test_STR_002_checkpoint_is_stored_as_a_file_too(fleet, kept):
    content = json.loads(fleet.file_of(kept).read_bytes())

    expected = msgspec.to_builtins(kept)
    for name in BESIDE_THE_CONTENT:
        del expected[name]
    assert content == expected
    assert kept.storage_locations == ["sqlite", "file"]
    assert kept.backed_up_at == fleet.clock.now
    assert kept.warnings == []
    assert fleet.file_of(kept).read_bytes().rstrip(b"\n") == sealed(content)
    (event,) = await fleet.events(kind="checkpoint_created")
    assert event.data["storage_locations"] == ["sqlite", "file"]


@pytest.mark.case("STR-003")
async def test_STR_003_file_lies_in_the_directory_of_its_mission(fleet, kept):
    path = fleet.file_of(kept)

    assert path.parts[-4:] == (
        ".flightline",
        "checkpoints",
        kept.mission_id,
        f"{kept.id}.json",
    )
    assert stat.S_ISREG(path.lstat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(p.name for p in path.parent.iterdir()) == [f"{kept.id}.json", "latest.json"]


@pytest.mark.case("STR-004")
async def test_STR_004_latest_json_is_a_relative_symlink_to_the_newest(fleet):
    mission = await fleet.mission()
    for note in ("first", "second"):
        fleet.clock.pass_by(MINUTE)
        newest = await fleet.checkpoint(mission, note)
        latest = fleet.file_of(newest).parent / "latest.json"

        assert latest.is_symlink()
        assert os.readlink(latest) == f"{newest.id}.json"
        assert json.loads(latest.read_bytes())["id"] == newest.id
        assert (await fleet.do(CheckpointLatest(mission.id))).id == newest.id


@pytest.mark.case("STR-004")
async def test_STR_004_latest_json_passes_over_undo_checkpoints(fleet):
    mission = await fleet.mission()
    target = await fleet.checkpoint(mission)
    await fleet.work(mission, 0, "spec-1")
    fleet.clock.pass_by(MINUTE)

    undo_id = (await fleet.restore(target)).undo_checkpoint_id
    await fleet.settle()

    undo = await fleet.do(CheckpointGet(undo_id))
    assert undo.undo is True
    assert fleet.file_of(undo).exists()
    assert os.readlink(fleet.file_of(undo).parent / "latest.json") == f"{target.id}.json"
    assert (await fleet.do(CheckpointLatest(mission.id))).id == target.id


@pytest.mark.case("STR-006")
async def test_STR_006_a_lost_mission_comes_back_with_its_checkpoint(fleet, kept):
    lose_row(fleet, kept)
    fleet.sql("DELETE FROM deliveries")
    for table in ("messages", "locks", "sorties", "missions", "counters"):
        fleet.sql(f"DELETE FROM {table}")

    result = await fleet.restore(kept)

    assert result.restored == msgspec.convert(
        {"sorties": 2, "locks": 1, "messages": 1}, type(result.restored)
    )
    (mission,) = fleet.sql("SELECT id, title, status, total_sorties FROM missions")
    assert mission == {
        "id": kept.mission_id,
        "title": "Implementing authentication",
        "status": "in_progress",
        "total_sorties": 2,
    }
    # Fencing tokens go on above what the file remembers: an old one must not come back to life.
    assert (await fleet.locks())[0].fencing_token > kept.active_locks[0].fencing_token
    (letter,) = fleet.sql(
        "SELECT subject, d.agent_id, d.status FROM messages JOIN deliveries d ON d.message_id = id"
    )
    assert letter == {"subject": "Review", "agent_id": "spec-1", "status": "queued"}


@pytest.mark.case("STR-007")
async def test_STR_007_checkpoint_is_validated_on_load(fleet, kept):
    loaded = await fleet.do(CheckpointGet(kept.id))

    assert loaded.version == "1.0.0"
    assert isinstance(loaded.sorties, list)
    assert loaded.recovery_context.mission_summary == "Implementing authentication"

    damage_row(fleet, kept)
    healed = await fleet.do(CheckpointGet(kept.id))

    assert without_places(healed) == without_places(kept)
    assert healed.warnings == [
        f"the database row of {kept.id} was damaged; it was restored from its file"
    ]
    assert (await fleet.do(CheckpointGet(kept.id))).warnings == []


@pytest.mark.case("STR-007")
@pytest.mark.parametrize(
    "change",
    [
        {"progress_percent": "half"},
        {"trigger": "whim"},
        {"sorties": None},
        {"active_locks": [{"id": "lck-1"}]},
        {"recovery_context": []},
    ],
)
async def test_STR_007_a_file_of_another_schema_is_refused_also_with_a_checksum(
    fleet, kept, change
):
    path = fleet.file_of(kept)
    path.write_bytes(sealed(json.loads(path.read_bytes()) | change))
    lose_row(fleet, kept)

    with pytest.raises(Corrupt, match="Corrupted checkpoint file"):
        await fleet.do(CheckpointGet(kept.id))
    assert fleet.sql("SELECT id FROM checkpoints") == []


@pytest.mark.case("STR-007")
async def test_STR_007_a_file_that_holds_another_checkpoint_is_refused(fleet, kept):
    path = fleet.file_of(kept)
    path.write_bytes(sealed(json.loads(path.read_bytes()) | {"id": "chk-deadbeef"}))
    lose_row(fleet, kept)

    with pytest.raises(Corrupt, match="Corrupted checkpoint file"):
        await fleet.do(CheckpointGet(kept.id))


@pytest.mark.case("STR-007")
async def test_STR_007_a_newer_version_is_incompatible(fleet, kept):
    path = fleet.file_of(kept)
    path.write_bytes(sealed(json.loads(path.read_bytes()) | {"version": "2.0.0"}))
    lose_row(fleet, kept)

    with pytest.raises(Incompatible, match=r"version 2\.0\.0"):
        await fleet.do(CheckpointGet(kept.id))


@pytest.mark.case("STR-008")
@pytest.mark.parametrize("data", [b"invalid json{{{", b"", b"\xff\xfe\x00", b"[" * 200_000])
async def test_STR_008_a_corrupted_file_is_found_and_healed_from_its_row(fleet, kept, data):
    path = fleet.file_of(kept)
    whole = path.read_bytes()
    path.write_bytes(data)

    assert await fleet.do(CheckpointGet(kept.id)) == kept
    found = await fleet.do(CheckpointVerify(checkpoint_id=kept.id))
    mended = await fleet.do(CheckpointVerify(checkpoint_id=kept.id, repair=True))

    assert not found.ok
    assert found.findings[0].detail.startswith(f"Corrupted checkpoint file: {path}")
    assert mended.ok
    assert mended.findings[0].fixed
    assert path.read_bytes() == whole


@pytest.mark.case("STR-008")
async def test_STR_008_one_flipped_bit_in_the_file_is_never_served(fleet, kept):
    path = fleet.file_of(kept)
    data = bytearray(path.read_bytes())
    data[data.index(b"Before refactoring")] ^= 1
    path.write_bytes(data)
    lose_row(fleet, kept)

    with pytest.raises(Corrupt, match=r"Corrupted checkpoint file: .* checksum") as refused:
        await fleet.do(CheckpointGet(kept.id))
    assert refused.value.values["path"] == str(path)


@pytest.mark.case("STR-008")
async def test_STR_008_both_copies_corrupted_is_an_error_and_recovery_takes_the_one_before(fleet):
    mission = await fleet.mission()
    older = await fleet.checkpoint(mission, "older")
    fleet.clock.pass_by(MINUTE)
    newer = await fleet.checkpoint(mission, "newer")
    damage_row(fleet, newer)
    fleet.file_of(newer).write_bytes(b"invalid json{{{")

    with pytest.raises(Corrupt, match=newer.id):
        await fleet.do(CheckpointGet(newer.id))
    before = fleet.dump()
    with pytest.raises(Corrupt, match=newer.id):
        await fleet.restore(newer)
    assert fleet.dump() == before
    result = await fleet.restore(mission_id=mission.id)

    assert result.checkpoint_id == older.id
    (warning,) = result.warnings
    assert warning.startswith(f"Checkpoint {newer.id} is damaged in both copies: its row does not")
    assert str(fleet.file_of(newer)) in warning
    assert warning.endswith("; it was skipped")


@pytest.mark.case("STR-009")
async def test_STR_009_checkpoints_are_listed_by_mission_newest_first(fleet):
    mission, other = await fleet.mission(2), await fleet.mission(1)
    await fleet.lock(mission, "src/0.py", "spec-1")
    taken = []
    for note in ("first", "second", "third"):
        fleet.clock.pass_by(MINUTE)
        taken.append(await fleet.checkpoint(mission, note))
    await fleet.checkpoint(other, "elsewhere")

    page = await fleet.do(CheckpointList(mission.id))

    assert [summary.id for summary in page.checkpoints] == [c.id for c in reversed(taken)]
    assert page.total == 3
    newest = msgspec.to_builtins(page.checkpoints[0])
    assert newest == {
        "id": taken[2].id,
        "mission_id": mission.id,
        "timestamp": taken[2].timestamp,
        "trigger": "manual",
        "trigger_details": "third",
        "progress_percent": 0,
        "sortie_count": 2,
        "lock_count": 1,
        "message_count": 0,
        "size_bytes": newest["size_bytes"],
        "consumed_at": None,
        "undo": False,
    }
    assert newest["size_bytes"] > 500
    assert (await fleet.do(CheckpointList(mission.id, limit=2))).total == 3
    assert (await fleet.do(CheckpointList())).total == 4
    until = await fleet.do(CheckpointList(mission.id, until_time=taken[1].timestamp))
    assert [each.id for each in until.checkpoints] == [taken[1].id, taken[0].id]
    assert until.total == 2


@pytest.mark.case("STR-009")
async def test_STR_009_checkpoints_of_one_moment_keep_their_order(fleet):
    mission = await fleet.mission()
    taken = [(await fleet.checkpoint(mission)).id for _ in range(5)]

    assert await fleet.checkpoint_ids(mission) == taken[::-1]
    assert (await fleet.do(CheckpointLatest(mission.id))).id == taken[-1]


@pytest.mark.case("STR-009")
async def test_STR_009_checkpoints_are_listed_by_trigger(fleet):
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0)
    by_hand = await fleet.checkpoint(mission)

    assert await fleet.checkpoint_ids(mission, "manual") == [by_hand.id]
    assert len(await fleet.checkpoint_ids(mission, "progress")) == 1
    assert await fleet.checkpoint_ids(mission, "error") == []


@pytest.mark.case("STR-010")
async def test_STR_010_checkpoint_is_deleted_from_both_stores(fleet):
    mission = await fleet.mission()
    older = await fleet.checkpoint(mission)
    fleet.clock.pass_by(MINUTE)
    newer = await fleet.checkpoint(mission)

    assert (await fleet.do(CheckpointDelete(newer.id))).deleted is True

    assert not fleet.file_of(newer).exists()
    assert os.readlink(fleet.file_of(older).parent / "latest.json") == f"{older.id}.json"
    assert [row["id"] for row in fleet.sql("SELECT id FROM checkpoints")] == [older.id]
    with pytest.raises(NotFound, match=f"Checkpoint not found: {newer.id}"):
        await fleet.do(CheckpointGet(newer.id))
    with pytest.raises(NotFound):
        await fleet.do(CheckpointDelete(newer.id))
    (event,) = await fleet.events(mission, "checkpoint_deleted")
    assert event.data == {"checkpoint_id": newer.id}

    await fleet.do(CheckpointDelete(older.id))
    assert fleet.files() == {}


@pytest.mark.case("STR-010")
async def test_STR_010_a_deletion_cut_short_is_finished_at_the_next_start(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission()
        kept = await fleet.checkpoint(mission)
        doomed = await fleet.checkpoint(mission)
        # What a crash between COMMIT and unlink leaves: a mark on the row, and the file.
        fleet.sql(
            "UPDATE checkpoints SET deleted_at = :now WHERE id = :id", now=clock.now, id=doomed.id
        )
    async with opened(tmp_path, clock=clock) as again:
        await again.checkpoint(mission)
        await again.settle()
        assert not again.file_of(doomed).exists()
        with pytest.raises(NotFound):
            await again.do(CheckpointGet(doomed.id))
        assert again.file_of(kept).exists()


async def test_a_file_that_cannot_be_written_costs_a_warning_not_the_checkpoint(
    fleet, autojump_clock
):
    mission = await fleet.mission()
    fleet.checkpoints.parent.mkdir(parents=True, exist_ok=True)
    fleet.checkpoints.write_text("a file where the directory should be")

    checkpoint = await fleet.checkpoint(mission)

    assert checkpoint.storage_locations == ["sqlite"]
    assert checkpoint.warnings == ["its file is not written yet; fleetd keeps trying"]
    kinds = [event.type for event in await fleet.events(mission)]
    assert kinds[-2:] == ["backup_failed", "checkpoint_created"]
    (created,) = await fleet.events(mission, "checkpoint_created")
    assert created.data["storage_locations"] == ["sqlite"]

    fleet.checkpoints.unlink()
    await trio.sleep(60)

    assert fleet.file_of(checkpoint).exists()
    assert len(await fleet.events(mission, "checkpoint_created")) == 1
    assert len(await fleet.events(mission, "backup_failed")) == 1


async def test_what_a_crash_left_unwritten_is_written_at_the_next_start(tmp_path):
    async with opened(tmp_path) as fleet:
        checkpoint = await fleet.checkpoint(await fleet.mission())
        whole = fleet.files()
        fleet.file_of(checkpoint).unlink()
        (fleet.file_of(checkpoint).parent / ".tmp-0123456789abcdef").write_text("half a file")
        fleet.sql("UPDATE checkpoints SET backed_up_at = NULL")
    async with opened(tmp_path) as again:
        await again.checkpoint(await again.mission())
        (now,) = [
            row for row in again.sql("SELECT * FROM checkpoints") if row["id"] == checkpoint.id
        ]
        assert now["backed_up_at"] is not None
        assert {name: data for name, data in again.files().items() if name in whole} == whole
        assert not [name for name in again.files() if ".tmp-" in name]


async def test_a_checkpoint_over_its_size_says_so_and_drops_old_files(tmp_path):
    async with opened(tmp_path, limits=Limits(checkpoint_bytes=10_000)) as fleet:
        mission = await fleet.mission(1)
        files = [f"src/generated/module_{n:04}.py" for n in range(450)]
        declared = DeclaredContext(files_modified=files)
        checkpoint = await fleet.checkpoint(mission, recovery_context=declared)

        assert checkpoint.recovery_context.files_modified == files[:200]
        assert len(checkpoint.warnings) == 2
        assert "over the limit of 10000" in checkpoint.warnings[0]
        assert checkpoint.warnings[1] == "250 older files left out of files_modified"
        assert (await fleet.do(CheckpointGet(checkpoint.id))).warnings == checkpoint.warnings
