"""Comparing the two copies of checkpoints with their digests, and healing one from the other."""

import msgspec

from ..domain.context import Caller
from ..domain.copies import CheckpointRows
from ..domain.healing import Heal
from ..domain.tx import WriteBackup
from ..engine import Engine, operation
from ..store.backups import BackupFile
from ..wire.errors import FleetError, InvalidState
from ..wire.model import Checkpoint, Finding
from ..wire.requests.checkpoint import CheckpointGet, CheckpointVerify
from ..wire.requests.mission import MissionGet
from ..wire.requests.system import Findings
from .reading import read_file


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the two copies of one checkpoint: the content, or what is wrong with it."""

    row: Checkpoint | None
    row_trouble: str
    file: Checkpoint | None
    file_trouble: str


@operation
async def verify(engine: Engine, request: CheckpointVerify, caller: Caller) -> Findings:
    """Check checkpoints in both stores; with ``repair`` mend what one good copy can mend."""
    return await engine.remembered(request, lambda: _verify(engine, request))


async def _verify(engine: Engine, request: CheckpointVerify) -> Findings:
    targets = await _targets(engine, request)
    findings = [
        await _check(engine, checkpoint_id, mission_id, repair=request.repair)
        for checkpoint_id, mission_id in targets.items()
    ]
    return Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings)


async def _targets(engine: Engine, request: CheckpointVerify) -> dict[str, str | None]:
    """Return what to check, id by id, with the mission of those that have a file."""
    mission_id = None
    if request.mission_id:
        mission_id = (await engine.execute(MissionGet(request.mission_id))).id
    rows = await engine.execute(CheckpointRows(mission_id))
    files = await engine.outbox.in_thread(lambda: list(engine.backups.files()))
    found: dict[str, str | None] = dict.fromkeys(rows.ids)
    found |= {f.checkpoint_id: f.mission_id for f in files if mission_id in (None, f.mission_id)}
    if request.checkpoint_id is None:
        return found
    if request.checkpoint_id in found:
        return {request.checkpoint_id: found[request.checkpoint_id]}
    known = await engine.execute(CheckpointGet(request.checkpoint_id))
    return {known.id: found.get(known.id)}


async def _check(
    engine: Engine, checkpoint_id: str, mission_id: str | None, *, repair: bool
) -> Finding:
    copies = await _copies(engine, checkpoint_id, mission_id)
    troubles = [text for text in (copies.row_trouble, copies.file_trouble) if text]
    if not troubles:
        return Finding(
            check="checkpoint", ok=True, subject=checkpoint_id, detail="both copies are intact"
        )
    detail = "; ".join(troubles)
    fixed = repair and await _mend(engine, checkpoint_id, copies)
    return Finding(check="checkpoint", ok=False, subject=checkpoint_id, detail=detail, fixed=fixed)


async def _copies(engine: Engine, checkpoint_id: str, mission_id: str | None) -> Copies:
    row, row_trouble, file, file_trouble = None, "", None, ""
    try:
        row = await engine.execute(CheckpointGet(checkpoint_id))
    except FleetError as error:
        row_trouble = error.message
    try:
        if mission_id is not None:
            file = await read_file(engine, BackupFile(mission_id, checkpoint_id))
        if file is None:
            file_trouble = "the file is missing"
        elif row and row.integrity != file.integrity:
            file_trouble = "the file is not the one that the database row describes"
    except (FleetError, OSError) as error:
        file_trouble = str(error)
    return Copies(row=row, row_trouble=row_trouble, file=file, file_trouble=file_trouble)


async def _mend(engine: Engine, checkpoint_id: str, copies: Copies) -> bool:
    if copies.row is not None:
        engine.outbox.post(WriteBackup(checkpoint_id))
        await engine.outbox.attempted(checkpoint_id)
        again = await _copies(engine, checkpoint_id, copies.row.mission_id)
        return not again.file_trouble
    if copies.file is None:
        return False
    try:
        await engine.execute(Heal(copies.file))
    except InvalidState:  # it was deleted; the file is on the way out
        return False
    return True
