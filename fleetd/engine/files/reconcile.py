"""Rows and files brought together, in both directions; must not serve anybody.

Names alone are compared; a file is read only when it has no row. Runs at the start, and for one
mission or run when a row turns out to be missing.
"""

import logging
from collections.abc import Iterator, Set
from functools import partial

import msgspec

from ...domain.artifacts.ingest import Imported, ImportFiles
from ...domain.artifacts.inventory import NamesGet, OwnersGet, RowNames
from ...domain.artifacts.kinds import POLICIES, Kept, id_of, noun_of
from ...domain.artifacts.ownership import Adopt
from ...domain.artifacts.repair import Heal
from ...domain.core.tx import WriteBackup
from ...domain.recovery.roll_forward import CatchUp, ImportEnd
from ...host import progress
from ...protocol.errors import Corrupt, FleetError, InvalidState
from ...protocol.records import Checkpoint
from ...protocol.requests.checkpoint import CheckpointGet
from ...protocol.types import Noun
from ...store.api import StoreAway
from ...store.files.owner_dir import Listing
from ...store.files.record_files import RecordFile, RecordFiles
from ..engine import Engine
from .garbage import heed, remove
from .latest import mend_latest
from .verified_read import verified

log = logging.getLogger("fleetd")
# Owners that are compared at a time, and files that are taken in by one transaction.
OWNERS, FILES = 100, 100


class TakenIn(msgspec.Struct, frozen=True):
    """What came of an owner's files without a row.

    ``ids`` have a row now, newest first; ``refused`` says why the others have none, ``told`` what
    is unusual about those that have. ``there`` are all that have a file; those that are ``gone``
    had one until now, and nothing else.
    """

    ids: list[str] = []
    refused: dict[str, FleetError] = {}
    told: dict[str, list[str]] = {}
    there: Set[str] = frozenset()
    gone: list[str] = []


async def reconcile(engine: Engine, reached: int = 0) -> None:
    """Bring rows and files together before anybody is served; the log had come to ``reached``.

    Nothing that is found stops the start: what cannot be mended is left as it is and named in a
    warning. Raises StoreAway: then it is to be done again, whole.
    """
    try:
        if engine.machine:
            await heed(engine)
        for noun in POLICIES:
            await _reconcile(engine, noun)
        await _catch_up(engine, reached)
    except StoreAway:
        raise
    except FleetError as error:
        log.warning("Rows and files could not be compared: %s", error.message)


async def _reconcile(engine: Engine, noun: Noun) -> None:
    try:
        known = await engine.outbox.in_thread(engine.backups[noun].owners)
    except OSError as error:
        log.warning("The %s files cannot be read, they are not compared: %s", noun, error)
        return
    rows = (await engine.execute(OwnersGet(noun))).ids
    taken_in = 0
    every = sorted({*known, *rows})
    progress.at(f"{POLICIES[noun].whose}s", total=len(every))
    for page in _some(every, OWNERS):
        taken_in += await _reconcile_page(engine, noun, page)
    if taken_in:
        log.warning("%d %ss had lost their rows and came back from files", taken_in, noun)


def _some(names: list[str], size: int) -> Iterator[list[str]]:
    """Yield names some at a time."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


async def _reconcile_page(engine: Engine, noun: Noun, owner_ids: list[str]) -> int:
    backups = engine.backups[noun]
    listings = await engine.outbox.in_thread(lambda: _listings(backups, owner_ids))
    names = (await engine.execute(NamesGet(noun, list(listings)))).owners
    if await _adopt(engine, noun, names, listings):
        names = (await engine.execute(NamesGet(noun, list(listings)))).owners
    taken_in = 0
    for rows in names:
        listing = listings[rows.owner_id]
        _write_missing(engine, noun, rows, listing)
        for record_id in rows.old:
            await _bring_up_to_date(engine, record_id)
        strangers = (listing.files | listing.blocked) - rows.rows
        if strangers:
            taken = await _take_in(engine, noun, rows.owner_id, sorted(strangers))
            taken_in += len(taken.ids)
            if taken.gone:
                listing = _listings(backups, [rows.owner_id]).get(rows.owner_id, listing)
        # Where this machine keeps nothing of an owner, there is nothing to mend.
        if rows.rows - rows.elsewhere or strangers:
            await mend_latest(engine, noun, listing, rows)
        progress.on()
    return taken_in


async def _adopt(
    engine: Engine, noun: Noun, names: list[RowNames], listings: dict[str, Listing]
) -> int:
    """Keep what lies here of a machine that is gone; returns how many records that are."""
    found = [sorted(listings[rows.owner_id].files & rows.elsewhere) for rows in names]
    adopted, left = 0, 0
    for some in _some([record_id for each in found for record_id in each], FILES):
        number = len((await engine.execute(Adopt(noun, some))).ids)
        adopted, left = adopted + number, left + len(some) - number
    if adopted:
        log.warning("%d %s files of a machine that is gone are kept by this one", adopted, noun)
    if left:
        log.warning("%d %s files lie here that other machines keep; remove them", left, noun)
    return adopted


def _listings(backups: RecordFiles, owner_ids: list[str]) -> dict[str, Listing]:
    """Look at the names of some owners' files; one that cannot be looked at is left alone."""
    found = {}
    for owner_id in owner_ids:
        try:
            found[owner_id] = backups.list(owner_id)
        except OSError as error:
            noun = backups.layout.noun
            log.warning("The %s files of %s cannot be read: %s", noun, owner_id, error)
    return found


def _write_missing(engine: Engine, noun: Noun, rows: RowNames, listing: Listing) -> None:
    missing = rows.filed - listing.files
    if missing:
        log.warning("%d files of %s are missing; they are written", len(missing), rows.owner_id)
    for record_id in sorted(missing):
        engine.outbox.post(WriteBackup(noun, record_id))


async def _bring_up_to_date(engine: Engine, checkpoint_id: str) -> None:
    """Bring a checkpoint to the present version; snapshots have had one version only."""
    try:
        checkpoint = await engine.execute(CheckpointGet(checkpoint_id))
    except StoreAway:
        raise
    except FleetError as error:  # a newer version, or damaged: told when somebody wants it
        log.warning("%s", error.message)
        return
    await rewrite(engine, checkpoint)


async def rewrite(engine: Engine, checkpoint: Checkpoint) -> None:
    """Bring both copies of a checkpoint of an older version to the present one."""
    try:
        await engine.execute(Heal(checkpoint))
    except InvalidState:  # deleted meanwhile
        return
    log.info("Checkpoint %s: %s", checkpoint.id, checkpoint.warnings[-1])
    engine.outbox.post(WriteBackup("checkpoint", checkpoint.id))


async def take_in(engine: Engine, noun: Noun, owner_id: str) -> TakenIn:
    """Give rows to the files of one owner that have none, and catch a mission up if need be.

    Raises FleetError when the store refuses; a directory that cannot be read holds nothing.
    """
    backups = engine.backups[noun]
    try:
        listing = await engine.outbox.in_thread(lambda: backups.list(owner_id))
    except OSError as error:
        log.warning("The %s files of %s cannot be read: %s", noun, owner_id, error)
        return TakenIn()
    (rows,) = (await engine.execute(NamesGet(noun, [owner_id]))).owners
    strangers = (listing.files | listing.blocked) - rows.rows
    if not strangers:
        return TakenIn(there=listing.files)
    taken = await _take_in(engine, noun, owner_id, sorted(strangers))
    if taken.ids:
        await _catch_up(engine)
    return msgspec.structs.replace(taken, there=listing.files)


async def _take_in(engine: Engine, noun: Noun, owner_id: str, strangers: list[str]) -> TakenIn:
    """Read files that have no row and write their rows, some at a time."""
    ids: list[str] = []
    gone: list[str] = []
    refused: dict[str, FleetError] = {}
    told: dict[str, list[str]] = {}
    for some in _some(strangers, FILES):
        files = [RecordFile(owner_id, record_id) for record_id in some]
        read = await engine.outbox.in_thread(partial(_read_all, engine.backups[noun], files))
        good = [each for each in read.values() if each and not isinstance(each, FleetError)]
        bad = {name: each for name, each in read.items() if isinstance(each, FleetError)}
        for error in bad.values():
            log.warning("A file without a row is left where it is: %s", error.message)
        refused |= bad
        imported = await _import(engine, good)
        ids += imported.ids
        gone += imported.gone
        for record in filter(POLICIES[noun].to_rewrite, good):
            told[id_of(record)] = record.warnings
            engine.outbox.post(WriteBackup(noun, id_of(record)))
    if gone:
        await remove(engine, engine.backups[noun], owner_id, gone)
    return TakenIn(ids, refused, told, gone=gone)


async def _import(engine: Engine, records: list[Kept]) -> Imported:
    """Write rows in one transaction, or one by one when one of them will not go in."""
    if not records:
        return Imported(ids=[])
    try:
        return await engine.execute(ImportFiles(records=records))
    except FleetError:
        raise
    except Exception:  # sealed by its checksum, and yet nothing that the tables would hold
        if len(records) == 1:
            noun = noun_of(records[0]).capitalize()
            log.exception("%s %s cannot be taken in", noun, id_of(records[0]))
            return Imported(ids=[])
    each = [await _import(engine, [record]) for record in records]
    return Imported(
        ids=[name for one in each for name in one.ids],
        gone=[name for one in each for name in one.gone],
    )


def _read_all(backups: RecordFiles, files: list[RecordFile]) -> dict[str, Kept | FleetError | None]:
    return {file.record_id: _read_or_refuse(backups, file) for file in files}


def _read_or_refuse(backups: RecordFiles, file: RecordFile) -> Kept | FleetError | None:
    try:
        return verified(backups, file)
    except FleetError as error:
        return error
    except OSError as error:
        path = backups.path_of(file.owner_id, file.record_id)
        return Corrupt(f"{path} cannot be read: {error}.", path=str(path))


async def _catch_up(engine: Engine, reached: int = 0) -> None:
    """Finish an import, also one that a crash cut short: counters first, then each mission."""
    behind = await engine.execute(ImportEnd(reached=reached))
    for mission_id in behind.missions:
        try:
            await engine.execute(CatchUp(mission_id=mission_id))
        except FleetError:
            raise
        except Exception:  # a file can hold what no rule expects; the others must come back
            log.exception("Mission %s could not be brought to its newest checkpoint", mission_id)
