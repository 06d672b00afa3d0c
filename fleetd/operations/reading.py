"""Reading a checkpoint from either copy and healing the other; must not choose which one to read.

Source: behaviour, Backups. The row is read first; its file when the row is missing or damaged.
"""

import logging

import msgspec

from ..domain.content import is_migrated
from ..domain.context import Caller
from ..domain.healing import Heal
from ..domain.tx import WriteBackup
from ..engine import Engine
from ..reconciling import TakenIn, rewrite, take_in, verified
from ..store.backups import BackupFile
from ..wire.errors import Corrupt, FleetError, Incompatible, InvalidState, NotFound
from ..wire.model import Checkpoint
from ..wire.requests.checkpoint import CheckpointGet, CheckpointLatest
from ..wire.requests.mission import MissionGet

log = logging.getLogger("fleetd")
# Warnings that name one checkpoint each; more than that is said with a number.
NAMED = 3


async def read(
    engine: Engine, request: CheckpointGet | CheckpointLatest, caller: Caller
) -> Checkpoint:
    """Read a checkpoint; a row that is missing or damaged is healed from its file."""
    try:
        checkpoint = await engine.execute(request, caller)
    except (NotFound, Corrupt, Incompatible) as error:
        named = error.values.get("checkpoint_id") or getattr(request, "checkpoint_id", None)
        if named is None:
            raise
        return await heal(engine, str(named), error)
    if is_migrated(checkpoint):
        await rewrite(engine, checkpoint)
    return checkpoint


async def read_latest(engine: Engine, request: CheckpointLatest, caller: Caller) -> Checkpoint:
    """Read a mission's newest checkpoint after looking for files that lost their row."""
    taken = await take_in(engine, await _mission_id(engine, request.mission_id))
    try:
        checkpoint = await read(engine, request, caller)
    except NotFound as error:
        raise next(iter(taken.refused.values()), error) from error
    return msgspec.structs.replace(checkpoint, warnings=[*checkpoint.warnings, *noticed(taken)])


async def _mission_id(engine: Engine, given: str) -> str:
    """Return a mission's whole id; one that has no row may still have files."""
    try:
        return (await engine.execute(MissionGet(given))).id
    except NotFound:
        return given


def noticed(taken: TakenIn) -> list[str]:
    """Return the warnings about files that had no row: those taken in, and those left alone."""
    found = [_restored(checkpoint_id, "missing") for checkpoint_id in taken.ids[:NAMED]]
    if (more := len(taken.ids) - NAMED) > 0:
        found.append(f"{more} more rows were missing; they were restored from their files")
    left = [f"{_clause(error)}; it was left where it is" for error in taken.refused.values()]
    return found + left


def _restored(checkpoint_id: str, what: str) -> str:
    return f"the database row of {checkpoint_id} was {what}; it was restored from its file"


def nowhere(engine: Engine, error: FleetError) -> FleetError:
    """Return the error of a checkpoint that has no copy left, with the places that were looked at.

    Any other error is returned as it is.
    """
    if not isinstance(error, NotFound) or error.values.get("noun") != "checkpoint":
        return error
    if error.values.get("deleted"):
        return error
    places = f"the database {engine.config.database} and the files below {engine.backups.root}"
    return NotFound(error.message, hint=f"Looked in {places}. {error.hint}", **error.values)


async def heal(engine: Engine, checkpoint_id: str, error: FleetError) -> Checkpoint:
    """Write a row again from its file and return the checkpoint with a warning.

    ``error`` is what the row was refused with. Raises the error that tells about both copies when
    the file is of no help either; the file of what was deleted, or of another version, is not read.
    """
    if error.values.get("deleted") or isinstance(error, Incompatible):
        raise error
    if isinstance(error, NotFound):
        return await _heal_missing(engine, checkpoint_id, error)
    try:
        checkpoint = await _from_backup(engine, checkpoint_id)
    except (Corrupt, Incompatible) as trouble:
        log.warning("%s", trouble.message)
        raise _both(checkpoint_id, error, trouble) from error
    if checkpoint is None:
        raise _no_file(error) from error
    try:
        healed = await engine.execute(Heal(checkpoint))
    except InvalidState:  # deleted on purpose; its file is on the way out
        raise error from None
    if is_migrated(checkpoint):
        engine.outbox.post(WriteBackup(healed.id))
    return _with_warning(healed, checkpoint.warnings, "damaged")


async def _heal_missing(engine: Engine, checkpoint_id: str, error: FleetError) -> Checkpoint:
    """Take in the files of the mission that a checkpoint without a row belongs to."""
    if error.values.get("noun") != "checkpoint":
        raise error
    try:
        file = await engine.outbox.in_thread(lambda: engine.backups.find(checkpoint_id))
    except OSError as trouble:
        log.warning("The checkpoint files cannot be read: %s", trouble)
        file = None
    if file is None:
        raise nowhere(engine, error) from error
    taken = await take_in(engine, file.mission_id)
    if checkpoint_id in taken.refused:
        raise taken.refused[checkpoint_id] from error
    try:
        healed = await engine.execute(CheckpointGet(checkpoint_id))
    except NotFound:
        raise nowhere(engine, error) from error
    return _with_warning(healed, taken.told.get(checkpoint_id, []), "missing")


def _with_warning(healed: Checkpoint, more: list[str], what: str) -> Checkpoint:
    warning = _restored(healed.id, what)
    log.warning("%s", warning)
    return msgspec.structs.replace(healed, warnings=[*healed.warnings, *more, warning])


def _both(checkpoint_id: str, row: FleetError, file: FleetError) -> FleetError:
    """Return the error of a damaged row whose file is of no use either."""
    return Corrupt(
        f"Checkpoint {checkpoint_id} is damaged in both copies: its row"
        f" {row.values.get('reason')}; {_clause(file)}",
        hint="fleetctl checkpoints list shows the others of its mission.",
        checkpoint_id=checkpoint_id,
    )


def _no_file(row: FleetError) -> FleetError:
    """Return the error of a damaged row that has no file."""
    return Corrupt(
        f"{_clause(row)}, and it has no file",
        hint="fleetctl checkpoints list shows the others of its mission.",
        **row.values,
    )


def _clause(error: FleetError) -> str:
    return error.message.rstrip(".")


async def _from_backup(engine: Engine, checkpoint_id: str) -> Checkpoint | None:
    """Return a checkpoint from its verified file; None when there is none, or none to be read.

    Raises Corrupt for a damaged file and Incompatible for one of another version.
    """
    backups = engine.backups
    try:
        file = await engine.outbox.in_thread(lambda: backups.find(checkpoint_id))
        return await read_file(engine, file) if file else None
    except OSError as error:
        log.warning("The file of %s cannot be read: %s", checkpoint_id, error)
        return None


async def read_file(engine: Engine, file: BackupFile) -> Checkpoint | None:
    """Return the verified checkpoint of a file, None when it is gone; raises as ``verified``."""
    return await engine.outbox.in_thread(lambda: verified(engine.backups, file))
