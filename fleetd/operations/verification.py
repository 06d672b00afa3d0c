"""Comparing the two copies of checkpoints with their digests, and healing one from the other.

A mission at a time, a checkpoint at a time: whoever else asks for something is served meanwhile.
"""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from ..domain.comparing import CheckpointedMissions, NamesGet, NewestFiled, RowNames
from ..domain.content import is_migrated
from ..domain.context import Caller
from ..domain.healing import Heal
from ..domain.tx import WriteBackup
from ..engine import Engine, operation
from ..reconciling import mend_latest, rewrite, take_in
from ..store.backups import LATEST, BackupFile, Listing
from ..wire.errors import Corrupt, FleetError, Incompatible, InvalidState
from ..wire.model import Checkpoint, Finding
from ..wire.requests.checkpoint import CheckpointGet, CheckpointVerify
from ..wire.requests.mission import MissionGet
from ..wire.requests.system import Findings
from .reading import read_file

log = logging.getLogger("fleetd")
# So many intact checkpoints are listed one by one; of further missions only their number is told.
LISTED = 1_000


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the two copies of one checkpoint: the content, or what is wrong with it.

    A copy that is ``spoilt`` no repair and no other version brings back.
    """

    row: Checkpoint | None
    row_trouble: str
    row_spoilt: bool
    file: Checkpoint | None
    file_trouble: str
    file_spoilt: bool


@operation
async def verify(engine: Engine, request: CheckpointVerify, caller: Caller) -> Findings:
    """Check checkpoints in both stores; with ``repair`` mend what one good copy can mend."""
    return await engine.remembered(request, lambda: _verify(engine, request))


async def _verify(engine: Engine, request: CheckpointVerify) -> Findings:
    findings: list[Finding] = []
    async for mission_id, found in checked(engine, request):
        findings += found if len(findings) < LISTED else _shortened(mission_id, found)
    return Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings)


async def checked(
    engine: Engine, request: CheckpointVerify
) -> AsyncIterator[tuple[str, list[Finding]]]:
    """Yield the findings of one mission after the other, repaired if the request says so."""
    if request.checkpoint_id is not None:
        found = await _check_one(engine, request.checkpoint_id, repair=request.repair)
        yield request.checkpoint_id, [found]
        return
    for mission_id in await _missions(engine, request.mission_id):
        yield mission_id, await _check_mission(engine, mission_id, repair=request.repair)


async def _check_one(engine: Engine, checkpoint_id: str, *, repair: bool) -> Finding:
    try:
        file = await engine.outbox.in_thread(lambda: engine.backups.find(checkpoint_id))
        if file is None:  # the beginning of an id, or no file: the row says which, or that none is
            checkpoint_id = await _whole_id(engine, checkpoint_id)
            file = await engine.outbox.in_thread(lambda: engine.backups.find(checkpoint_id))
    except OSError as error:
        return _unreadable(engine.backups.root, error)
    return await _check(engine, checkpoint_id, file.owner_id if file else None, repair=repair)


async def _whole_id(engine: Engine, given: str) -> str:
    """Return the id that a given one is the beginning of, also when its row cannot be read."""
    try:
        return (await engine.execute(CheckpointGet(given))).id
    except (Corrupt, Incompatible) as error:
        if "checkpoint_id" not in error.values:
            raise
        return str(error.values["checkpoint_id"])


def _unreadable(directory: Path, error: OSError) -> Finding:
    detail = f"the checkpoint files cannot be read: {error}"
    return Finding(check="files", ok=False, subject=str(directory), detail=detail)


async def _missions(engine: Engine, given: str | None) -> list[str]:
    """Return the missions to check: one, or all that have rows or files."""
    if given is not None:
        return [(await engine.execute(MissionGet(given))).id]
    try:
        known = await engine.outbox.in_thread(engine.backups.missions)
    except OSError as error:  # told with every mission that has rows
        log.warning("The checkpoint files cannot be read: %s", error)
        known = []
    return sorted({*known, *(await engine.execute(CheckpointedMissions())).ids})


async def _look(engine: Engine, mission_id: str) -> tuple[Listing, RowNames]:
    """Return the names on disk and in the database, in this order: rows come before files."""
    listing = await engine.outbox.in_thread(lambda: engine.backups.list(mission_id))
    (rows,) = (await engine.execute(NamesGet([mission_id]))).missions
    return listing, rows


async def _check_mission(engine: Engine, mission_id: str, *, repair: bool) -> list[Finding]:
    directory = engine.backups.root / mission_id
    try:
        listing, rows = await _look(engine, mission_id)
    except OSError as error:
        return [_unreadable(directory, error)]
    named = listing.files | listing.blocked
    checked = sorted(rows.live | (named - rows.rows))
    if not checked:
        return []
    findings = []
    for checkpoint_id in checked:
        holder = mission_id if checkpoint_id in named else None
        findings.append(await _check(engine, checkpoint_id, holder, repair=repair))
    known = {finding.subject for finding in findings if not finding.ok}
    findings += await _check_latest(engine, mission_id, known, repair=repair)
    return findings + [
        Finding(
            check="name",
            ok=True,
            subject=str(directory / name),
            detail="is not a name of fleetd's and is left alone",
        )
        for name in listing.foreign
    ]


async def _check_latest(
    engine: Engine, mission_id: str, known: set[str | None], *, repair: bool
) -> list[Finding]:
    """Look at ``latest.json`` after the checkpoints: repairing them may have mended it.

    That it names a checkpoint which is known to be bad is no finding of its own.
    """
    path = str(engine.backups.root / mission_id / LATEST)
    async with engine.outbox.at_work:
        listing, rows = await _look(engine, mission_id)
        wanted = (await engine.execute(NewestFiled(mission_id, listing.files))).checkpoint_id
        trouble = listing.latest_trouble(wanted)
        named = (listing.latest or "").removesuffix(".json")
        if not trouble or (named in known and not repair):
            return []
        done = await mend_latest(engine, mission_id, listing, rows.newest) if repair else ""
    return [
        Finding(check="latest", ok=False, subject=path, detail=done or trouble, fixed=bool(done))
    ]


def _shortened(mission_id: str, found: list[Finding]) -> list[Finding]:
    """Return a mission's findings with one line for all that is intact."""
    intact = sum(finding.ok for finding in found)
    detail = f"{intact} checkpoints and names in order"
    line = Finding(check="checkpoints", ok=True, subject=mission_id, detail=detail)
    return [*([line] if intact else []), *(finding for finding in found if not finding.ok)]


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
    fixed = repair and await _mend(engine, checkpoint_id, mission_id, copies)
    if not fixed and await _hopeless(engine, checkpoint_id, mission_id, copies):
        way_out = f"delete it: fleetctl checkpoints delete {checkpoint_id}"
        detail += f"; nothing is left to heal it from, {way_out}"
    return Finding(check="checkpoint", ok=False, subject=checkpoint_id, detail=detail, fixed=fixed)


async def _copies(engine: Engine, checkpoint_id: str, mission_id: str | None) -> Copies:
    row, row_trouble, row_spoilt = None, "", False
    file, file_trouble, file_spoilt = None, "", False
    try:
        row = await engine.execute(CheckpointGet(checkpoint_id))
    except FleetError as error:
        row_trouble = error.message
        # Damage of the database itself names no checkpoint.
        row_spoilt = isinstance(error, Corrupt) and "checkpoint_id" in error.values
    try:
        if mission_id is not None:
            file = await read_file(engine, BackupFile(mission_id, checkpoint_id))
        if file is None:
            file_trouble, file_spoilt = "the file is missing", True
        elif row and row.integrity != file.integrity:
            file_trouble = "the file is not the one that the database row describes"
    except (FleetError, OSError) as error:
        file_trouble, file_spoilt = str(error), isinstance(error, Corrupt)
    for copy in filter(None, (row, file)):
        if is_migrated(copy):
            row_trouble = row_trouble or copy.warnings[-1]
    return Copies(
        row=row,
        row_trouble=row_trouble,
        row_spoilt=row_spoilt,
        file=file,
        file_trouble=file_trouble,
        file_spoilt=file_spoilt,
    )


async def _hopeless(
    engine: Engine, checkpoint_id: str, mission_id: str | None, copies: Copies
) -> bool:
    """Whether a checkpoint can only be deleted; a file among another mission's decides nothing."""
    if not (copies.row_spoilt and copies.file_spoilt):
        return False
    if mission_id is None:
        return True
    (rows,) = (await engine.execute(NamesGet([mission_id]))).missions
    return checkpoint_id in rows.live


async def _mend(engine: Engine, checkpoint_id: str, mission_id: str | None, copies: Copies) -> bool:
    if copies.row is not None:
        if is_migrated(copies.row):
            await rewrite(engine, copies.row)
        engine.outbox.post(WriteBackup(checkpoint_id))
        await engine.outbox.attempted(checkpoint_id)
        # The place that was bad: a file among another mission's is not mended by one elsewhere.
        again = await _copies(engine, checkpoint_id, mission_id or copies.row.mission_id)
        return not again.row_trouble and not again.file_trouble
    if copies.file is None or mission_id is None:
        return False
    try:
        if checkpoint_id not in (await take_in(engine, mission_id)).ids:
            await engine.execute(Heal(copies.file))
    except InvalidState:  # it was deleted, or forgotten; the file is on the way out
        return False
    return True
