"""Inventory: the files and ``latest.json`` of an owner, compared with its rows."""

import contextlib
import logging
from collections.abc import Iterable
from functools import partial

import msgspec

from ...domain.artifacts import inventory
from ...domain.artifacts.inventory import RowNames
from ...domain.artifacts.kinds import KINDS, id_of
from ...domain.artifacts.outbox import Latest, newest_of_files
from ...protocol.errors import Corrupt, IntegrityMismatch
from ...protocol.records import Finding
from ...protocol.types import Noun
from ...store.files.layout import LATEST, Listing
from ..engine import Engine
from .verified_read import latest_data

log = logging.getLogger("fleetd")


class Inventory(msgspec.Struct, frozen=True):
    """The rows and the files of one mission or run; files are those in this machine's directory.

    ``foreign`` are records of another store with files in the same directory.
    """

    noun: Noun
    rows: RowNames
    listing: Listing
    foreign: frozenset[str] = frozenset()

    @property
    def owner_id(self) -> str:
        """Return the id of the owner."""
        return self.rows.owner_id

    @property
    def named(self) -> frozenset[str]:
        """Return the records whose names are taken, by a file or by something in its place."""
        return self.listing.files | self.listing.blocked

    @property
    def missing(self) -> frozenset[str]:
        """Return the records that must have a file here and have none."""
        return self.rows.filed - self.listing.files

    @property
    def orphans(self) -> frozenset[str]:
        """Return the records that have a file and no row."""
        return self.named - self.rows.rows - self.foreign

    @property
    def misplaced(self) -> frozenset[str]:
        """Return the records with a file here that another machine keeps."""
        return self.listing.files & self.rows.elsewhere

    @property
    def deleted(self) -> frozenset[str]:
        """Return the records that are deleted and whose file is still there."""
        return self.named & (self.rows.rows - self.rows.live)

    @property
    def latest_is_right(self) -> bool:
        """Whether ``latest.json`` is the newest record, as far as names tell."""
        latest = self.rows.newest
        return latest in self.listing.files and not self.listing.latest_trouble(latest)


async def owners(engine: Engine, noun: Noun) -> list[str]:
    """Return the missions that have checkpoints, or the runs that have snapshots, by their ids."""
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        batch = await engine.read(inventory.owners, noun, after)
        found += batch.found
        after = batch.following
    return found


async def rows_of(engine: Engine, noun: Noun, owner_id: str) -> RowNames:
    """Return the names of the records of one owner that have a row."""
    (rows,) = await engine.read(inventory.names, noun, [owner_id])
    return rows


async def compare(engine: Engine, noun: Noun, owner_id: str) -> Inventory:
    """Compare the rows and the files of one owner; raises OSError for an unreadable directory.

    The rows are read last, because they are written before the files.
    """
    listing = await engine.outbox.in_thread(lambda: engine.backups[noun].list(owner_id))
    rows = await rows_of(engine, noun, owner_id)
    return Inventory(noun, rows, listing, engine.foreign_records.get(noun, frozenset()))


async def compare_all(engine: Engine, noun: Noun, owner_ids: Iterable[str]) -> list[Inventory]:
    """Compare the rows and the files of several owners; an unreadable one is left out."""
    backups, listings = engine.backups[noun], dict[str, Listing]()

    def look() -> None:
        for owner_id in owner_ids:
            try:
                listings[owner_id] = backups.list(owner_id)
            except OSError as error:
                log.warning("The %s files of %s cannot be read: %s", noun, owner_id, error)

    await engine.outbox.in_thread(look)
    every = await engine.read(inventory.names, noun, list(listings))
    foreign = engine.foreign_records.get(noun, frozenset())
    return [Inventory(noun, rows, listings[rows.owner_id], foreign) for rows in every]


# ``latest.json``: compared with what it ought to be, and repaired.


class _LatestCheck(msgspec.Struct, frozen=True):
    """What ``latest.json`` must be, the record that it is now, and what is wrong with that."""

    wanted: Latest
    held_id: str | None
    trouble: str


async def repair_latest(engine: Engine, inventory: Inventory) -> None:
    """Correct a wrong ``latest.json`` to the newest record that has a file.

    Nothing is read if the names are right.
    """
    if inventory.latest_is_right:
        return
    found = await _check_latest(engine, inventory)
    listing = inventory.listing
    is_whole = listing.copies and not listing.latest_trouble(found.wanted.id)
    if is_whole and found.held_id in inventory.rows.live - listing.files:
        return  # it may be the last copy of a record whose file is missing
    await _set_latest(engine, inventory, found)


async def check_latest(
    engine: Engine, noun: Noun, owner_id: str, known: set[str | None], *, repair: bool
) -> list[Finding]:
    """Check ``latest.json`` after the records: their repair may have corrected it.

    If it is a record that is ``known`` to be bad, that is no separate finding. Raises OSError when
    nothing can be read.
    """
    async with engine.outbox.file_lock:
        inventory = await compare(engine, noun, owner_id)
        found = await _check_latest(engine, inventory)
        if not found.trouble or (found.held_id in known and not repair):
            return []
        done = await _set_latest(engine, inventory, found) if repair else ""
    return [
        Finding(
            check="latest",
            ok=False,
            subject=str(engine.backups[noun].root / owner_id / LATEST),
            detail=done or found.trouble,
            fixed=bool(done),
            reason_code=IntegrityMismatch.kind if inventory.listing.copies else None,
        )
    ]


async def _check_latest(engine: Engine, inventory: Inventory) -> _LatestCheck:
    noun, owner_id, listing = inventory.noun, inventory.owner_id, inventory.listing
    wanted = await _newest_whole(engine, noun, owner_id, listing.files)
    trouble = listing.latest_trouble(wanted.id)
    if not listing.copies:
        return _LatestCheck(wanted, (listing.latest or "").removesuffix(".json"), trouble)
    held = await engine.outbox.in_thread(lambda: engine.backups[noun].latest_bytes(owner_id))
    if not trouble and wanted.data not in (None, held):
        trouble = f"does not hold snapshot {wanted.id}, the newest"
        if held is None:
            trouble = "is unreadable or too large"
    held_id = None
    with contextlib.suppress(Corrupt):
        held_id = id_of(KINDS[noun].from_file(held or b"", LATEST))
    return _LatestCheck(wanted, held_id, trouble)


async def _newest_whole(engine: Engine, noun: Noun, owner_id: str, files: frozenset[str]) -> Latest:
    """Return what ``latest.json`` must be: the newest record that has a file.

    A copy needs a record that is intact somewhere, even if only in ``latest.json`` itself. If there
    is none, the newest is returned without its bytes.
    """
    backups = engine.backups[noun]
    newest = wanted = await engine.read(newest_of_files, noun, owner_id, files)
    while backups.layout.copies and wanted.id is not None:
        data = await engine.outbox.in_thread(partial(latest_data, backups, owner_id, wanted))
        if data is not None:
            return Latest(id=wanted.id, data=data)
        files -= {wanted.id}
        wanted = await engine.read(newest_of_files, noun, owner_id, files)
    return newest


async def _set_latest(engine: Engine, inventory: Inventory, found: _LatestCheck) -> str:
    """Correct ``latest.json``; returns the problem and the new state, empty if it stays."""
    owner_id, copies = inventory.owner_id, inventory.listing.copies
    wanted, trouble = found.wanted, found.trouble
    if not trouble or (copies and wanted.id is None and inventory.rows.live):
        return ""  # the copy may be the last one, until a file is written again
    backups = engine.backups[inventory.noun]
    path = backups.root / owner_id / LATEST
    try:
        if copies and wanted.id is not None and wanted.data is None:
            log.warning("%s %s; no intact copy is left to restore it from", path, trouble)
            return ""
        await engine.outbox.in_thread(lambda: backups.set_latest(owner_id, wanted.id, wanted.data))
    except OSError as error:
        log.warning("%s %s; it cannot be rewritten: %s", path, trouble, error)
        return ""
    now = f"it {'holds' if copies else 'names'} {wanted.id} now"
    done = now if wanted.id else "it was removed"
    log.warning("%s %s; %s", path, trouble, done)
    return f"{path} {trouble}; {done}"
