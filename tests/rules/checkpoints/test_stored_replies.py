"""Replies from stored JSON: the same as from the record, and only where nothing is unusual."""

import json
import os
import shutil
import time
from typing import Any

import msgspec
import pytest
import trio
from msgspec import Raw

from fleetd.domain.checkpoints import checkpoints, codec
from fleetd.engine.engine import DAEMON, OnBehalf
from fleetd.protocol.errors import Corrupt, FleetError, NotFound
from fleetd.protocol.records import Checkpoint
from fleetd.protocol.requests.checkpoint import CheckpointDelete, CheckpointGet, CheckpointLatest
from fleetd.protocol.requests.mission import MissionCancel, MissionGet
from fleetd.store.files.layout import Stamp
from fleetd.store.files.record_files import RecordFiles
from tests.support.fleet import MINUTE, SECOND, Fleet

# Longer than a directory may hide a change by the time that it shows.
SETTLED_S = 0.06
GETS = (CheckpointGet, CheckpointLatest)


async def rich(fleet: Fleet, sorties: int = 3) -> Checkpoint:
    """Return a checkpoint with something in each part of it."""
    mission = await fleet.mission(sorties, title='A "title" },{ with \u2028 quotes \\')
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    await fleet.work(mission, 0, "spec-1", notes="half },{ way")
    for file in ("src/a.py", "src/b.py"):
        await fleet.lock(mission, file, "spec-1")
    for number in range(2):
        await fleet.write(mission, ["spec-2"], f"Letter {number}")
    return await fleet.checkpoint(mission, "by hand")


def request_for(kind: Any, checkpoint: Checkpoint) -> Any:
    return kind(checkpoint.id if kind is CheckpointGet else checkpoint.mission_id)


async def stored_reply(fleet: Fleet, request: Any) -> Any:
    """Return a reply that was made from stored JSON, decoded."""
    reply = await fleet.engine.handle(request, DAEMON)
    assert isinstance(reply, Raw)
    return json.loads(bytes(reply))


async def record_reply(fleet: Fleet, request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a reply that was made from a record, decoded."""
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "as_stored", lambda _: None)
        reply = await fleet.engine.handle(request, DAEMON)
    assert isinstance(reply, Checkpoint)
    return json.loads(msgspec.json.encode(reply))


@pytest.mark.parametrize("kind", GETS)
@pytest.mark.parametrize("sorties", [0, 1, 3, 150])
async def test_the_reply_is_that_of_the_record(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, kind: Any, sorties: int
) -> None:
    if sorties:
        checkpoint = await rich(fleet, sorties)
        fleet.clock.pass_by(MINUTE)
        await fleet.restore(checkpoint)  # consumed
    else:
        checkpoint = await fleet.checkpoint(await fleet.mission(0))
    joined = {"source": "error", "agent_id": None, "count": 2, "first_at": "a", "last_at": "b"}
    fleet.sql(
        "UPDATE checkpoints SET source_details_json = :details WHERE id = :id",
        details=json.dumps([joined]),
        id=checkpoint.id,
    )
    await fleet.settle()

    reply = await stored_reply(fleet, request_for(kind, checkpoint))

    assert reply == await record_reply(fleet, request_for(kind, checkpoint), monkeypatch)
    assert reply.keys() == set(Checkpoint.__struct_fields__)
    assert reply["integrity"]["digest"] == checkpoint.integrity.digest
    assert reply["source_details"] == [joined]
    assert reply["storage_locations"] == ["sqlite", "file"]
    assert bool(reply["consumed_at"]) == bool(sorties)
    assert len(reply["warnings"]) == (sorties > 100)
    assert len(reply["active_locks"]) == len(reply["pending_messages"]) == (2 if sorties else 0)


async def test_the_reply_of_one_without_a_file_says_so(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = await rich(fleet)
    await fleet.settle()
    fleet.sql("UPDATE checkpoints SET backed_up_at = NULL")
    for kind in GETS:
        reply = await stored_reply(fleet, request_for(kind, checkpoint))
        assert reply == await record_reply(fleet, request_for(kind, checkpoint), monkeypatch)
        assert (reply["backed_up_at"], reply["storage_locations"]) == (None, ["sqlite"])


async def test_a_text_that_looks_like_the_end_of_a_record_is_none(fleet: Fleet) -> None:
    checkpoint = await rich(fleet)
    await fleet.work(
        await fleet.do(MissionGet(checkpoint.mission_id)), 0, "spec-1", notes="end },{"
    )
    checkpoint = await fleet.checkpoint(await fleet.do(MissionGet(checkpoint.mission_id)))
    assert (await fleet.do(CheckpointGet(checkpoint.id))).sorties == checkpoint.sorties


async def test_an_undo_checkpoint_is_got_and_is_not_the_latest(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = await rich(fleet)
    await fleet.work(await fleet.do(MissionGet(checkpoint.mission_id)), 1, "spec-2")
    undo = (await fleet.restore(checkpoint)).undo_checkpoint_id
    await fleet.settle()
    assert undo is not None

    got = await stored_reply(fleet, CheckpointGet(undo))

    assert got["undo"] is True
    assert got == await record_reply(fleet, CheckpointGet(undo), monkeypatch)
    latest = await stored_reply(fleet, CheckpointLatest(checkpoint.mission_id))
    assert latest["id"] == checkpoint.id


def changed(fleet: Fleet, checkpoint: Checkpoint, column: str, change: Any) -> None:
    """Change what a row holds of a checkpoint, and seal it anew."""
    (row,) = fleet.sql("SELECT * FROM checkpoints WHERE id = :id", id=checkpoint.id)
    row[column] = codec.canonical(change(json.loads(row[column]))).decode()
    digest = codec.digest_of(codec.canonical(codec._content_of(row)))
    fleet.sql(
        f"UPDATE checkpoints SET {column} = :text, digest = :digest WHERE id = :id",
        text=row[column],
        digest=digest,
        id=checkpoint.id,
    )


def without(name: str) -> Any:
    def change(value: Any) -> Any:
        for each in value if isinstance(value, list) else [value]:
            del each[name]
        return value

    return change


@pytest.mark.parametrize("kind", GETS)
@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("mission_json", without("closed_reason")),
        ("recovery_context_json", without("blockers")),
        ("sorties_json", without("progress_notes")),
        ("locks_json", without("fencing_token")),
        ("messages_json", without("thread_id")),
        ("sorties_json", lambda value: [each | {"newer": 1} for each in value]),
    ],
)
async def test_a_row_from_before_a_field_or_after_it_is_read_as_a_record(
    fleet: Fleet, column: str, change: Any, kind: Any
) -> None:
    checkpoint = await rich(fleet)
    await fleet.settle()
    changed(fleet, checkpoint, column, change)

    reply = await fleet.engine.handle(request_for(kind, checkpoint), DAEMON)

    assert isinstance(reply, Checkpoint)
    field = "active_locks" if column == "locks_json" else column.removesuffix("_json")
    plain = msgspec.to_builtins(reply)
    was = msgspec.to_builtins(checkpoint)
    told = plain["pending_messages" if field == "messages" else field]
    whole = was["pending_messages" if field == "messages" else field]
    first, before = (told[0], whole[0]) if isinstance(told, list) else (told, whole)
    assert first.keys() == before.keys()


async def test_what_is_damaged_or_deleted_is_not_sent(fleet: Fleet) -> None:
    checkpoint = await rich(fleet)
    await fleet.settle()
    for column in ("sorties_json", "mission_json", "created_by", "warnings_json"):
        (row,) = fleet.sql("SELECT * FROM checkpoints WHERE id = :id", id=checkpoint.id)
        fleet.sql(f"UPDATE checkpoints SET {column} = {column} || '!'")
        healed = await fleet.do(CheckpointGet(checkpoint.id))
        assert (healed.sorties, len(healed.warnings)) == (checkpoint.sorties, 1)
        fleet.sql("UPDATE checkpoints SET backed_up_at = :at", at=row["backed_up_at"])
    fleet.file_of(checkpoint).unlink()
    fleet.sql("UPDATE checkpoints SET sorties_json = '[]'")
    for kind in GETS:
        with pytest.raises(Corrupt):
            await fleet.do(request_for(kind, checkpoint))
    await fleet.do(CheckpointDelete(checkpoint.id))
    for kind in GETS:
        with pytest.raises(NotFound):
            await fleet.do(request_for(kind, checkpoint))


async def test_a_cut_id_names_the_same(fleet: Fleet) -> None:
    checkpoint = await rich(fleet)
    whole = await stored_reply(fleet, CheckpointGet(checkpoint.id))
    for request in (
        CheckpointGet(checkpoint.id[:-1]),
        CheckpointLatest(checkpoint.mission_id[:-1]),
    ):
        assert msgspec.to_builtins(await fleet.do(request)) == whole


# The directory of a mission: listed once, then only asked whether it was changed.


async def settled() -> None:
    """Let the clock of files, which no test sets, go on."""
    await trio.to_thread.run_sync(time.sleep, SETTLED_S)


async def known(fleet: Fleet) -> tuple[Checkpoint, Checkpoint]:
    """Return two checkpoints of a mission whose directory was listed when it was at rest."""
    older = await rich(fleet)
    fleet.clock.pass_by(SECOND)
    newest = await fleet.checkpoint(await fleet.do(MissionGet(older.mission_id)), "newest")
    await fleet.settle()
    await settled()
    assert (await stored_reply(fleet, CheckpointLatest(newest.mission_id)))["id"] == newest.id
    return older, newest


async def test_the_latest_of_a_known_directory_is_one_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, newest = await known(fleet)
    reads: list[Any] = []
    real = OnBehalf.read

    async def counted(self: OnBehalf, rule: Any, *args: Any, **named: Any) -> Any:
        reads.append(rule)
        return await real(self, rule, *args, **named)

    monkeypatch.setattr(OnBehalf, "read", counted)
    monkeypatch.setattr(RecordFiles, "list", lambda *_: pytest.fail("it was listed"))
    for request in (CheckpointLatest(newest.mission_id), CheckpointGet(newest.id)):
        reads.clear()
        assert (await stored_reply(fleet, request))["id"] == newest.id
        assert len(reads) == 1


async def test_a_directory_that_just_changed_is_listed_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = await rich(fleet)
    listed = []
    real = RecordFiles.list
    monkeypatch.setattr(RecordFiles, "list", lambda *args: listed.append(1) or real(*args))
    monkeypatch.setattr("fleetd.store.files.layout.time.time_ns", lambda: 0)
    for _ in range(2):
        await stored_reply(fleet, CheckpointLatest(checkpoint.mission_id))
    assert len(listed) == 2


def test_a_stamp_that_may_not_change_is_told() -> None:
    def shows(changed_ns: int, now_ns: int) -> bool:
        return Stamp(1, 2, changed_ns).shows_changes(now_ns)

    moment = 1_700_000_000_123_456_789
    assert shows(moment, moment + SECOND * 1_000_000)
    assert not shows(moment, moment + 10_000_000)  # the clock of files may still say the same
    assert not shows(moment, moment - SECOND * 1_000_000)  # a clock that was set back
    assert not shows(1_700_000_000_000_000_000, moment + 10**10)  # it counts in seconds


@pytest.mark.parametrize("lost", ["row of the newest", "row of the older", "file only", "copied"])
async def test_a_file_without_a_row_is_found_in_a_known_directory(fleet: Fleet, lost: str) -> None:
    older, newest = await known(fleet)
    path = fleet.file_of(newest)
    directory = path.parent
    served = newest
    if lost == "copied":  # away with both, and the file comes back, with the time of before
        before = directory.stat()
        shutil.copy(path, fleet.checkpoints.parent / "kept")
        await fleet.do(CheckpointDelete(newest.id))
        await fleet.settle()
        fleet.sql("DELETE FROM checkpoints WHERE id = :id", id=newest.id)
        await settled()
        latest = CheckpointLatest(newest.mission_id)
        assert (await stored_reply(fleet, latest))["id"] == older.id
        shutil.copy(fleet.checkpoints.parent / "kept", path)
        os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif lost == "file only":
        path.unlink()
    else:
        gone = newest if lost == "row of the newest" else older
        fleet.sql("DELETE FROM checkpoints WHERE id = :id", id=gone.id)

    got = await fleet.do(CheckpointLatest(newest.mission_id))

    assert (got.id, got.sorties) == (served.id, served.sorties)
    assert bool(got.warnings) == (lost != "file only")
    assert len(fleet.sql("SELECT id FROM checkpoints")) == 2


async def test_a_mission_that_is_gone_is_not_known_any_more(fleet: Fleet) -> None:
    _, newest = await known(fleet)
    fleet.sql("DELETE FROM checkpoints")
    fleet.sql("DELETE FROM missions")
    shutil.rmtree(fleet.file_of(newest).parent)
    with pytest.raises(FleetError, match="not found"):
        await fleet.do(CheckpointLatest(newest.mission_id))


async def test_a_closed_mission_is_told_as_it_was(fleet: Fleet) -> None:
    _, newest = await known(fleet)
    await fleet.do(MissionCancel(newest.mission_id, "enough"))
    assert (await stored_reply(fleet, CheckpointLatest(newest.mission_id)))["id"] == newest.id
