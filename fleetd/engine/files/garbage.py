"""Garbage collection of remote deletions: files that go because of what other machines did.

Where several machines share a store, one of them forgets a mission and its rows are gone at once.
The files that others have of it are removed by their own daemons, when these hear of it.
"""

import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import trio

from ...domain.artifacts.kinds import KINDS
from ...domain.artifacts.outbox import newest_of_files
from ...domain.core import tombstones
from ...domain.snapshots.codec import seq_of
from ...store.files.record_files import RecordFiles
from ..engine import Engine
from .inventory import Inventory, rows_of
from .verified_read import latest_data

log = logging.getLogger("fleetd")
# Owners that are asked about at a time.
OWNERS = 100


async def collect_garbage(engine: Engine, since: int | None = None) -> int | None:
    """Remove what lies here of missions and runs that were forgotten.

    Returns how often something was forgotten by then, None if a file stays: with ``since`` that
    figure, nothing is looked at until there is more. Raises FleetError when the store refuses.
    """
    count = await engine.read(tombstones.count)
    if count == since:
        return count
    removed, stuck = 0, False
    for backups in (*engine.backups.values(), engine.pulled):
        try:
            removed += await _collect(engine, backups)
        except OSError as error:
            log.warning("Files of what was forgotten could not be removed: %s", error)
            stuck = True
    if removed:
        log.info("Removed %d files of what was forgotten on another machine", removed)
    return None if stuck else count


async def _collect(engine: Engine, backups: RecordFiles) -> int:
    owners = await engine.outbox.in_thread(backups.owners)
    removed = 0
    for start in range(0, len(owners), OWNERS):
        page = owners[start : start + OWNERS]
        whose = KINDS[backups.layout.noun].whose
        found = await engine.read(tombstones.forgotten_of, whose, page)
        for owner_id, until in found.items():
            removed += await _clear(engine, backups, owner_id, until)
    return removed


async def _clear(engine: Engine, backups: RecordFiles, owner_id: str, until: int | None) -> int:
    """Remove an owner's files without a row, up to a position in the log; returns how many."""
    async with _at_rest(engine):
        listing = await engine.outbox.in_thread(lambda: backups.list(owner_id))
        rows = await rows_of(engine, backups.layout.noun, owner_id)
        orphans = Inventory(backups.layout.noun, rows, listing).orphans
        going = {each for each in orphans if until is None or seq_of(each) <= until}
        if rows.rows or going != orphans:
            await _remove(engine, backups, owner_id, going)
            return len(going)
        return len((await engine.outbox.in_thread(lambda: backups.clear(owner_id))).names)


@asynccontextmanager
async def _at_rest(engine: Engine) -> AsyncIterator[None]:
    """Keep others from the files; a start that compares all of them has done so already."""
    at_work = engine.outbox.at_work
    if at_work.statistics().owner is trio.lowlevel.current_task():
        yield
        return
    async with at_work:
        yield


async def remove(
    engine: Engine, backups: RecordFiles, owner_id: str, going: Collection[str]
) -> None:
    """Remove files of an owner that have no row; what cannot be removed is told in the log."""
    try:
        async with _at_rest(engine):
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
