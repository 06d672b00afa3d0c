"""Power cuts below the files of checkpoints and snapshots, with the database and without it.

What is written, removed, compressed and forgotten is recorded with its syncs; the power goes at
moments of that record. Then fleetd is started on what may be left, once as it is, and once with the
database lost as well: what was acknowledged is there, and nothing comes back that was taken away.
"""

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import trio

from fleetd.engine import DAEMON
from fleetd.operations.compressing import SnapshotsCompress
from fleetd.store import StoreRefused
from fleetd.wire.errors import FleetError
from fleetd.wire.requests.checkpoint import CheckpointVerify
from fleetd.wire.requests.snapshot import SnapshotVerify
from tests.campaigns.campaign import Campaign, Red, Run
from tests.campaigns.disk import Cut, Disk, Name, Sync, Unname, gone_after
from tests.campaigns.ledger import Fact, Worker, check, quietly, running, serves
from tests.fleet import DAY, HOUR, NOON, Clock, Fleet

WORKERS, STEPS, CUTS = 2, 20, 25
# The file itself, or the names in a directory: which syncs are left out.
DEFECTS: dict[str, Callable[[int], bool]] = {
    "files-not-synced": stat.S_ISREG,
    "names-not-synced": stat.S_ISDIR,
}


def campaign(run: Run) -> None:
    """Cut the power, CUTS times for each record."""
    record: Disk | None = None
    with quietly():
        for number in run.rounds():
            if record is None or number % CUTS == 0:
                record = _record(run, random.Random(f"{run.seed}/record/{number // CUTS}"))
            _cut(run, record)


def _record(run: Run, chance: random.Random) -> Disk:
    root = run.place / f"record-{run.round}"
    (root / "project").mkdir(parents=True)
    disk = Disk(root)
    with disk.recording(), _planted(run.planted):
        trio.run(_work, disk, chance)
    return disk


async def _work(disk: Disk, chance: random.Random) -> None:
    clock = Clock()
    async with running(disk.root, clock=clock) as fleet:
        workers = [Worker(fleet, f"w{number}", chance, disk.say) for number in range(WORKERS)]
        for worker in workers:
            await worker.begin()
        for step in range(STEPS):
            worker = chance.choice(workers)
            if not worker.mission:
                await worker.begin()
            kinds = [worker.checkpoint] * 4 + [worker.snapshot] * 3
            kinds += [worker.delete] * 2 + [worker.advance, worker.forget]
            await chance.choice(kinds)()
            if step == STEPS * 2 // 3:
                clock.pass_by(DAY + HOUR)
                await fleet.engine.perform(SnapshotsCompress(), DAEMON)


def _cut(run: Run, disk: Disk) -> None:
    moment = run.chance.choice(disk.moments((Cut, Sync, Name, Unname)))
    facts = [each for each in disk.said(moment) if isinstance(each, Fact)]
    for lost in (False, True):
        with gone_after(run.place / "left") as place:
            disk.after_cut(moment, run.chance, place)
            if lost:
                shutil.rmtree(place / "data", ignore_errors=True)
            _look(place, facts, lost=lost)
        run.add("databases lost as well" if lost else "cuts")


def _look(place: Path, facts: list[Fact], *, lost: bool) -> None:
    (place / "project").mkdir(exist_ok=True)
    try:
        trio.run(_ask, place, facts, lost)
    except (StoreRefused, FleetError) as error:
        raise Red(f"fleetd cannot be started: {error}") from error


async def _ask(place: Path, facts: list[Fact], lost: bool) -> None:
    async with running(place, clock=Clock(NOON + 2 * DAY)) as fleet:
        await check(fleet, facts, rows=not lost)
        await _verify(fleet)
        await serves(fleet)


async def _verify(fleet: Fleet) -> None:
    """Raise Red unless both copies of everything agree after a start, ``latest.json`` included."""
    for request in (CheckpointVerify(), SnapshotVerify()):
        found: Any = await fleet.do(request)
        wrong = [each for each in found.findings if not each.ok]
        if wrong:
            raise Red(f"after the start {request.method} finds {wrong[:3]}")


@contextmanager
def _planted(defect: str | None) -> Iterator[None]:
    """Leave out the syncs of files, or of directories, of all but SQLite."""
    if defect is None:
        yield
        return
    real, spared = os.fsync, DEFECTS[defect]

    def fsync(descriptor: int) -> None:
        if not spared(os.fstat(descriptor).st_mode):
            real(descriptor)

    with mock.patch.object(os, "fsync", fsync):
        yield


CAMPAIGN = Campaign(
    name="power_files",
    what="power cuts below the files of checkpoints and snapshots, and the database lost as well",
    unit="rounds",
    run=campaign,
    short=8,
    long=2_000,
    planted={"files-not-synced": 20, "names-not-synced": 20},
)
