"""EIO and ENOSPC at the n-th write or sync: a typed error, an exit, a clean start, done once.

Below SQLite an error lasts for one call or for good. A failed sync drops its pending writes, the
next sync succeeds, and later the power is cut: no acknowledged change may depend on dropped writes.
Above that, every system call on files fails in turn.
"""

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import apsw
import trio

from fleetd.config import Loaded
from fleetd.engine.engine import Engine
from fleetd.engine.lifecycle import open_engine
from fleetd.host import atomic_files
from fleetd.protocol.errors import FleetError
from fleetd.store.api import StoreFailed, StoreFull, StoreRefused
from fleetd.store.files import layout, record_files
from fleetd.store.sqlite import connect, group_commit, migrate, wal_checkpointer
from fleetd.store.sqlite.migrate import migrations
from tests.chaos.actions import Actions
from tests.chaos.broken_daemon import break_a_daemon
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.ledger import quietly
from tests.support.disk_faults import Faults, faults
from tests.support.fleet import settings

# Small, so that the WAL is checkpointed several times in a short life.
WAL_PAGES = 40
OLD_SCHEMA = 3
FOR_GOOD = 10**9
# What ten rounds break in turn: below SQLite, the files, a real daemon.
TURNS = "bbbfbbfbbd"
FILE_CALLS = ("open", "fsync", "rename", "symlink", "unlink", "mkdir", "rmdir", "write")
ERRNOS = (errno.EIO, errno.ENOSPC)


def run(run: Run) -> None:
    """Let one call fail in every round."""
    with quietly(), _planted(run.planted):
        below, files = Counter[tuple[str, str]](), 0
        for number in run.rounds():
            with run.home() as (home, env):
                turn, index = _turn(number) if run.planted is None else ("b", number)
                if turn == "d" and run.judged:
                    break_a_daemon(run, home, env)
                elif turn == "f":
                    files = files or trio.run(_count_files, _made(home / "dry"))
                    nth = _nth(run, files, index)
                    trio.run(_at_the_files, run, _made(home / "life"), nth)
                else:
                    below = below or trio.run(_count_below, _made(home / "dry"))
                    call = AIMS.get(run.planted or "", _call(run))
                    nth = _nth(run, below[call], index)
                    trio.run(_below_sqlite, run, _made(home / "life"), call, nth)


def _turn(number: int) -> tuple[str, int]:
    """Return what a round breaks, and how many earlier rounds broke the same."""
    tens, place = divmod(number, len(TURNS))
    turn = TURNS[place]
    return turn, tens * TURNS.count(turn) + TURNS[:place].count(turn)


def _nth(run: Run, calls: int, index: int) -> int:
    """Return which call fails: each in turn where there are enough rounds."""
    return (index % calls if run.count > calls else run.chance.randrange(calls)) + 1


def _call(run: Run) -> tuple[str, str]:
    """Return what fails: every changing call or, with a full disk, writes."""
    return ("write", "any") if run.chance.random() < 0.3 else ("any", "any")


@contextlib.contextmanager
def _planted(defect: str | None) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(wal_checkpointer, "PAGES", WAL_PAGES))
        for module, name, instead in DEFECTS.get(defect or "", ()):
            stack.enter_context(mock.patch.object(module, name, instead))
        yield


# Below SQLite


def _made(home: Path) -> Loaded:
    """Return settings for a database of an old schema, so that the start migrates."""
    home.mkdir()
    (home / "data").mkdir()
    connection = apsw.Connection(str(home / "data" / "squawk.db"))
    with mock.patch.object(migrate, "migrations", return_value=migrations()[:OLD_SCHEMA]):
        migrate.migrate(connection, "")
    connection.close()
    return settings(home)


async def _count_below(loaded: Loaded) -> Counter[tuple[str, str]]:
    """Return how many calls a run makes when nothing fails."""
    with faults() as disk:
        async with open_engine(loaded, vfs=disk.name) as engine:
            await Actions(()).work(engine)
        return disk.seen


async def _below_sqlite(run: Run, loaded: Loaded, call: tuple[str, str], nth: int) -> None:
    full = call == ("write", "any")
    times = run.chance.choice((1, FOR_GOOD)) if run.planted is None else 1
    # A snapshot may be stored before the disk fails to write its file.
    deeds = Actions(("storage", "unavailable", "checkpoint_atomic_write_failed"))
    with faults() as disk:
        disk.fail(*call, apsw.FullError if full else apsw.IOError, nth=nth, times=times)
        await _first_life(loaded, disk, deeds, full=full)
        run.add("errors met", min(disk.failed, 1))
        disk.mend()
        if run.planted is None and run.chance.random() < 0.5:
            disk.disk.lose_power()
        pages = 1_000 if run.planted or run.chance.random() < 0.5 else WAL_PAGES
        with mock.patch.object(wal_checkpointer, "PAGES", pages):
            left = await _second_life(run, loaded, disk, deeds)
        disk.disk.lose_power(left)
    async with open_engine(loaded) as engine:
        await deeds.check(engine)


async def _second_life(run: Run, loaded: Loaded, disk: Faults, deeds: Actions) -> dict[str, bytes]:
    """Retry requests without an answer, and continue; return the content of the disk at the end."""
    async with open_engine(loaded, vfs=disk.name) as engine:
        await deeds.again(engine)
        if deeds.open:
            raise Red(f"a disk in order refuses {deeds.open[0].method}")
        # Before the WAL is copied back, which writes all of its pages again, or after that.
        await deeds.work(engine, run.chance.choice((0, 1, 2, 4, None)))
        return disk.disk.moment()


async def _first_life(loaded: Loaded, disk: Faults, deeds: Actions, *, full: bool) -> None:
    """Run until the end, or until the disk fails."""
    worked = False
    try:
        async with open_engine(loaded, vfs=disk.name) as engine:
            worked = True
            await deeds.work(engine)
            if disk.failed and not full:
                await _must_fail(engine)
    except StoreFailed as failed:
        if full:
            raise Red(f"a full disk ended the daemon: {failed}") from failed
    except (StoreRefused, FleetError) as refused:
        if worked:
            raise Red(f"an error came out of a store that was open: {refused!r}") from refused
        if full and not isinstance(refused, StoreFull | FleetError):
            raise Red(f"a full disk is not told as one: {refused}") from refused


async def _must_fail(engine: Engine) -> None:
    """Check that after an I/O error nothing more is acknowledged, to any client."""
    with trio.move_on_after(3):
        await engine.store.failed.wait()
        await trio.sleep_forever()
    raise Red("it went on after an I/O error")


# Errors in files


class _FailingOs:
    """A replacement for ``os`` in the file code, whose n-th changing call fails."""

    def __init__(self, nth: int = 0, times: int = 1, number: int = errno.EIO) -> None:
        self._first, self._last, self._number = nth, nth + times, number
        self.seen = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._failing(name, real) if name in FILE_CALLS else real

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.seen += 1
            if self._first <= self.seen < self._last:
                raise OSError(self._number, os.strerror(self._number), name)
            return real(*args, **named)

        return call

    @contextlib.contextmanager
    def instead(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module in (atomic_files, record_files, layout):
                stack.enter_context(mock.patch.object(module, "os", self))
            yield


async def _count_files(loaded: Loaded) -> int:
    disk = _FailingOs()
    with disk.instead():
        async with open_engine(loaded) as engine:
            await Actions(()).work(engine)
    return disk.seen


async def _at_the_files(run: Run, loaded: Loaded, nth: int) -> None:
    disk = _FailingOs(nth, run.chance.choice((1, FOR_GOOD)), run.chance.choice(ERRNOS))
    told = ("storage", "checkpoint_atomic_write_failed", "checkpoint_retention_prune_failed")
    deeds = Actions(told)
    with disk.instead():
        try:
            async with open_engine(loaded) as engine:
                await deeds.work(engine)
        except (StoreRefused, FleetError, OSError) as error:
            if deeds.number or isinstance(error, OSError):
                raise Red(f"an error of the files came out of the engine: {error!r}") from error
    run.add("errors met")
    async with open_engine(loaded) as engine:
        await deeds.again(engine)
        if deeds.open:
            raise Red(f"a disk in order refuses {deeds.open[0].method}")
        await engine.outbox.settled()
        await deeds.check(engine)
    if left := [*loaded.config.checkpoints.rglob(f"{atomic_files.TEMP}*")]:
        raise Red(f"temporary files stay: {left}")


DEFECTS: dict[str, tuple[tuple[ModuleType, str, Any], ...]] = {
    # After an error the writer continues as if the disk were in order.
    "ignored": ((group_commit, "leaves_doubt", lambda _: False),),
    # An error during the checkpoint of the WAL is not reported.
    "swallowed": ((wal_checkpointer, "leaves_doubt", lambda _: False),),
    # The next start relies on data that a failed sync did not bring to the disk.
    "trusted": ((connect, "rewrite_wal", lambda *_: None),),
}
# Where a planted defect shows.
AIMS = {"swallowed": ("sync", "db"), "trusted": ("sync", "wal")}
CAMPAIGN = Campaign(
    name="io_errors",
    what="EIO or ENOSPC at the n-th write or sync, below SQLite, at the files, of a real daemon",
    unit="errors",
    run=run,
    short=7,
    long=3_000,
    planted={"ignored": 6, "swallowed": 6, "trusted": 8},
)
