"""Checkpoints of other versions: older ones are brought up to date, newer ones are refused."""

import hashlib
import json
from typing import Any

import pytest

from fleetd.domain.checkpoints.versions import layout_of
from fleetd.protocol.errors import Corrupt, Incompatible
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointGet,
    CheckpointLatest,
)
from tests.support.fleet import Fleet

Plain = dict[str, Any]
OLD: Plain = {
    "id": "chk-6f1f9f0e-7f0e-4c1e-9d0f-0a1b2c3d4e5f",
    "timestamp": "2025-11-02T09:30:00Z",
    "trigger": "manual",
    "progress_percent": 50,
    "sorties": [
        {"id": "srt-old-1", "status": "completed", "assigned_to": "spec-1", "files": ["a.py"]},
        {
            "id": "srt-old-2",
            "status": "in_progress",
            "assigned_to": "spec-2",
            "files": ["b.py"],
            "started_at": "2025-11-02T09:00:00Z",
            "progress_notes": "half way",
        },
    ],
    "active_locks": [
        {
            "id": "lck-old",
            "file": "/p/b.py",
            "held_by": "spec-2",
            "acquired_at": "2025-11-02T09:00:00Z",
            "purpose": "edit",
            "timeout_ms": 30000,
        }
    ],
    "pending_messages": [
        {
            "id": "msg-old",
            "from": "spec-1",
            "to": ["spec-2"],
            "subject": "Hi",
            "sent_at": "2025-11-02T09:10:00Z",
            "delivered": False,
        }
    ],
    "recovery_context": {
        "last_action": "spec-2 was editing b.py",
        "next_steps": ["Finish b.py"],
        "blockers": [],
        "files_modified": ["b.py"],
        "mission_summary": "The old mission",
        "elapsed_time_ms": 1000,
        "last_activity_at": "2025-11-02T09:29:00Z",
    },
    "created_by": "spec-2",
    "version": "0.9.0",
}
TOLD = "it was written in checkpoint version 0.9.0 and brought to 1.0.0"


def canonical(content: Plain) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def with_digest(content: Plain, digest: str | None = None) -> Plain:
    digest = digest or hashlib.sha256(canonical(content)).hexdigest()
    return content | {"integrity": {"algorithm": "sha256", "digest": digest, "format_version": 1}}


def put_file(fleet: Fleet, mission: Mission, content: Plain) -> None:
    directory = fleet.checkpoints / mission.id
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{content['id']}.json").write_text(json.dumps(content, indent=2))


def as_row(fleet: Fleet, checkpoint: Checkpoint, version: str) -> None:
    """Rewrite a checkpoint's row as that version would have written it, without a checksum."""
    fleet.sql(
        "UPDATE checkpoints SET version = :version, digest = '', mission_json = NULL"
        " WHERE id = :id",
        version=version,
        id=checkpoint.id,
    )


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_file_of_the_first_layout_is_brought_up_to_date_in_both_copies(
    fleet: Fleet, sealed: bool
) -> None:
    mission = await fleet.mission()
    old = OLD | {"mission_id": mission.id}
    put_file(fleet, mission, with_digest(old) if sealed else old)
    got = await fleet.do(CheckpointGet(OLD["id"]))
    assert (got.version, got.timestamp) == ("1.0.0", "2025-11-02T09:30:00.000Z")
    assert TOLD in got.warnings
    assert [(s.position, s.progress, s.progress_notes) for s in got.sorties] == [
        (0, 100, None),
        (1, 0, "half way"),
    ]
    assert got.active_locks[0].acquired_at == "2025-11-02T09:00:00.000Z"
    assert got.pending_messages[0].sender == "spec-1"
    assert got.recovery_context.next_steps == ["Finish b.py"]
    await fleet.settle()
    file = json.loads((fleet.checkpoints / mission.id / f"{OLD['id']}.json").read_bytes())
    assert (file["version"], file["integrity"]["digest"]) == (
        "1.0.0",
        got.integrity and got.integrity.digest,
    )
    again = await fleet.do(CheckpointGet(OLD["id"]))
    assert (again.version, again.warnings, again.sorties) == ("1.0.0", [], got.sorties)


@pytest.mark.sqlite_only("the lock of a store that was moved is not taken again")
async def test_a_recovery_from_the_first_layout_brings_back_what_it_holds(fleet: Fleet) -> None:
    mission = await fleet.mission(0)
    put_file(fleet, mission, OLD | {"mission_id": mission.id})
    result = await fleet.restore(await fleet.do(CheckpointGet(OLD["id"])))
    assert (result.restored.sorties, result.restored.locks, result.restored.messages) == (2, 1, 1)
    assert [s.status for s in await fleet.sorties(mission)] == ["completed", "in_progress"]


async def test_what_the_log_knows_is_newer_than_any_of_the_first_layout(fleet: Fleet) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    put_file(fleet, mission, OLD | {"mission_id": mission.id, "timestamp": "2027-01-01T00:00:00Z"})
    await fleet.do(CheckpointGet(OLD["id"]))
    assert (await fleet.do(CheckpointLatest(mission.id))).id == taken.id


async def test_a_row_of_the_first_layout_is_brought_up_to_date(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    taken = await fleet.checkpoint(mission)
    as_row(fleet, taken, "0.9.0")
    got = await fleet.do(CheckpointGet(taken.id))
    assert (got.version, got.warnings) == ("1.0.0", [TOLD])
    await fleet.settle()
    assert fleet.sql("SELECT version FROM checkpoints") == [{"version": "1.0.0"}]
    assert (await fleet.do(CheckpointGet(taken.id))).warnings == []
    assert json.loads(fleet.file_of(taken).read_bytes())["integrity"]["digest"] == (
        got.integrity and got.integrity.digest
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda old: with_digest(old, "0" * 64),
        lambda old: old | {"sorties": ["x"]},
        lambda old: old | {"timestamp": "yesterday"},
        lambda old: old | {"version": "0.9"},
        lambda old: old | {"version": 9},
        lambda old: {name: value for name, value in old.items() if name != "version"},
    ],
)
async def test_a_damaged_file_of_the_first_layout_is_corrupt(fleet: Fleet, damage: Any) -> None:
    mission = await fleet.mission()
    put_file(fleet, mission, damage(OLD | {"mission_id": mission.id}))
    with pytest.raises(Corrupt, match=OLD["id"]):
        await fleet.do(CheckpointGet(OLD["id"]))


@pytest.mark.parametrize("version", ["1.0.1", "1.10.0", "10.0.0", "0.10.0", "0.8.0"])
def test_a_version_that_is_not_known_is_incompatible_and_says_what_to_do(version: str) -> None:
    with pytest.raises(Incompatible, match=f"version {version}; this fleetd reads 1.0.0") as error:
        layout_of(version, "x.json")
    newer = version.startswith("1")
    assert ("or a newer one" in error.value.hint) == newer


@pytest.mark.parametrize("version", ["", "1", "1.0", "v1.0.0", "1.0.0-rc1", "01.0.0", None, 1.0])
def test_what_is_no_version_is_corrupt(version: object) -> None:
    with pytest.raises(Corrupt, match="has no version"):
        layout_of(version, "x.json")


async def newer_in_both(fleet: Fleet) -> tuple[Mission, Checkpoint, Checkpoint]:
    mission = await fleet.mission()
    first, second = await fleet.checkpoint(mission), await fleet.checkpoint(mission)
    content = json.loads(fleet.file_of(second).read_bytes()) | {"version": "2.0.0"}
    del content["integrity"]
    digest = hashlib.sha256(canonical(content)).hexdigest()
    statement = "UPDATE checkpoints SET version = '2.0.0', digest = :digest WHERE id = :id"
    fleet.sql(statement, digest=digest, id=second.id)
    put_file(fleet, mission, with_digest(content))
    return mission, first, second


async def test_a_newer_checkpoint_that_is_named_is_refused(fleet: Fleet) -> None:
    _, _, second = await newer_in_both(fleet)
    with pytest.raises(Incompatible, match=r"version 2\.0\.0; this fleetd reads 1\.0\.0"):
        await fleet.do(CheckpointGet(second.id))
    with pytest.raises(Incompatible):
        await fleet.restore(second)


async def test_an_automatic_recovery_passes_over_a_newer_one_and_says_so(fleet: Fleet) -> None:
    mission, first, second = await newer_in_both(fleet)
    result = await fleet.restore(mission_id=mission.id)
    assert result.checkpoint_id == first.id
    (warning,) = result.warnings
    assert second.id in warning
    assert "version 2.0.0" in warning
    assert warning.endswith("; it was skipped")


async def test_when_all_are_newer_that_is_what_is_said(fleet: Fleet) -> None:
    mission, first, _ = await newer_in_both(fleet)
    await fleet.do(CheckpointDelete(first.id))
    before = fleet.dump()
    with pytest.raises(Incompatible, match=r"version 2\.0\.0; this fleetd reads 1\.0\.0"):
        await fleet.restore(mission_id=mission.id)
    assert fleet.dump() == before


async def test_a_row_that_only_seems_newer_is_healed_from_its_file(fleet: Fleet) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    as_row(fleet, taken, "2.0.0")
    got = await fleet.do(CheckpointGet(taken.id))
    assert "it was restored from its file" in got.warnings[-1]
    assert (await fleet.do(CheckpointGet(taken.id))).warnings == []


async def test_what_was_deleted_is_not_found_however_damaged_its_copies_are(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    fleet.engine.backups["checkpoint"].remove = refuse  # type: ignore[method-assign]
    await fleet.do(CheckpointDelete(taken.id))
    fleet.file_of(taken).write_text("damaged")
    fleet.sql("UPDATE checkpoints SET sorties_json = '['")
    for attempt in (CheckpointGet(taken.id), CheckpointDelete(taken.id)):
        with pytest.raises(Exception, match=f"Checkpoint not found: {taken.id}"):
            await fleet.do(attempt)  # type: ignore[arg-type]
