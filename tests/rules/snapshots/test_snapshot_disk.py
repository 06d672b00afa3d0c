"""What becomes of snapshots when the disk refuses, and when the database is lost or an old one."""

import errno
import gzip
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from fleetd.config import Retention
from fleetd.domain.checkpoints.codec import canonical, digest_of
from fleetd.domain.snapshots.codec import seq_of, to_file
from fleetd.engine.files.outbox import FIRST_PAUSE_S, LONGEST_PAUSE_S
from fleetd.engine.jobs.daily import compress
from fleetd.host import atomic_files
from fleetd.protocol.errors import AtomicWriteFailed, NotFound, RetentionPruneFailed
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointVerify
from fleetd.protocol.requests.event import EventAppend, EventSubscribe
from fleetd.protocol.requests.snapshot import (
    DeclaredOutcome,
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotPrune,
    SnapshotRecord,
    SnapshotVerify,
)
from fleetd.protocol.snapshots import Snapshot
from tests.support.fleet import DAY, HOUR, MINUTE, Clock, Fleet, opened

RUN = "run-1"
WRITE_FAILED, PRUNE_FAILED = "checkpoint_atomic_write_failed", "checkpoint_retention_prune_failed"


async def record(fleet: Fleet, run_id: str = RUN, note: str = "n", **said: Any) -> Snapshot:
    outcome = DeclaredOutcome(kind="shell", name="make", result="PASS", summary=note)
    return await fleet.do(SnapshotRecord(run_id, command_outcomes=[outcome], **said))


def history(fleet: Fleet, run_id: str = RUN) -> Path:
    return fleet.checkpoints / run_id / "history"


def latest(fleet: Fleet, run_id: str = RUN) -> bytes:
    return (fleet.checkpoints / run_id / "latest.json").read_bytes()


async def ids(fleet: Fleet, run_id: str = RUN) -> list[str]:
    page = await fleet.do(SnapshotList(run_id, limit=1_000))
    return [each.snapshot_id for each in page.snapshots]


async def codes(fleet: Fleet) -> list[str | None]:
    found = await fleet.do(SnapshotVerify())
    return [finding.reason_code for finding in found.findings if not finding.ok]


def block_run(fleet: Fleet) -> Path:
    return fleet.checkpoints / RUN


def block_history(fleet: Fleet) -> Path:
    return history(fleet)


def block_root(fleet: Fleet) -> Path:
    return fleet.checkpoints


@pytest.mark.parametrize("where", [block_run, block_history, block_root])
async def test_a_file_that_cannot_be_written_has_its_reason_code_and_comes_later(
    fleet: Fleet, autojump_clock: trio.testing.MockClock, where: Callable[[Fleet], Path]
) -> None:
    """A file stands where a directory should: nobody, not even root, can write."""
    obstacle = where(fleet)
    obstacle.parent.mkdir(parents=True, exist_ok=True)
    obstacle.write_text("in the way")
    with pytest.raises(AtomicWriteFailed, match=r"is stored, but its file .* could not") as refused:
        await record(fleet)
    assert refused.value.kind == WRITE_FAILED
    snapshot_id = refused.value.values["snapshot_id"]
    assert refused.value.values["path"] == str(history(fleet) / f"{snapshot_id}.json")
    assert (await fleet.do(SnapshotGet(snapshot_id))).storage_locations == ["sqlite"]
    assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == snapshot_id
    assert WRITE_FAILED in await codes(fleet)
    await trio.sleep(1_000)
    (failure,) = await fleet.events(kind="backup_failed")
    assert failure.data["checkpoint_id"] == snapshot_id
    assert failure.data["reason_code"] == WRITE_FAILED

    obstacle.unlink()
    await trio.sleep(LONGEST_PAUSE_S)
    now = await fleet.do(SnapshotGet(snapshot_id))
    assert now.storage_locations == ["sqlite", "file"]
    assert (history(fleet) / f"{snapshot_id}.json").read_bytes() == latest(fleet) == to_file(now)
    assert await codes(fleet) == []
    assert len(await fleet.events(kind="backup_failed")) == 1


@pytest.mark.parametrize(
    ("call", "number"),
    [("fsync", errno.ENOSPC), ("open", errno.EROFS), ("open", errno.EACCES), ("rename", errno.EIO)],
)
async def test_a_full_or_read_only_disk_costs_no_snapshot(
    fleet: Fleet,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
) -> None:
    before = await record(fleet, note="before")
    attempts: list[float] = []

    def refuse(*_: object, **__: object) -> int:
        attempts.append(trio.current_time())
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(f"fleetd.host.atomic_files.os.{call}", refuse)
        with pytest.raises(AtomicWriteFailed, match=os.strerror(number)) as refused:
            await record(fleet, note="meanwhile")
        await trio.sleep(2_000)
        assert latest(fleet) == to_file(before)
    times = sorted(set(attempts))
    pauses = [round(late - early, 3) for early, late in itertools.pairwise(times)]
    assert pauses == [min(FIRST_PAUSE_S * 2**n, LONGEST_PAUSE_S) for n in range(len(pauses))]
    assert pauses[-1] == LONGEST_PAUSE_S
    (failure,) = await fleet.events(kind="backup_failed")
    assert os.strerror(number) in failure.data["error"]

    await trio.sleep(LONGEST_PAUSE_S)
    now = await fleet.do(SnapshotGet(refused.value.values["snapshot_id"]))
    assert now.storage_locations == ["sqlite", "file"]
    assert latest(fleet) == to_file(now)
    assert len(list(history(fleet).iterdir())) == 2
    assert await codes(fleet) == []


async def test_a_trigger_that_joins_a_snapshot_without_a_file_is_told_so_too(fleet: Fleet) -> None:
    block_run(fleet).parent.mkdir(parents=True)
    block_run(fleet).write_text("in the way")
    refusals = []
    for _ in range(2):
        with pytest.raises(AtomicWriteFailed) as refused:
            await fleet.do(SnapshotRecord(RUN))
        refusals.append(refused.value.values["snapshot_id"])
    assert refusals[0] == refusals[1]
    assert len(await fleet.events(kind="snapshot_recorded")) == 1
    assert len(await fleet.events(kind="backup_failed")) == 1


async def test_a_key_that_is_repeated_records_nothing_twice_though_the_file_failed(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    block_run(fleet).parent.mkdir(parents=True)
    block_run(fleet).write_text("in the way")
    request = SnapshotRecord(RUN, idempotency_key="once")
    with pytest.raises(AtomicWriteFailed) as refused:
        await fleet.do(request)
    fleet.clock.pass_by(MINUTE)
    with pytest.raises(AtomicWriteFailed) as again:
        await fleet.do(request)
    assert again.value.values == refused.value.values
    block_run(fleet).unlink()
    await trio.sleep(LONGEST_PAUSE_S)
    taken = await fleet.do(request)
    assert taken.storage_locations == ["sqlite", "file"]
    assert await ids(fleet) == [taken.snapshot_id]


async def test_files_without_which_the_daemon_ended_come_at_the_next_start(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        block_run(fleet).parent.mkdir(parents=True)
        block_run(fleet).write_text("in the way")
        for number in range(3):
            with pytest.raises(AtomicWriteFailed):
                await record(fleet, note=f"n{number}")
            clock.pass_by(MINUTE)
        names = await ids(fleet)
    block_run(fleet).unlink()
    async with opened(tmp_path, clock=clock) as fleet:
        await fleet.settle()
        assert await ids(fleet) == names
        assert latest(fleet) == to_file(await fleet.do(SnapshotGet(names[0])))
        assert await codes(fleet) == []


class Stubborn:
    """Lets no file be removed whose name it has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        self._real = atomic_files.remove_file
        monkeypatch.setattr("fleetd.store.files.record_files.remove_file", self)

    def __call__(self, where: atomic_files.Directory, name: str) -> None:
        if any(each in name for each in self.names):
            raise OSError(errno.EPERM, "Operation not permitted", name)
        self._real(where, name)


async def test_a_file_that_cannot_be_removed_has_its_reason_code_and_goes_later(
    fleet: Fleet, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = Stubborn(monkeypatch)
    taken = [await record(fleet, note=f"n{number}") for number in range(4)]
    other = await record(fleet, "run-2")
    fleet.clock.pass_by(14 * DAY + 1)
    newest = await record(fleet, note="newest")
    stuck = taken[1].snapshot_id
    stubborn.names = {stuck}
    with pytest.raises(RetentionPruneFailed, match=r"5 snapshots were deleted, but 1") as refused:
        await fleet.do(SnapshotPrune())
    assert refused.value.kind == PRUNE_FAILED
    assert refused.value.values["stuck"] == [stuck]
    assert refused.value.values["deleted"] == 5
    assert await ids(fleet) == [newest.snapshot_id]
    left = {path.name for path in history(fleet).iterdir()}
    assert left == {f"{stuck}.json", f"{newest.snapshot_id}.json"}
    assert not (fleet.checkpoints / "run-2").exists()
    assert latest(fleet) == to_file(newest)
    with pytest.raises(NotFound):
        await fleet.do(SnapshotGet(other.snapshot_id))
    with pytest.raises(NotFound):  # also while its file lies there
        await fleet.do(SnapshotGet(stuck))
    assert await codes(fleet) == [PRUNE_FAILED]
    (event,) = await fleet.events(kind="snapshots_pruned")
    assert event.data["deleted"] == 5

    stubborn.names = set()
    await trio.sleep(LONGEST_PAUSE_S)
    assert [path.name for path in history(fleet).iterdir()] == [f"{newest.snapshot_id}.json"]
    assert await codes(fleet) == []
    assert (await fleet.do(SnapshotPrune())).deleted == 0


async def test_recording_goes_on_while_the_file_of_the_oldest_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = Stubborn(monkeypatch)
    async with opened(tmp_path, retention=Retention(snapshots_per_run=3)) as fleet:
        first = await record(fleet, note="first")
        stubborn.names = {first.snapshot_id}
        for number in range(5):
            await record(fleet, note=f"n{number}")
        await fleet.settle()
        assert len(await ids(fleet)) == 3
        assert len(list(history(fleet).iterdir())) == 4
        assert await codes(fleet) == [PRUNE_FAILED]
    stubborn.names = set()
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        assert len(list(history(fleet).iterdir())) == 3


async def epoch(fleet: Fleet) -> str:
    return (await fleet.do(EventSubscribe())).epoch


async def recorded(fleet: Fleet, *steps: int) -> list[Snapshot]:
    """Record snapshots and set the clock by so much after each."""
    taken = []
    for number, step in enumerate(steps):
        taken.append(await record(fleet, note=f"n{number}"))
        fleet.clock.step(step)
    return taken


STEPS = (-HOUR, 3 * MINUTE, -DAY, 10 * MINUTE, 0, -2 * MINUTE)


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_lost_database_comes_back_from_files_in_the_order_of_the_log(
    tmp_path: Path, compressed: bool
) -> None:
    """Nothing but snapshots is left; the clock went back between them, some are compressed."""
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        before = await epoch(fleet)
        taken = await recorded(fleet, *STEPS)
        if compressed:
            clock.pass_by(25 * HOUR)
            assert await compress(fleet.engine)
            clock.pass_by(-25 * HOUR)
        stale = latest(fleet)
        last = await record(fleet, note="last", status="paused")
    fleet.lose_database()
    # As it is when the machine stopped right before it was replaced.
    (fleet.checkpoints / RUN / "latest.json").write_bytes(stale)
    clock.pass_by(MINUTE)
    async with opened(tmp_path, clock=clock) as fleet:
        await fleet.settle()
        order = [each.snapshot_id for each in [*taken, last]][::-1]
        assert await ids(fleet) == order
        got = await fleet.do(SnapshotLatest(RUN))
        assert to_file(got) == to_file(last) == latest(fleet)
        for each in taken:
            assert to_file(await fleet.do(SnapshotGet(each.snapshot_id))) == to_file(each)
        assert await codes(fleet) == []
        assert await epoch(fleet) != before
        clock.step(-3 * DAY)
        new = await record(fleet, note="new")
        assert seq_of(new.snapshot_id) > seq_of(last.snapshot_id)
        assert (await ids(fleet))[:2] == [new.snapshot_id, last.snapshot_id]
        assert latest(fleet) == to_file(new)
        if compressed:
            named = {p.suffix for p in history(fleet).iterdir()}
            assert named == {".gz", ".json"}


async def test_a_lost_database_and_only_compressed_files_start_above_them_all(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        taken = await recorded(fleet, 0, 0, 0)
        clock.pass_by(25 * HOUR)
        await compress(fleet.engine)
    fleet.lose_database()
    shutil.rmtree(fleet.database.parent)
    async with opened(tmp_path, clock=clock) as fleet:
        (page,) = [await fleet.do(SnapshotList(RUN))]
        assert [bool(each.compressed_at) for each in page.snapshots] == [True] * 3
        got = await fleet.do(SnapshotGet(taken[0].snapshot_id))
        packed = {each.path: each.digest for each in got.artifacts if each.compressed}
        assert len(packed) == 1
        assert gzip.decompress(
            (fleet.checkpoints / RUN / next(iter(packed))).read_bytes()
        ) == to_file(taken[0])
        assert await codes(fleet) == []
        new = await record(fleet, note="new")
        assert seq_of(new.snapshot_id) > max(seq_of(each.snapshot_id) for each in taken)


async def test_with_a_damaged_file_among_them_the_others_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        taken = await recorded(fleet, MINUTE, MINUTE, MINUTE)
    fleet.lose_database()
    bad = history(fleet) / f"{taken[1].snapshot_id}.json"
    bad.write_bytes(bad.read_bytes()[:99])
    (history(fleet) / "notes.txt").write_text("a person's")
    (history(fleet) / "cp_20260105T120000000Z_9.json").mkdir()
    async with opened(tmp_path, clock=clock) as fleet:
        assert await ids(fleet) == [taken[2].snapshot_id, taken[0].snapshot_id]
        assert f"was not imported: The snapshot file {bad}" in caplog.text
        assert bad.read_bytes()
        assert sorted(await codes(fleet)) == ["checkpoint_schema_invalid"] * 2
        newest = await fleet.do(SnapshotLatest(RUN))
        assert newest.snapshot_id == taken[2].snapshot_id
        assert sum("it stays in place" in said for said in newest.warnings) == 2


@pytest.mark.parametrize("checkpoint_too", [False, True])
async def test_an_older_database_that_was_put_in_place_is_brought_forward(
    tmp_path: Path, checkpoint_too: bool
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission(2)
        await fleet.checkpoint(mission)
        early = await recorded(fleet, MINUTE, MINUTE)
        before = await epoch(fleet)
    copied = fleet.copied_database()
    async with opened(tmp_path, clock=clock) as fleet:
        late = await recorded(fleet, -HOUR, MINUTE, MINUTE)
        if checkpoint_too:
            await fleet.checkpoint(mission)
            late += await recorded(fleet, MINUTE)
    fleet.put_back(copied)
    async with opened(tmp_path, clock=clock) as fleet:
        await fleet.settle()
        assert await ids(fleet) == [each.snapshot_id for each in [*early, *late]][::-1]
        assert await epoch(fleet) != before
        assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == late[-1].snapshot_id
        new = await record(fleet, note="new")
        assert seq_of(new.snapshot_id) > seq_of(late[-1].snapshot_id)
        assert latest(fleet) == to_file(new)
        assert await codes(fleet) == []


async def test_what_came_back_from_files_is_not_gathered_from_the_log_again(
    tmp_path: Path,
) -> None:
    """The rows of a run are lost, the log is not: its commands stand in the snapshots."""
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission(1)
        await fleet.agents(mission, "spec-1")
        for name in ("Bash", "Edit"):
            data = {"tool": name, "call_id": name}
            await fleet.do(EventAppend("tool_finished", agent_id="spec-1", data=data))
        taken = await fleet.do(SnapshotRecord(RUN, agent_id="spec-1"))
        assert [each.name for each in taken.command_outcomes] == ["Bash", "Edit"]
        await fleet.settle()
        fleet.sql("DELETE FROM snapshots")
        fleet.sql("DELETE FROM runs")
    async with opened(tmp_path, clock=clock) as fleet:
        clock.pass_by(MINUTE)
        data = {"tool": "Read", "call_id": "Read"}
        await fleet.do(EventAppend("tool_finished", agent_id="spec-1", data=data))
        again = await fleet.do(SnapshotRecord(RUN, agent_id="spec-1"))
        assert [each.name for each in again.command_outcomes] == ["Read"]
        assert await ids(fleet) == [again.snapshot_id, taken.snapshot_id]


async def test_a_second_prune_after_a_file_could_not_be_removed_says_so(
    fleet: Fleet, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = Stubborn(monkeypatch)
    stuck = (await record(fleet, note="old")).snapshot_id
    await record(fleet, "run-2")
    fleet.clock.pass_by(14 * DAY + 1)
    await record(fleet, note="newest")
    await record(fleet, "run-2", note="newest")
    stubborn.names = {stuck}
    with pytest.raises(RetentionPruneFailed, match=r"2 snapshots were deleted, but 1"):
        await fleet.do(SnapshotPrune())
    for again in (SnapshotPrune(), SnapshotPrune(RUN), SnapshotPrune(dry_run=True)):
        with pytest.raises(RetentionPruneFailed, match=f"0 snapshots .* earlier .*{stuck}") as told:
            await fleet.do(again)
        assert told.value.values["stuck"] == [stuck]
    assert (await fleet.do(SnapshotPrune("run-2"))).deleted == 0
    stubborn.names = set()  # the cause is removed: nobody waits for the next attempt
    assert (await fleet.do(SnapshotPrune())).deleted == 0
    assert f"{stuck}.json" not in {path.name for path in history(fleet).iterdir()}


async def test_a_row_whose_run_is_no_name_costs_its_own_file_and_nothing_else(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        taken = await recorded(fleet, MINUTE, MINUTE)
        spoilt = taken[0].snapshot_id
        (history(fleet) / f"{spoilt}.json").unlink()
        fleet.sql("INSERT INTO runs (id, status) VALUES ('../x', 'paused')")
        fleet.sql("UPDATE snapshots SET run_id = '../x' WHERE id = :id", id=spoilt)
    async with opened(tmp_path, clock=clock) as fleet:
        assert "snapshot files of ../x cannot be read" in caplog.text
        assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == taken[1].snapshot_id
        assert await codes(fleet)
        clock.pass_by(15 * DAY)
        with pytest.raises(RetentionPruneFailed, match="not an id"):
            await fleet.do(SnapshotPrune())
        await record(fleet, note="goes on")
        assert not (fleet.checkpoints.parent / "x").exists()


async def test_the_very_first_snapshot_tells_of_a_lost_log_too(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        first, before = await record(fleet), await epoch(fleet)
        assert seq_of(first.snapshot_id) == 0
    fleet.lose_database()
    async with opened(tmp_path, clock=clock) as fleet:
        assert await epoch(fleet) != before
        new = await record(fleet, note="in the same millisecond")
        assert seq_of(new.snapshot_id) > 0
        assert await ids(fleet) == [new.snapshot_id, first.snapshot_id]


def forged(path: Path, **changes: Any) -> bytes:
    """Return the bytes of a file with other content, sealed as if we had written them."""
    content = msgspec.json.decode(path.read_bytes()) | changes
    seal = content.pop("integrity")
    digest = digest_of(canonical(content))
    return msgspec.json.encode(content | {"integrity": seal | {"digest": digest}})


async def test_a_file_that_counts_beyond_all_measure_stops_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counters that went on from there would come to the end of what a row can hold."""
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        taken = await record(fleet)
        checkpoint = await fleet.checkpoint(await fleet.mission(2))
    fleet.lose_database()
    far = "cp_20260105T120000000Z_999999999999999999"
    forgery = forged(history(fleet) / f"{taken.snapshot_id}.json", snapshot_id=far)
    (history(fleet) / f"{far}.json").write_bytes(forgery)
    path = fleet.file_of(checkpoint)
    path.write_bytes(forged(path, seq=2**63 - 1))
    async with opened(tmp_path, clock=clock) as fleet:
        assert caplog.text.count("holds a number beyond the limit") == 2
        assert await ids(fleet) == [taken.snapshot_id]
        new = await record(fleet, note="new")
        assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == new.snapshot_id
        await fleet.mission(1)


@pytest.mark.parametrize("lost", ["row", "damaged row"])
async def test_a_directory_that_somebody_copied_hides_no_file(fleet: Fleet, lost: str) -> None:
    """Not that of a run, nor that of a mission."""
    mission = await fleet.mission(2)
    checkpoint = await fleet.checkpoint(mission)
    taken = await record(fleet)
    await record(fleet, note="newer")
    for copy, owner in (("a-copy", RUN), ("bak-1", mission.id)):
        shutil.copytree(fleet.checkpoints / owner, fleet.checkpoints / copy, symlinks=True)
    if lost == "row":
        fleet.sql("DELETE FROM snapshots WHERE id = :id", id=taken.snapshot_id)
        fleet.sql("DELETE FROM checkpoints")
    else:
        fleet.sql("UPDATE snapshots SET document_json = 'x' WHERE id = :id", id=taken.snapshot_id)
        fleet.sql("UPDATE checkpoints SET sorties_json = '[{'")
    assert to_file(await fleet.do(SnapshotGet(taken.snapshot_id))) == to_file(taken)
    assert (await fleet.do(CheckpointGet(checkpoint.id))).integrity == checkpoint.integrity
    for request in (
        SnapshotVerify(snapshot_id=taken.snapshot_id),
        CheckpointVerify(checkpoint_id=checkpoint.id),
    ):
        assert (await fleet.do(request)).ok
