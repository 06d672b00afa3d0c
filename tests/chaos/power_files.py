"""Power cuts among the files: nothing deleted comes back, nothing kept is lost, nothing is torn.

The file operations of fleetd are recorded once for each chapter of a store's life: its first start
with an import, its work, a restore. The power is cut before any of those calls; a new engine starts
on what may be left, with the database of that moment or without it.
"""

import json
import os
import random
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import trio

from fleetd.engine.jobs.daily import compress
from fleetd.engine.offline import restore_command
from fleetd.host import atomic_files
from fleetd.protocol.errors import FleetError
from fleetd.protocol.requests.checkpoint import CheckpointVerify
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.snapshot import SnapshotPrune, SnapshotVerify
from fleetd.protocol.requests.system import SystemBackup
from fleetd.store.api import StoreRefused
from fleetd.store.files import record_files
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.disk import RecordedDisk, Size, Sync, gone_after
from tests.chaos.ledger import Fact, LedgerWorker, check, quietly, running, serves
from tests.support.fleet import DAY, Clock, Fleet, settings

CUTS, STEPS, LEFT = 30, 24, 3
TOO_LATE = "renamed-before-synced"
DATABASE = ("", "-wal", "-shm", "-journal", "-mark")


class Slow(LedgerWorker):
    """Reports a deletion only after the file is gone too: a person may wait that long."""

    async def delete(self) -> None:
        """Delete a checkpoint and wait for its file."""
        await super().delete()
        await self.fleet.settle()
        self.say(Fact("rest", None))

    async def forget(self) -> None:
        """Let some time pass first, so that there is something to prune and to compress."""
        self.fleet.clock.pass_by(2 * DAY)
        await compress(self.fleet.engine)
        await self.fleet.do(SnapshotPrune())
        await super().forget()
        self.say(Fact("rest", None))


@dataclass(frozen=True)
class Chapter:
    """A record, and the checks of the state after a cut."""

    disk: RecordedDisk
    look: Callable[[Path, list[Fact], bool], Any]
    alone: bool
    """Whether the files alone, without the database, must be enough for what they hold."""


def campaign(run: Run) -> None:
    """Cut the power at some moments of each chapter."""
    chapters: list[Chapter] = []
    with quietly():
        for number in run.rounds():
            if not chapters or number % CUTS == 0:
                chance = random.Random(f"{run.seed}/{number // CUTS}")
                chapters = [record(run, chance) for record in (_work, _first_start, _restore)]
            if run.planted == TOO_LATE:
                chapter = chapters[0]
                _cut(run, chapter, _between(chapter.disk))
            else:
                chapter = chapters[number % len(chapters)]
                _cut(run, chapter, chapter.disk.moments())


def _between(disk: RecordedDisk) -> list[int]:
    """Return the moments when names were synced and contents were not."""
    steps = disk.steps
    return [
        moment
        for moment in range(1, len(steps))
        if isinstance(steps[moment - 1], Sync) and isinstance(steps[moment], Size)
    ]


def _cut(run: Run, chapter: Chapter, moments: list[int]) -> None:
    moment = run.chance.choice(moments)
    said = chapter.disk.said(moment)
    alone = chapter.alone and run.chance.random() < 0.4
    with gone_after(run.place / "left") as place:
        chapter.disk.after_cut(moment, run.chance, place)
        (place / "project").mkdir(exist_ok=True)
        if alone:
            _lose_database(place)
        try:
            trio.run(chapter.look, place, said, alone)
        except (StoreRefused, FleetError) as error:
            raise Red(f"fleetd cannot be started: {error}") from error
    run.add("without database" if alone else "with database")


def _lose_database(place: Path) -> None:
    for ending in DATABASE:
        (place / "data" / f"squawk.db{ending}").unlink(missing_ok=True)


async def _whole(fleet: Fleet) -> None:
    """Raise Red unless both copies and latest.json agree without a repair."""
    await fleet.settle()
    for request in (CheckpointVerify(), SnapshotVerify()):
        found = [each for each in (await fleet.do(request)).findings if not each.ok]
        if found:
            raise Red(f"after a start verify finds {found[0].check}: {found[0].detail}")
    left = list(fleet.checkpoints.rglob(".tmp-*"))
    if left:
        raise Red(f"{left[0]} is left")


# Work


def _work(run: Run, chance: random.Random) -> Chapter:
    root = run.place / f"work-{run.round}"
    (root / "project").mkdir(parents=True)
    disk = RecordedDisk(root)
    with disk.recording(), _planted(run.planted):
        trio.run(_do_work, disk, chance)
    return Chapter(disk, _after_work, alone=True)


async def _do_work(disk: RecordedDisk, chance: random.Random) -> None:
    clock = Clock()
    for name in ("a", "b"):
        async with running(disk.root, clock=clock) as fleet:
            await Slow(fleet, name, chance, disk.say).work(STEPS)
            clock.pass_by(DAY)


async def _after_work(place: Path, said: list[Fact], alone: bool) -> None:
    rests = [at for at, fact in enumerate(said) if fact.kind == "rest"]
    settled = said[: rests[-1]] if rests else []
    gone = [fact for fact in settled if fact.kind in ("deleted", "gone")]
    kept = [fact for fact in said if fact.kind not in ("deleted", "gone")]
    async with running(place) as fleet:
        await check(fleet, [*kept, *(gone if alone else said)], rows=not alone)
        await _whole(fleet)
        await serves(fleet)


# The first start


def _first_start(run: Run, chance: random.Random) -> Chapter:
    root = run.place / f"start-{run.round}"
    (root / "project").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data" / "squawk.json").write_text(json.dumps(_OLD_STORE))
    (root / "spool").mkdir()
    for number in range(LEFT):
        _leave(root / "spool", number, chance.randrange(10**12))
    disk = RecordedDisk(root)
    with disk.recording(), _planted(run.planted):
        trio.run(_start, disk)
    return Chapter(disk, _after_start, alone=False)


def _leave(spool: Path, number: int, at_ms: int) -> None:
    """Leave a payload in the spool, as a hook does without a daemon."""
    delivery = f"{number:032x}"
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": "s-1", "prompt": str(number)}
    params = {"delivery_id": delivery, "harness": "claude", "args": [], "cwd": str(spool)}
    params = {"delivery_id": delivery, "harness": "claude", "args": []}
    params["payload"] = json.dumps({**payload, "cwd": "/tmp", "transcript_path": "/tmp/s-1.jsonl"})
    line = {"jsonrpc": "2.0", "method": "hook.deliver", "params": params, "id": 1}
    (spool / f"{at_ms:013}-{delivery}.json").write_text(json.dumps(line) + "\n")


_OLD_STORE: dict[str, Any] = {
    "mailboxes": {"one": {"id": "one"}},
    "events": {"one": [{"type": "task_started", "occurred_at": "2026-01-05T10:00:00.000Z"}]},
    "cursors": {},
    "locks": {},
}


async def _start(disk: RecordedDisk) -> None:
    async with running(disk.root) as fleet:
        await fleet.settle()
        disk.say(Fact("started", None))


async def _after_start(place: Path, said: list[Fact], alone: bool) -> None:
    del said, alone
    async with running(place) as fleet:
        await fleet.settle()
        found = Counter(event.type for event in await fleet.events())
        old, taken = found["task_started"], found["prompt_submitted"]
        if (old, taken) != (1, LEFT):
            raise Red(f"of one old event there are {old}, of {LEFT} deliveries {taken}")
        left = [path.name for path in (place / "spool").iterdir()]
        if left or (place / "data" / "squawk.json").exists():
            raise Red(f"what was taken in is still there: {left}")
        await serves(fleet)


# A restore


def _restore(run: Run, chance: random.Random) -> Chapter:
    root = run.place / f"restore-{run.round}"
    (root / "project").mkdir(parents=True)
    copied: list[Fact] = []
    newer: list[Fact] = []
    trio.run(_live, root, chance, copied, newer)
    disk = RecordedDisk(root)
    with disk.recording(), _planted(run.planted), redirect_stdout(StringIO()):
        if restore_command.run(settings(root), root / "copy.db", preview=False, as_json=True):
            raise Red("the restore failed")
        disk.say(Fact("restored", None))

    async def after(place: Path, said: list[Fact], alone: bool) -> None:
        del alone
        await _after_restore(place, copied, newer, done=bool(said))

    return Chapter(disk, after, alone=False)


async def _live(root: Path, chance: random.Random, copied: list[Fact], newer: list[Fact]) -> None:
    clock = Clock()
    async with running(root, clock=clock) as fleet:
        await LedgerWorker(fleet, "old", chance, copied.append).work(9)
        await fleet.do(SystemBackup(str(root / "copy.db")))
        clock.pass_by(5_000)
        await LedgerWorker(fleet, "new", chance, newer.append).work(9)
        await fleet.settle()


async def _after_restore(place: Path, copied: list[Fact], newer: list[Fact], *, done: bool) -> None:
    """Check that all is as before, or that all records newer than the copy are set aside."""
    async with running(place) as fleet:
        await fleet.settle()
        titles = {mission.title for mission in (await fleet.do(MissionList())).missions}
        before = any(title.startswith("new") for title in titles)
        if before and done:
            raise Red("the restore was done, and what was before is back")
        standing = [*copied, *(newer if before else [])]
        await check(fleet, [fact for fact in standing if fact.kind != "token"])
        if not before:
            for fact in newer:
                if fact.kind in ("checkpoint", "snapshot") and _files(fleet, fact.id):
                    raise Red(f"{fact.kind} {fact.id} is newer than what was restored, and there")
        await _whole(fleet)
        await serves(fleet)


def _files(fleet: Fleet, record_id: str) -> list[Path]:
    return list(fleet.checkpoints.rglob(f"{record_id}*"))


# Defects


class _Without:
    """The module ``os`` without some of the syncs."""

    def __init__(self, left_out: Callable[[int], bool]) -> None:
        self._left_out = left_out

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        """Sync, or skip it."""
        if not self._left_out(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)


def _renamed_first(place: atomic_files.Directory, name: str, data: bytes) -> None:
    """Write a file, and sync it only after the rename."""
    temp = f"{atomic_files.TEMP}{name}"
    flags = os.O_WRONLY | os.O_CREAT
    descriptor = os.open(temp, flags, 0o600, dir_fd=place.descriptor)
    os.write(descriptor, data)
    os.rename(temp, name, src_dir_fd=place.descriptor, dst_dir_fd=place.descriptor)
    os.fsync(place.descriptor)
    os.fsync(descriptor)
    os.close(descriptor)


def _planted(defect: str | None) -> ExitStack:
    """Plant a defect in the product."""
    stack = ExitStack()
    if defect == "file-not-synced":
        stack.enter_context(mock.patch.object(atomic_files, "os", _Without(stat.S_ISREG)))
    elif defect == "directory-not-synced":
        for module in (atomic_files, record_files):
            stack.enter_context(mock.patch.object(module, "os", _Without(stat.S_ISDIR)))
    elif defect == TOO_LATE:
        stack.enter_context(mock.patch.object(record_files, "write_file", _renamed_first))
    return stack


CAMPAIGN = Campaign(
    name="power_files",
    what="power cuts among checkpoint and snapshot files, the spool, an import, a restore",
    unit="cuts",
    run=campaign,
    short=12,
    long=3_000,
    planted={"file-not-synced": 30, "directory-not-synced": 60, TOO_LATE: 30},
)
