"""Checkpoints with their files: waiting for the backup, reading either copy, healing the other."""

import logging

import msgspec
import trio

from ..domain.content import from_file, is_migrated
from ..domain.context import Caller, Facts
from ..domain.copies import Heal
from ..domain.tx import WriteBackup
from ..engine import Engine, operation
from ..store.backups import BackupFile
from ..wire.errors import Corrupt, FleetError, Incompatible, InvalidState, NotFound
from ..wire.model import Checkpoint
from ..wire.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointGet,
    CheckpointLatest,
    CheckpointPrune,
    Pruned,
)
from ..wire.requests.mission import Deleted, MissionCurrent

log = logging.getLogger("fleetd")
BACKUP_WAIT_S = 1.0


@operation
async def create(engine: Engine, request: CheckpointCreate, caller: Caller) -> Checkpoint:
    """Take a checkpoint and, if wanted, wait until its file is written, for a second at most."""
    checkpoint = await engine.recalled(request)
    if checkpoint is None:
        checkpoint = await engine.execute(request, caller, await _facts(engine, request, caller))
    if not request.wait_for_backup:
        return checkpoint
    with trio.move_on_after(BACKUP_WAIT_S):
        await engine.outbox.attempted(checkpoint.id)
    return await _with_locations(engine, checkpoint)


async def _facts(engine: Engine, request: CheckpointCreate, caller: Caller) -> Facts:
    """Find the mission that a directory belongs to, where none is named."""
    if request.mission_id is not None or request.cwd is None:
        return Facts()
    current = await engine.execute(MissionCurrent(request.cwd), caller)
    if current.mission is None:
        raise InvalidState(
            "No active mission found. Use --mission <id> to specify.",
            hint="fleetctl mission list shows the missions there are.",
        )
    return Facts(mission_id=current.mission.id)


async def _with_locations(engine: Engine, checkpoint: Checkpoint) -> Checkpoint:
    try:
        now = await engine.execute(CheckpointGet(checkpoint.id))
    except NotFound:  # deleted by somebody else while we waited
        return checkpoint
    if now.backed_up_at is not None:
        return now
    late = "its file is not written yet; fleetd goes on trying"
    return msgspec.structs.replace(now, warnings=[*now.warnings, late])


@operation
async def get(engine: Engine, request: CheckpointGet, caller: Caller) -> Checkpoint:
    """Return a checkpoint from its row, else from its file, with a warning."""
    return await read(engine, request, caller)


@operation
async def latest(engine: Engine, request: CheckpointLatest, caller: Caller) -> Checkpoint:
    """Return a mission's newest checkpoint, from either copy."""
    return await read(engine, request, caller)


async def read(
    engine: Engine, request: CheckpointGet | CheckpointLatest, caller: Caller
) -> Checkpoint:
    """Read a checkpoint; a row that is missing or damaged is healed from its file."""
    try:
        checkpoint = await engine.execute(request, caller)
    except (NotFound, Corrupt, Incompatible) as error:
        named = error.values.get("checkpoint_id") or getattr(request, "checkpoint_id", "")
        return await heal(engine, str(named), error)
    if is_migrated(checkpoint):
        await rewrite(engine, checkpoint)
    return checkpoint


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
    try:
        checkpoint = await from_backup(engine, checkpoint_id)
    except (Corrupt, Incompatible) as trouble:
        log.warning("%s", trouble.message)
        raise both(checkpoint_id, error, trouble) from error
    if checkpoint is None:
        raise no_file(engine, error) from error
    what = "missing" if isinstance(error, NotFound) else "damaged"
    warning = f"the database row of {checkpoint.id} was {what}; it was restored from its file"
    try:
        healed = await engine.execute(Heal(checkpoint))
    except InvalidState:  # deleted on purpose; its file is on the way out
        raise error from None
    log.warning("%s", warning)
    if is_migrated(checkpoint):
        engine.outbox.post(WriteBackup(healed.id))
    warnings = [*healed.warnings, *checkpoint.warnings, warning]
    return msgspec.structs.replace(healed, warnings=warnings)


def both(checkpoint_id: str, row: FleetError, file: FleetError) -> FleetError:
    """Return the error of a checkpoint whose file is of no use, with what is wrong with its row."""
    if isinstance(row, NotFound):
        return file
    return Corrupt(
        f"Checkpoint {checkpoint_id} is damaged in both copies: its row"
        f" {row.values.get('reason')}; {_clause(file)}",
        hint="fleetctl checkpoints list shows the others of its mission.",
        checkpoint_id=checkpoint_id,
    )


def no_file(engine: Engine, row: FleetError) -> FleetError:
    """Return the error of a checkpoint that has no file, with what is wrong with its row."""
    if isinstance(row, Corrupt):
        return Corrupt(
            f"{_clause(row)}, and it has no file",
            hint="fleetctl checkpoints list shows the others of its mission.",
            **row.values,
        )
    return nowhere(engine, row)


def _clause(error: FleetError) -> str:
    return error.message.rstrip(".")


async def rewrite(engine: Engine, checkpoint: Checkpoint) -> None:
    """Bring both copies of a checkpoint of an older version to the present one."""
    try:
        await engine.execute(Heal(checkpoint))
    except InvalidState:  # deleted meanwhile
        return
    log.info("Checkpoint %s: %s", checkpoint.id, checkpoint.warnings[-1])
    engine.outbox.post(WriteBackup(checkpoint.id))


async def from_backup(engine: Engine, checkpoint_id: str) -> Checkpoint | None:
    """Return a checkpoint from its verified file; None when there is none, or none to be read.

    Raises Corrupt for a damaged file and Incompatible for one of another version.
    """
    backups = engine.backups
    file = await engine.outbox.in_thread(lambda: backups.find(checkpoint_id))
    if file is None:
        return None
    try:
        return await read_file(engine, file)
    except OSError as error:
        log.warning("The file of %s cannot be read: %s", checkpoint_id, error)
        return None


async def read_file(engine: Engine, file: BackupFile) -> Checkpoint | None:
    """Return the verified checkpoint of a file, None when it is gone.

    Raises Corrupt, also when the file holds another checkpoint than its name says, Incompatible
    and OSError.
    """
    backups = engine.backups
    path = str(backups.path_of(file.mission_id, file.checkpoint_id))
    data = await engine.outbox.in_thread(lambda: backups.read(file.mission_id, file.checkpoint_id))
    if data is None:
        return None
    checkpoint = from_file(data, path)
    if (checkpoint.mission_id, checkpoint.id) != (file.mission_id, file.checkpoint_id):
        raise Corrupt(
            f"Corrupted checkpoint file: {path} holds {checkpoint.id} of {checkpoint.mission_id}.",
            hint="fleetctl checkpoints verify --repair writes it again from the database.",
            path=path,
        )
    return checkpoint


@operation
async def delete(engine: Engine, request: CheckpointDelete, caller: Caller) -> Deleted:
    """Delete a checkpoint; returns when its file is gone too, or a second later."""
    deleted = await engine.execute(request, caller)
    with trio.move_on_after(BACKUP_WAIT_S):
        await engine.outbox.settled()
    return deleted


@operation
async def prune(engine: Engine, request: CheckpointPrune, caller: Caller) -> Pruned:
    """Delete what is past its retention; returns when the files are gone too, or soon after."""
    pruned = await engine.execute(request, caller)
    if not request.dry_run:
        with trio.move_on_after(BACKUP_WAIT_S):
            await engine.outbox.settled()
    return pruned
