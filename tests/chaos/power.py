"""Power cuts below SQLite: everything acknowledged is there, and no database is corrupt.

Several clients work on an engine with its threads while the disk is recorded, WAL and all. Then the
power is cut at moments of that record, and once more while the result is opened.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
import trio

from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import FleetError
from fleetd.protocol.requests.system import SystemBackup
from fleetd.protocol.timestamps import iso
from fleetd.store import worker_thread
from fleetd.store.api import StoreRefused
from fleetd.store.sqlite import connect, group_commit, migrate, wal_checkpointer
from fleetd.store.sqlite.migrate import migrations
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.disk import ROOT, RecordedDisk, gone_after
from tests.chaos.ledger import Fact, LedgerWorker, check, intact, quietly, running, serves
from tests.support.fleet import NOON, Fleet

CLIENTS, STEPS, CUTS = 4, 14, 25
OLD = "msn-00000001"
# Small, so that the WAL is checkpointed and restarted many times.
WAL_PAGES = 40


def campaign(run: Run) -> None:
    """Cut the power, CUTS times for each record."""
    record: RecordedDisk | None = None
    with quietly():
        for number in run.rounds():
            if record is None or number % CUTS == 0:
                name = f"{run.seed}/record/{number // CUTS}"
                record = _record(run, random.Random(name))
            _cut(run, record)


def _record(run: Run, chance: random.Random) -> RecordedDisk:
    root = run.place / f"record-{run.round}"
    (root / "project").mkdir(parents=True)
    _make_old(root / "data", chance.randrange(len(migrations())))
    disk = RecordedDisk(root)
    if disk.first.names(ROOT).get("data"):
        disk.say(Fact("mission", OLD, ("From before", 0)))
    disk.syncs = run.planted != "no-sync-at-all"
    with disk.recording(), _planted(run.planted):
        trio.run(_work, disk, chance)
        trio.run(_work, disk, chance)
    run.add("commits", sum(isinstance(each, int) for each in disk.said(len(disk.steps))))
    return disk


def _make_old(directory: Path, version: int) -> None:
    """Create a database of an older schema, none for version 0."""
    if not version:
        return
    directory.mkdir()
    connection = apsw.Connection(str(directory / "squawk.db"))
    with mock.patch.object(migrate, "migrations", return_value=migrations()[:version]):
        migrate.migrate(connection, "")
    connection.execute(
        "INSERT INTO missions (id, title, created_at, updated_at) VALUES (?, 'From before', ?, ?)",
        (OLD, iso(NOON), iso(NOON)),
    )
    connection.close()


async def _work(disk: RecordedDisk, chance: random.Random) -> None:
    """Let some clients work concurrently; records of one transaction share a number."""
    async with running(disk.root, inline=False) as fleet:
        _number(fleet, disk.say)
        async with trio.open_nursery() as nursery:
            for client in range(CLIENTS):
                name = f"c{client}{chance.randrange(10**6)}"
                worker = LedgerWorker(fleet, name, random.Random(name), disk.say)
                nursery.start_soon(worker.work, STEPS)
            nursery.start_soon(_back_up, fleet, disk, chance)


async def _back_up(fleet: Fleet, disk: RecordedDisk, chance: random.Random) -> None:
    path = disk.root / f"copy-{chance.randrange(10**6)}.db"
    await fleet.do(SystemBackup(str(path)))
    disk.say(Fact("copy", path.name))


def _number(fleet: Fleet, say: Callable[[Any], None]) -> None:
    """Let every transaction write the same number first and last, and record its commit."""
    write = fleet.engine.store.write

    async def numbered(rule: Any, kind: Any = None) -> Any:
        if isinstance(rule, group_commit.OutsideTransaction):
            return await write(rule, kind)
        done: list[int] = []

        def both(tx: Tx) -> Any:
            number = int(tx.value(_NUMBER, key="last") or 0) + 1
            _set(tx, "first", number)
            result = rule(tx)
            _set(tx, "last", number)
            done.append(number)
            return result

        result = await write(both, kind)
        say(done[-1])
        return result

    setattr(fleet.engine.store, "write", numbered)  # noqa: B010


_NUMBER = "SELECT value FROM store_meta WHERE key = :key"


def _set(tx: Tx, key: str, number: int) -> None:
    tx.run(
        "INSERT INTO store_meta VALUES (:key, :value) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=key,
        value=str(number),
    )


def _cut(run: Run, disk: RecordedDisk) -> None:
    """Cut the power at a moment, check, and cut it once more while the result is opened."""
    moment = run.chance.choice(disk.moments())
    said = disk.said(moment)
    with gone_after(run.place / "a") as place, gone_after(run.place / "b") as again:
        disk.after_cut(moment, run.chance, place)
        later = RecordedDisk(place)
        with later.recording():
            _look(place, said)
        later.after_cut(run.chance.choice(later.moments()), run.chance, again)
        _look(again, said)
    run.add("cuts", 2)


def _look(place: Path, said: list[Any]) -> None:
    (place / "project").mkdir(exist_ok=True)
    try:
        trio.run(_ask, place, said)
    except (StoreRefused, FleetError) as error:
        raise Red(f"fleetd cannot be started: {error}") from error
    intact(place / "data" / "squawk.db")
    for fact in said:
        if isinstance(fact, Fact) and fact.kind == "copy":
            intact(place / fact.id)


async def _ask(place: Path, said: list[Any]) -> None:
    async with running(place) as fleet:
        if fleet.engine.store.lost:
            raise Red(f"what a power cut left is taken for damage: {fleet.engine.store.lost.why}")
        found = {row["key"]: int(row["value"]) for row in fleet.sql(_NUMBERS)}
        first, last = found.get("first", 0), found.get("last", 0)
        if first != last:
            raise Red(f"half a transaction is there: {first} began, {last} ended")
        told = max((each for each in said if isinstance(each, int)), default=0)
        if last < told:
            raise Red(f"{told - last} acknowledged transactions are lost of {told}")
        await check(fleet, [each for each in said if isinstance(each, Fact)])
        await serves(fleet)


_NUMBERS = "SELECT key, value FROM store_meta WHERE key IN ('first', 'last')"


@contextmanager
def _planted(defect: str | None) -> Iterator[None]:
    """Plant a defect in the product."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(wal_checkpointer, "PAGES", WAL_PAGES))
        if defect == "synchronous-normal":
            stack.enter_context(mock.patch.object(connect, "_settle", _settle_normal))
        elif defect == "reply-before-commit":
            for patch in _Hasty().patches():
                stack.enter_context(patch)
        yield


_settle = connect._settle


def _settle_normal(connection: apsw.Connection) -> None:
    _settle(connection)
    connection.pragma("synchronous", "normal")


class _Hasty:
    """Replies, and then commits."""

    def __init__(self) -> None:
        self._soon: Callable[..., None] = trio.lowlevel.TrioToken.run_sync_soon
        self._together, self._start = (
            group_commit.SqliteCommitter._together,
            worker_thread.WorkerThread.start,
        )

    def patches(self) -> list[Any]:
        """Return the patches."""

        def together(committer: Any, jobs: list[Any]) -> bool:
            return self._hurry(committer, jobs)

        def start(each: Any) -> None:
            self._soon = trio.lowlevel.current_trio_token().run_sync_soon
            self._start(each)

        return [
            mock.patch.object(group_commit.SqliteCommitter, "_together", together),
            mock.patch.object(worker_thread.WorkerThread, "start", start),
            mock.patch.object(worker_thread.WorkerThread, "_may_run_here", return_value=False),
        ]

    def _hurry(self, committer: Any, jobs: list[Any]) -> bool:
        if all(job._task is None for job in jobs):
            return self._together(committer, jobs)
        done: list[Any] = []
        committer._connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            committer._one(job, done)
        for job, value, _ in done:
            job.succeed(value)
        told = threading.Event()
        self._soon(self._tell, [job for job, *_ in done], told)
        told.wait(10)
        committer._connection.execute("COMMIT")
        return True

    def _tell(self, jobs: list[Any], told: threading.Event) -> None:
        for job in jobs:
            job.wake()
            job._task = None  # the waiting task has been woken
        # After those tasks have run.
        self._soon(lambda: self._soon(told.set))


CAMPAIGN = Campaign(
    name="power",
    what="power cuts below SQLite, while several clients work, and while that is recovered",
    unit="rounds",
    run=campaign,
    short=8,
    long=1_500,
    planted={"synchronous-normal": 20, "no-sync-at-all": 10, "reply-before-commit": 10},
)
