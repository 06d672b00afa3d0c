"""Reconciliation: makes rows and files match, in both directions.

Only names are compared; a file is read only if it has no row. It runs at the start, and for one
mission or run when a row turns out to be missing.
"""

import logging
from collections.abc import AsyncIterator, Collection, Iterator, Set
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import msgspec
import trio

from ...domain.artifacts.ingest import Ingested, ingest, repair_row, stored
from ...domain.artifacts.inventory import adopt
from ...domain.artifacts.kinds import KINDS, FileRecord, id_of, noun_of
from ...domain.artifacts.outbox import newest_of_files
from ...domain.core import tombstones
from ...domain.core.tx import WriteBackup
from ...domain.recovery.roll_forward import finish_import, roll_forward
from ...domain.snapshots.codec import seq_of
from ...host import progress
from ...protocol.errors import Corrupt, FleetError, InvalidState
from ...protocol.records import Checkpoint
from ...protocol.types import Noun
from ...store.api import StoreAway
from ...store.files.record_files import RecordFile, RecordFiles
from ...store.sqlite.offline import ids_in
from ..engine import Engine
from .inventory import Inventory, compare, compare_all, owners, repair_latest, rows_of
from .verified_read import latest_data, verified

log = logging.getLogger("fleetd")
# Owners that are compared at a time, and files that one transaction ingests.
OWNERS, FILES = 100, 100


class IngestResult(msgspec.Struct, frozen=True):
    """The result of an ingestion of an owner's files without a row.

    ``ids`` have a row now, newest first. ``refused`` contains why the others have none,
    ``warnings`` what is unusual about those that have. ``there`` are all that have a file; those
    that are ``gone`` had one until now, and nothing else.
    """

    ids: list[str] = []
    refused: dict[str, FleetError] = {}
    warnings: dict[str, list[str]] = {}
    there: Set[str] = frozenset()
    gone: list[str] = []


async def reconcile(engine: Engine, reached: int = 0) -> None:
    """Make rows and files match before clients are served; the log had come to ``reached``.

    No finding stops the start: what cannot be repaired is left unchanged and named in a warning.
    Raises StoreAway, after which all of it is to be repeated.
    """
    try:
        if engine.machine:
            await _find_foreign_records(engine)
            await collect_garbage(engine)
        for noun in KINDS:
            await _reconcile(engine, noun)
        await _catch_up(engine, reached)
    except StoreAway:
        raise
    except FleetError as error:
        log.warning("The comparison of rows and files failed: %s", error.message)


async def _find_foreign_records(engine: Engine) -> None:
    """Find the records of this machine's own database, which is not the store.

    Their files are in the directory of the store's files. They are not lost rows of the shared
    store, and their positions are not positions in its log.
    """
    path = engine.config.database
    for noun, kind in KINDS.items():
        try:
            ids = await engine.outbox.in_thread(partial(ids_in, path, kind.table))
        except OSError as error:
            log.warning("%s cannot be read, so its files may be imported: %s", path, error)
            ids = []
        engine.foreign_records[noun] = frozenset(ids)
        if ids:
            log.info("%d %ss here belong to %s, which is not the store", len(ids), noun, path)


async def _reconcile(engine: Engine, noun: Noun) -> None:
    try:
        known = await engine.outbox.in_thread(engine.backups[noun].owners)
    except OSError as error:
        log.warning("The %s files cannot be read, so they are not compared: %s", noun, error)
        return
    rows = await owners(engine, noun)
    ingested = 0
    every = sorted({*known, *rows})
    progress.at(f"{KINDS[noun].whose}s", total=len(every))
    for page in _chunks(every, OWNERS):
        ingested += await _reconcile_page(engine, noun, page)
    if ingested:
        log.warning("Restored %d lost rows of %ss from files", ingested, noun)


def _chunks(names: list[str], size: int) -> Iterator[list[str]]:
    """Yield names in chunks."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


async def _reconcile_page(engine: Engine, noun: Noun, owner_ids: list[str]) -> int:
    every = await compare_all(engine, noun, owner_ids)
    if await _adopt(engine, noun, every):
        every = await compare_all(engine, noun, [each.owner_id for each in every])
    ingested = 0
    for each in every:
        owner_id, rows, now = each.owner_id, each.rows, each
        if each.missing:
            log.warning("Writing %d missing files of %s", len(each.missing), owner_id)
        for record_id in sorted(each.missing):
            engine.outbox.post(WriteBackup(noun, record_id))
        for record_id in rows.old:
            await _bring_up_to_date(engine, record_id)
        if each.orphans:
            result = await _ingest(engine, noun, owner_id, sorted(each.orphans))
            ingested += len(result.ids)
            if result.gone:
                now = next(iter(await compare_all(engine, noun, [owner_id])), each)
        # If this machine keeps nothing of an owner, there is nothing to repair.
        if rows.rows - rows.elsewhere or each.orphans:
            await repair_latest(engine, now)
        progress.advance()
    return ingested


async def _adopt(engine: Engine, noun: Noun, every: list[Inventory]) -> int:
    """Keep files here that belonged to a removed machine; returns the number of records."""
    misplaced = [record_id for each in every for record_id in sorted(each.misplaced)]
    adopted = 0
    for some in _chunks(misplaced, FILES):
        adopted += await engine.write(adopt, noun, some)
    left = len(misplaced) - adopted
    if adopted:
        log.warning("This machine now keeps %d %s files of a removed machine", adopted, noun)
    if left:
        log.warning("%d %s files here belong to other machines; remove them", left, noun)
    return adopted


async def _bring_up_to_date(engine: Engine, checkpoint_id: str) -> None:
    """Convert a checkpoint to the current version; snapshots have had one version only."""
    try:
        checkpoint = cast("Checkpoint", await engine.read(stored, "checkpoint", checkpoint_id))
    except StoreAway:
        raise
    except FleetError as error:  # a newer version, or damaged: reported when it is read
        log.warning("%s", error.message)
        return
    await rewrite(engine, checkpoint)


async def rewrite(engine: Engine, checkpoint: Checkpoint) -> None:
    """Convert both copies of a checkpoint of an older version to the current one."""
    try:
        await engine.write(repair_row, checkpoint)
    except InvalidState:  # deleted meanwhile
        return
    log.info("Checkpoint %s: %s", checkpoint.id, checkpoint.warnings[-1])
    engine.outbox.post(WriteBackup("checkpoint", checkpoint.id))


async def ingest_orphans(engine: Engine, noun: Noun, owner_id: str) -> IngestResult:
    """Ingest the files of one owner that have no row, and catch a mission up if needed.

    Raises FleetError when the store refuses; an unreadable directory counts as empty.
    """
    try:
        found = await compare(engine, noun, owner_id)
    except OSError as error:
        log.warning("The %s files of %s cannot be read: %s", noun, owner_id, error)
        return IngestResult()
    if not found.orphans:
        return IngestResult(there=found.listing.files)
    result = await _ingest(engine, noun, owner_id, sorted(found.orphans))
    if result.ids:
        await _catch_up(engine)
    return msgspec.structs.replace(result, there=found.listing.files)


async def _ingest(engine: Engine, noun: Noun, owner_id: str, orphans: list[str]) -> IngestResult:
    """Read files that have no row and write their rows, in chunks."""
    backups = engine.backups[noun]
    ids: list[str] = []
    gone: list[str] = []
    refused: dict[str, FleetError] = {}
    warnings: dict[str, list[str]] = {}

    def read(record_ids: list[str]) -> list[FileRecord]:
        good = []
        for record_id in record_ids:
            found = _read_or_error(backups, RecordFile(owner_id, record_id))
            if isinstance(found, FleetError):
                log.warning("A file without a row was not imported: %s", found.message)
                refused[record_id] = found
            elif found:
                good.append(found)
        return good

    for some in _chunks(orphans, FILES):
        good = await engine.outbox.in_thread(partial(read, some))
        imported = await _import(engine, good)
        ids += imported.ids
        gone += imported.gone
        for record in filter(KINDS[noun].to_rewrite, good):
            warnings[id_of(record)] = record.warnings
            engine.outbox.post(WriteBackup(noun, id_of(record)))
    if gone:
        await _remove_orphans(engine, backups, owner_id, gone)
    return IngestResult(ids, refused, warnings, gone=gone)


async def _import(engine: Engine, records: list[FileRecord]) -> Ingested:
    """Write rows in one transaction, or one by one when one of them cannot be inserted."""
    if not records:
        return Ingested()
    try:
        return await engine.write(ingest, records)
    except FleetError:
        raise
    except Exception:  # its checksum is right, but the tables do not accept it
        if len(records) == 1:
            noun = noun_of(records[0]).capitalize()
            log.exception("%s %s cannot be imported", noun, id_of(records[0]))
            return Ingested()
    each = [await _import(engine, [record]) for record in records]
    return Ingested(
        [name for one in each for name in one.ids], [name for one in each for name in one.gone]
    )


def _read_or_error(backups: RecordFiles, file: RecordFile) -> FileRecord | FleetError | None:
    try:
        return verified(backups, file)
    except FleetError as error:
        return error
    except OSError as error:
        path = backups.path_of(file.owner_id, file.record_id)
        return Corrupt(f"{path} cannot be read: {error}.", path=str(path))


async def _catch_up(engine: Engine, reached: int = 0) -> None:
    """Finish an import, also one that a crash interrupted: counters first, then each mission."""
    for mission_id in await engine.write(finish_import, reached):
        try:
            await engine.write(roll_forward, mission_id)
        except FleetError:
            raise
        except Exception:  # a file can contain what no rule expects; restore the others
            log.exception("Mission %s could not be restored to its newest checkpoint", mission_id)


# Garbage collection: in a shared store, rows that one machine forgets are gone immediately. The
# other daemons remove their own files of them.


async def collect_garbage(engine: Engine, since: int | None = None) -> int | None:
    """Remove files here of missions and runs that were forgotten.

    Returns the number of things forgotten until then, None if a file stays. If that number is still
    ``since``, nothing is checked. Raises FleetError when the store refuses.
    """
    count = await engine.read(tombstones.count)
    if count == since:
        return count
    removed, stuck = 0, False
    for backups in (*engine.backups.values(), engine.pulled):
        try:
            removed += await _collect(engine, backups)
        except OSError as error:
            log.warning("Files of forgotten records could not be removed: %s", error)
            stuck = True
    if removed:
        log.info("Removed %d files of records that another machine forgot", removed)
    return None if stuck else count


async def _collect(engine: Engine, backups: RecordFiles) -> int:
    removed = 0
    for page in _chunks(await engine.outbox.in_thread(backups.owners), OWNERS):
        owner_kind = KINDS[backups.layout.noun].whose
        found = await engine.read(tombstones.forgotten_of, owner_kind, page)
        for owner_id, until in found.items():
            removed += await _clear(engine, backups, owner_id, until)
    return removed


async def _clear(engine: Engine, backups: RecordFiles, owner_id: str, until: int | None) -> int:
    """Remove an owner's files without a row, up to a position in the log; returns how many."""
    async with _files_locked(engine):
        listing = await engine.outbox.in_thread(lambda: backups.list(owner_id))
        rows = await rows_of(engine, backups.layout.noun, owner_id)
        orphans = Inventory(backups.layout.noun, rows, listing).orphans
        going = {each for each in orphans if until is None or seq_of(each) <= until}
        if rows.rows or going != orphans:
            await _remove(engine, backups, owner_id, going)
            return len(going)
        return len((await engine.outbox.in_thread(lambda: backups.clear(owner_id))).names)


@asynccontextmanager
async def _files_locked(engine: Engine) -> AsyncIterator[None]:
    """Lock the files; a start that compares all of them already holds the lock."""
    lock = engine.outbox.file_lock
    if lock.statistics().owner is trio.lowlevel.current_task():
        yield
        return
    async with lock:
        yield


async def _remove_orphans(
    engine: Engine, backups: RecordFiles, owner_id: str, going: Collection[str]
) -> None:
    """Remove files of an owner that have no row; what cannot be removed is logged."""
    try:
        async with _files_locked(engine):
            await _remove(engine, backups, owner_id, going)
    except OSError as error:
        log.warning("%d files of %s could not be removed: %s", len(going), owner_id, error)


async def _remove(
    engine: Engine, backups: RecordFiles, owner_id: str, going: Collection[str]
) -> None:
    listing = await engine.outbox.in_thread(lambda: backups.list(owner_id))
    left = listing.files - set(going)
    latest = await engine.read(newest_of_files, backups.layout.noun, owner_id, left)

    def remove() -> dict[str, OSError]:
        newest = latest_data(backups, owner_id, latest)
        return backups.remove(owner_id, sorted(going), latest.id, newest)

    for error in (await engine.outbox.in_thread(remove)).values():
        raise error
