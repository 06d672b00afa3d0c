"""Rows and checkpoint files brought together, in both directions; must not serve anybody.

Names alone are compared; a file is read only when it has no row. Runs at the start, and for one
mission when a row turns out to be missing.
"""

import logging
from collections.abc import Iterator
from functools import partial

import msgspec

from .domain.catching_up import CatchUp, ImportEnd
from .domain.comparing import CheckpointedMissions, NamesGet, NewestFiled, RowNames
from .domain.content import from_file, is_migrated
from .domain.healing import Heal
from .domain.taking_in import ImportFiles
from .domain.tx import WriteBackup
from .engine import Engine
from .store.backups import LATEST, BackupFile, Backups, Listing
from .wire.errors import Corrupt, FleetError, InvalidState
from .wire.model import Checkpoint
from .wire.requests.checkpoint import CheckpointGet

log = logging.getLogger("fleetd")
# Missions that are compared at a time, and files that are taken in by one transaction.
MISSIONS, FILES = 100, 100


class TakenIn(msgspec.Struct, frozen=True):
    """What came of a mission's files without a row.

    ``ids`` have a row now, newest first; ``refused`` says why the others have none, ``told`` what
    is unusual about those that have.
    """

    ids: list[str] = []
    refused: dict[str, FleetError] = {}
    told: dict[str, list[str]] = {}


async def reconcile(engine: Engine) -> None:
    """Bring rows and files together before anybody is served.

    Nothing that is found stops the start: what cannot be mended is left as it is and named in a
    warning.
    """
    try:
        await _reconcile(engine)
    except FleetError as error:
        log.warning("Rows and files could not be compared: %s", error.message)


async def _reconcile(engine: Engine) -> None:
    backups = engine.backups
    try:
        known = await engine.outbox.in_thread(backups.missions)
    except OSError as error:
        log.warning("The checkpoint files cannot be read, they are not compared: %s", error)
        return
    rows = (await engine.execute(CheckpointedMissions())).ids
    taken_in = 0
    for page in _some(sorted({*known, *rows}), MISSIONS):
        taken_in += await _reconcile_page(engine, page)
    if taken_in:
        log.warning("%d checkpoints had lost their rows and came back from files", taken_in)
    await _catch_up(engine)


def _some(names: list[str], size: int) -> Iterator[list[str]]:
    """Yield names some at a time."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


async def _reconcile_page(engine: Engine, mission_ids: list[str]) -> int:
    listings = await engine.outbox.in_thread(lambda: _listings(engine.backups, mission_ids))
    names = (await engine.execute(NamesGet(list(listings)))).missions
    taken_in = 0
    for rows in names:
        listing = listings[rows.mission_id]
        _write_missing(engine, rows, listing)
        for checkpoint_id in rows.old:
            await _bring_up_to_date(engine, checkpoint_id)
        strangers = (listing.files | listing.blocked) - rows.rows
        if strangers:
            taken_in += len((await _take_in(engine, rows.mission_id, sorted(strangers))).ids)
        if rows.rows or strangers:
            await mend_latest(engine, rows.mission_id, listing, rows.newest)
    return taken_in


def _listings(backups: Backups, mission_ids: list[str]) -> dict[str, Listing]:
    """Look at the names of some missions' files; one that cannot be looked at is left alone."""
    found = {}
    for mission_id in mission_ids:
        try:
            found[mission_id] = backups.list(mission_id)
        except OSError as error:
            log.warning("The checkpoint files of %s cannot be read: %s", mission_id, error)
    return found


def _write_missing(engine: Engine, rows: RowNames, listing: Listing) -> None:
    missing = rows.filed - listing.files
    if missing:
        log.warning("%d files of %s are missing; they are written", len(missing), rows.mission_id)
    for checkpoint_id in sorted(missing):
        engine.outbox.post(WriteBackup(checkpoint_id))


async def _bring_up_to_date(engine: Engine, checkpoint_id: str) -> None:
    try:
        checkpoint = await engine.execute(CheckpointGet(checkpoint_id))
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
    engine.outbox.post(WriteBackup(checkpoint.id))


async def take_in(engine: Engine, mission_id: str) -> TakenIn:
    """Give rows to the files of one mission that have none, and catch the mission up if need be.

    Raises FleetError when the store refuses; a directory that cannot be read holds nothing.
    """
    try:
        listing = await engine.outbox.in_thread(lambda: engine.backups.list(mission_id))
    except OSError as error:
        log.warning("The checkpoint files of %s cannot be read: %s", mission_id, error)
        return TakenIn()
    (rows,) = (await engine.execute(NamesGet([mission_id]))).missions
    strangers = (listing.files | listing.blocked) - rows.rows
    if not strangers:
        return TakenIn()
    taken = await _take_in(engine, mission_id, sorted(strangers))
    if taken.ids:
        await _catch_up(engine)
    return taken


async def _take_in(engine: Engine, mission_id: str, strangers: list[str]) -> TakenIn:
    """Read files that have no row and write their rows, some at a time."""
    ids: list[str] = []
    refused: dict[str, FleetError] = {}
    told: dict[str, list[str]] = {}
    for some in _some(strangers, FILES):
        files = [BackupFile(mission_id, checkpoint_id) for checkpoint_id in some]
        read = await engine.outbox.in_thread(partial(_read_all, engine.backups, files))
        good = [each for each in read.values() if isinstance(each, Checkpoint)]
        bad = {name: each for name, each in read.items() if isinstance(each, FleetError)}
        for error in bad.values():
            log.warning("A file without a row is left where it is: %s", error.message)
        refused |= bad
        ids += await _import(engine, good)
        for checkpoint in filter(is_migrated, good):
            told[checkpoint.id] = checkpoint.warnings
            engine.outbox.post(WriteBackup(checkpoint.id))
    return TakenIn(ids, refused, told)


async def _import(engine: Engine, checkpoints: list[Checkpoint]) -> list[str]:
    """Write rows in one transaction, or one by one when one of them will not go in."""
    if not checkpoints:
        return []
    try:
        return (await engine.execute(ImportFiles(checkpoints=checkpoints))).ids
    except FleetError:
        raise
    except Exception:  # sealed by its checksum, and yet nothing that the tables would hold
        if len(checkpoints) == 1:
            log.exception("Checkpoint %s cannot be taken in", checkpoints[0].id)
            return []
    return [name for each in checkpoints for name in await _import(engine, [each])]


def _read_all(
    backups: Backups, files: list[BackupFile]
) -> dict[str, Checkpoint | FleetError | None]:
    return {file.checkpoint_id: _read_or_refuse(backups, file) for file in files}


def _read_or_refuse(backups: Backups, file: BackupFile) -> Checkpoint | FleetError | None:
    try:
        return verified(backups, file)
    except FleetError as error:
        return error
    except OSError as error:
        path = backups.path_of(file.mission_id, file.checkpoint_id)
        return Corrupt(f"{path} cannot be read: {error}.", path=str(path))


def verified(backups: Backups, file: BackupFile) -> Checkpoint | None:
    """Return the checkpoint of a file after all checks, None when it is gone.

    Raises Corrupt, also when the file holds another checkpoint than its name says, Incompatible
    and OSError.
    """
    data = backups.read(file.mission_id, file.checkpoint_id)
    if data is None:
        return None
    path = str(backups.path_of(file.mission_id, file.checkpoint_id))
    checkpoint = from_file(data, path)
    if (checkpoint.mission_id, checkpoint.id) != (file.mission_id, file.checkpoint_id):
        raise Corrupt(
            f"Corrupted checkpoint file: {path} holds {checkpoint.id} of {checkpoint.mission_id}.",
            hint="fleetctl checkpoints verify --all --repair writes it again from the database.",
            path=path,
        )
    return checkpoint


async def _catch_up(engine: Engine) -> None:
    """Finish an import, also one that a crash cut short: counters first, then each mission."""
    behind = await engine.execute(ImportEnd())
    for mission_id in behind.missions:
        try:
            await engine.execute(CatchUp(mission_id=mission_id))
        except FleetError:
            raise
        except Exception:  # a file can hold what no rule expects; the others must come back
            log.exception("Mission %s could not be brought to its newest checkpoint", mission_id)


async def mend_latest(engine: Engine, mission_id: str, listing: Listing, newest: str | None) -> str:
    """Point a wrong ``latest.json`` at the newest checkpoint that has a file.

    ``newest`` is the newest row, if the caller knows it: nothing is asked when all is well.
    Returns what was wrong, with what it names now; empty when nothing was.
    """
    if newest in listing.files and not listing.latest_trouble(newest):
        return ""
    wanted = (await engine.execute(NewestFiled(mission_id, listing.files))).checkpoint_id
    trouble = listing.latest_trouble(wanted)
    if not trouble:
        return ""
    path = engine.backups.root / mission_id / LATEST
    try:
        await engine.outbox.in_thread(lambda: engine.backups.point_latest(mission_id, wanted))
    except OSError as error:
        log.warning("%s %s; it cannot be changed: %s", path, trouble, error)
        return ""
    done = f"it names {wanted} now" if wanted else "it was removed"
    log.warning("%s %s; %s", path, trouble, done)
    return f"{path} {trouble}; {done}"
