"""Checkpoints with their files: waiting for the backup, reading either copy, healing the other."""

import logging

import msgspec
import trio

from ..domain.content import from_file
from ..domain.context import Caller, Facts
from ..domain.copies import Heal
from ..engine import Engine, operation
from ..store.backups import BackupFile
from ..wire.errors import Corrupt, FleetError, InvalidState, NotFound
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
        return await engine.execute(request, caller)
    except (NotFound, Corrupt) as error:
        checkpoint_id = error.values.get("checkpoint_id") or getattr(request, "checkpoint_id", "")
        healed = await heal(engine, str(checkpoint_id), error)
        if healed is None:
            raise nowhere(engine, error) from error
        return healed


def nowhere(engine: Engine, error: FleetError) -> FleetError:
    """Return the error of a checkpoint that has no copy left, with the places that were looked at.

    Any other error is returned as it is.
    """
    if not isinstance(error, NotFound) or error.values.get("noun") != "checkpoint":
        return error
    places = f"the database {engine.config.database} and the files below {engine.backups.root}"
    return NotFound(error.message, hint=f"Looked in {places}. {error.hint}", **error.values)


async def heal(engine: Engine, checkpoint_id: str, error: FleetError) -> Checkpoint | None:
    """Write a row again from its file and return the checkpoint with a warning.

    None when there is no good file. Raises Corrupt when a damaged file is all there is, and
    Incompatible for a file of another version.
    """
    try:
        checkpoint = await from_backup(engine, checkpoint_id)
    except Corrupt as damage:
        log.warning("%s", damage.message)
        if isinstance(error, NotFound):
            raise
        return None
    if checkpoint is None:
        return None
    what = "missing" if isinstance(error, NotFound) else "damaged"
    warning = f"the database row of {checkpoint.id} was {what}; it was restored from its file"
    try:
        healed = await engine.execute(Heal(checkpoint))
    except InvalidState:  # deleted on purpose; its file is on the way out
        return None
    log.warning("%s", warning)
    return msgspec.structs.replace(healed, warnings=[*healed.warnings, warning])


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
