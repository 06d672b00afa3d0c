"""Flipped bits, cuts and holes anywhere in fleetd's files: never served as good.

A store is filled once, with all kinds of records, and closed cleanly or killed. Each round damages
a copy of it in one place and opens it. A witness of every row and record defines what may be
served: the stored data, or a typed error. If a file lost a record, the row must still have it.
"""

import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
import msgspec
import trio

from fleetd.domain.checkpoints import codec
from fleetd.protocol.errors import Corrupt, FleetError
from fleetd.protocol.records import Checkpoint
from fleetd.protocol.requests.system import SystemDoctor
from fleetd.store.api import StoreRefused
from fleetd.store.files.record_files import packed
from fleetd.store.sqlite import database_files, page_checksums
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.ledger import (
    FILED,
    Fact,
    LedgerWorker,
    intact,
    look,
    quietly,
    running,
    serves,
    standing,
)
from tests.support.fleet import Fleet

ROUNDS = 60
UNCHECKED = "pages-without-checksums"
UNTOLD = "without a last change that has no event"
HARMLESS = "healed or harmless"
Rows = dict[str, set[tuple[Any, ...]]]
# Tables that a start changes by itself.
_OWN = ("store_meta", "agents")


@dataclass(frozen=True)
class Master:
    """A closed store, and what it held."""

    root: Path
    rows: Rows
    facts: list[Fact]


def campaign(run: Run) -> None:
    """Damage one place in each round."""
    masters: list[Master] = []
    with quietly(), _planted(run.planted):
        for number in run.rounds():
            if not masters or number % ROUNDS == 0:
                name = f"{run.seed}/{number // ROUNDS}"
                masters = [_master(run, f"{name}/{end}", end) for end in ("ended", "killed")]
            _round(run, masters[0] if run.planted == UNCHECKED else run.chance.choice(masters))


def _master(run: Run, name: str, end: str) -> Master:
    """Fill a store; a killed one has its last transactions in the WAL."""
    root = run.place / f"{end}-{run.round}"
    (root / "project").mkdir(parents=True)
    facts: list[Fact] = []
    left = trio.run(_fill, root, random.Random(name), facts)
    if end == "killed":
        shutil.rmtree(root)
        left.rename(root)
    else:
        shutil.rmtree(left)
    master = Master(root, trio.run(_rows_of, _copied(run, root)), standing(facts))
    whole = _copied(run, root)
    if trio.run(_serve, master, whole, whole / "data" / "squawk.db") != HARMLESS:
        raise Red("what is whole is taken for damaged")
    return master


def _copied(run: Run, root: Path) -> Path:
    place = run.place / "witness"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root, place, symlinks=True)
    return place


async def _fill(root: Path, chance: random.Random, facts: list[Fact]) -> Path:
    """Work on a store; return a copy of it as a kill leaves it."""
    async with running(root) as fleet:
        for name in ("a", "b"):
            worker = LedgerWorker(fleet, name, chance, facts.append)
            await worker.work(20)
            if name == "a":
                fleet.engine.store._wal._connection.wal_checkpoint(
                    mode=apsw.SQLITE_CHECKPOINT_RESTART
                )
        await fleet.settle()
        _compress(fleet, facts)
        killed = root.with_name(f"{root.name}-copy")
        shutil.copytree(root, killed, symlinks=True)
    return killed


def _compress(fleet: Fleet, facts: list[Fact]) -> None:
    """Compress half of the snapshots, as if they were old."""
    backups = fleet.engine.backups["snapshot"]
    for fact in [fact for fact in facts if fact.kind == "snapshot"][::2]:
        data = backups.read(fact.value[0], fact.id)
        assert data is not None
        backups.compress(fact.value[0], fact.id, packed(data))


async def _rows_of(root: Path) -> Rows:
    async with running(root) as fleet:
        return {table: await _rows(fleet, table) for table in await _tables(fleet)}


async def _tables(fleet: Fleet) -> list[str]:
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    found = await fleet.engine.store.read(lambda tx: tx.all(sql))
    return [row["name"] for row in found if row["name"] not in _OWN]


async def _rows(fleet: Fleet, table: str) -> set[tuple[Any, ...]]:
    found = await fleet.engine.store.read(lambda tx: tx.all(f"SELECT * FROM {table}"))
    return {tuple(row.values()) for row in found}


def _round(run: Run, master: Master) -> None:
    place = run.place / "damaged"
    shutil.copytree(master.root, place, symlinks=True)
    try:
        path, what = _damage(place, run.chance, _AIMED.get(run.planted or ""))
        hurt = f"{path.relative_to(place)}: {what}"
        try:
            outcome = trio.run(_serve, master, place, path)
        except (StoreRefused, Corrupt) as refusal:
            outcome = "refused at the start"
            if path.parent.name != "data":
                raise Red(f"{hurt}: a file stops the start: {refusal}") from refusal
        except Red as red:
            raise Red(f"{hurt}: {red}") from red
        except Exception as bug:
            raise Red(f"{hurt}: {type(bug).__name__}: {bug}") from bug
        run.add(outcome)
    finally:
        shutil.rmtree(place)


async def _serve(master: Master, place: Path, path: Path) -> str:
    """Open a damaged store and compare everything that it serves with the stored data."""
    without_event = False
    told, gone = 0, not (place / "data" / "squawk.db").exists()
    async with running(place) as fleet:
        # Records restored from files, or known to be lost, are in a new epoch with an event.
        lost = gone or "store_restored" in {event.type for event in await fleet.events()}
        for table, rows in master.rows.items():
            try:
                found = await _rows(fleet, table)
            except FleetError:
                told += 1
                continue
            if found != rows and path.name.endswith("-wal") and await _all_told(fleet, master):
                without_event = True
            elif not lost and found != rows:
                raise Red(
                    f"{table} is served as {_short(found - rows)}, was {_short(rows - found)}"
                )
        for fact in master.facts:
            excused = lost and (fact.kind not in FILED or fact.id == path.name.partition(".")[0])
            told += await look(fleet, fact, excused=excused)
        if not told:
            await serves(fleet)
        if path.parent.name == "data" and await _diagnosed(fleet):
            told += 1
        else:
            intact(fleet.database)
    if without_event:
        return UNTOLD
    return "told on reading" if told else "told at the start" if lost else HARMLESS


async def _all_told(fleet: Fleet, master: Master) -> bool:
    """Return whether every event is there: then a cut WAL may lack changes that have none.

    Those are notes of the daemon itself, such as that a file was written.
    """
    try:
        return await _rows(fleet, "events") == master.rows["events"]
    except FleetError:
        return False


async def _diagnosed(fleet: Fleet) -> bool:
    """Return whether the doctor reports that the database is damaged."""
    found = (await fleet.do(SystemDoctor())).findings
    return not all(each.ok for each in found if each.check in ("database", "log"))


def _short(rows: set[tuple[Any, ...]]) -> str:
    return str(rows)[:300]


def _damage(place: Path, chance: random.Random, aim: str | None) -> tuple[Path, str]:
    """Damage one file in one place; choose kinds of files, and their parts, equally often.

    Damage to a file may come with the loss of the database: then no other copy exists.
    """
    kinds: dict[str, list[Path]] = {}
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.is_symlink() and not path.name.endswith("-shm"):
            kind = path.name if path.parent.name == "data" else f"{path.parent.name}{path.suffix}"
            kind = "checkpoint" if kind.startswith("msn-") else kind
            kind = "latest" if path.name == "latest.json" else kind
            kinds.setdefault(kind, []).append(path)
    kind = aim if aim in kinds else chance.choice(sorted(kinds))
    path = chance.choice(kinds[kind])
    data = bytearray(path.read_bytes())
    name, hurt = chance.choice(_WAYS) if aim is None else _WAYS[0]
    offset = _somewhere(data, chance) if aim is None else _in_text(data, chance)
    hurt(data, offset, chance)
    path.write_bytes(data)
    alone = path.parent.name != "data" and chance.random() < 0.5
    for database in (place / "data").glob("squawk.db*") if alone else ():
        database.unlink()
    return path, f"{name} at {offset} of {len(data)}{', and no database' if alone else ''}"


def _somewhere(data: bytearray, chance: random.Random) -> int:
    """Return a position in a file: in its header, in a page's or frame's header, or anywhere."""
    part = chance.randrange(4)
    if part == 0:
        return chance.randrange(min(100, len(data)))
    if part == 1 and len(data) > 4_096:
        return chance.randrange(len(data) // 4_096) * 4_096 + chance.randrange(16)
    if part == 2 and len(data) > 32 + 4_120:
        return 32 + chance.randrange((len(data) - 32) // 4_120) * 4_120 + chance.randrange(24)
    return chance.randrange(len(data))


def _in_text(data: bytearray, chance: random.Random) -> int:
    return chance.choice([at for at, byte in enumerate(data) if 97 <= byte <= 122] or [0])


def _flip(data: bytearray, offset: int, chance: random.Random) -> None:
    data[offset] ^= 1 << chance.randrange(8)


def _cut_off(data: bytearray, offset: int, _chance: random.Random) -> None:
    del data[offset:]


def _blank(data: bytearray, offset: int, _chance: random.Random) -> None:
    start = offset - offset % 512
    data[start : start + 512] = bytes(min(512, len(data) - start))


def _scramble(data: bytearray, offset: int, chance: random.Random) -> None:
    start = offset - offset % 512
    data[start : start + 512] = chance.randbytes(min(512, len(data) - start))


# The file that reveals a defect, so that it is detected soon.
_AIMED = {
    UNCHECKED: "squawk.db",
    "end-not-missed": "squawk.db-wal",
    "digests-not-compared": "checkpoint",
}
_WAYS: list[tuple[str, Callable[[bytearray, int, random.Random], None]]] = [
    ("a flipped bit", _flip),
    ("a flipped bit", _flip),
    ("a cut", _cut_off),
    ("a blank sector", _blank),
    ("a foreign sector", _scramble),
]


def _unread(whole: dict[str, Any], digest: str | None, _layout: Any) -> Checkpoint:
    """Return a checkpoint without checking its digest."""
    return msgspec.convert({**whole, "integrity": {"digest": digest or ""}}, Checkpoint)


def _planted(defect: str | None) -> ExitStack:
    """Plant a defect in the product."""
    stack = ExitStack()
    if defect == "digests-not-compared":
        stack.enter_context(mock.patch.object(codec, "_checked", _unread))
    elif defect == UNCHECKED:
        stack.enter_context(mock.patch.object(page_checksums, "available", return_value=False))
    elif defect == "end-not-missed":
        stack.enter_context(mock.patch.object(database_files, "reached", return_value=0))
    return stack


CAMPAIGN = Campaign(
    name="damage",
    what="flipped bits and cuts anywhere in database, WAL, checkpoint and snapshot files",
    unit="damages",
    run=campaign,
    short=15,
    long=5_000,
    planted={UNCHECKED: 60, "digests-not-compared": 60, "end-not-missed": 60},
)
