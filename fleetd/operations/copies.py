"""Comparing the two copies of one record with its digest, and healing one from the other.

Must not choose which records are looked at.
"""

import msgspec

from ..domain.comparing import NamesGet
from ..domain.healing import Heal
from ..domain.policy import POLICIES, Kept, owner_of
from ..domain.tx import WriteBackup
from ..engine import Engine
from ..reconciling import rewrite, take_in
from ..store.backups import BackupFile
from ..wire.errors import Corrupt, FleetError, IntegrityMismatch, InvalidState
from ..wire.model import Checkpoint, Finding
from ..wire.snapshots import Snapshot
from ..wire.types import Noun
from .reading import get, read_file


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the two copies of one record: the content, or what is wrong with it.

    A copy that is ``spoilt`` no repair and no other version brings back. ``reason_code`` is that of
    the first thing that is wrong, where the noun has such codes.
    """

    row: Kept | None
    row_trouble: str
    row_spoilt: bool
    file: Kept | None
    file_trouble: str
    file_spoilt: bool
    reason_code: str | None


async def check(
    engine: Engine, noun: Noun, record_id: str, owner_id: str | None, *, repair: bool
) -> Finding:
    """Check one record; ``owner_id`` is where a file of it lies, None when there is none."""
    copies = await _copies(engine, noun, record_id, owner_id)
    troubles = [text for text in (copies.row_trouble, copies.file_trouble) if text]
    if not troubles:
        return Finding(check=noun, ok=True, subject=record_id, detail="both copies are intact")
    detail = "; ".join(troubles)
    fixed = repair and await _mend(engine, noun, record_id, owner_id, copies)
    if not fixed and await _hopeless(engine, noun, record_id, owner_id, copies):
        detail += f"; nothing is left to heal it from, {POLICIES[noun].way_out(record_id)}"
    return Finding(
        check=noun,
        ok=False,
        subject=record_id,
        detail=detail,
        fixed=fixed,
        reason_code=copies.reason_code,
    )


async def _copies(engine: Engine, noun: Noun, record_id: str, owner_id: str | None) -> Copies:
    row, row_error = None, None
    file, file_error, file_trouble = None, None, ""
    try:
        row = await get(engine, noun, record_id)
    except FleetError as error:
        row_error = error
    try:
        if owner_id is not None:
            file = await read_file(engine, noun, BackupFile(owner_id, record_id))
        if file is None:
            file_trouble = "the file is missing"
        elif row:
            file_trouble = _difference(row, file)
    except (FleetError, OSError) as error:
        file_error, file_trouble = error, str(error)
    row_trouble = row_error.message if row_error else ""
    for copy in filter(None, (row, file)):
        if isinstance(copy, Checkpoint) and POLICIES[noun].is_migrated(copy):
            row_trouble = row_trouble or copy.warnings[-1]
    return Copies(
        row=row,
        row_trouble=row_trouble,
        # Damage of the database itself names no record.
        row_spoilt=isinstance(row_error, Corrupt) and f"{noun}_id" in row_error.values,
        file=file,
        file_trouble=file_trouble,
        file_spoilt=isinstance(file_error, Corrupt) or (file is None and file_error is None),
        reason_code=_reason(noun, row, row_error or file_error, file_trouble),
    )


def _difference(row: Kept, file: Kept) -> str:
    """Say in what a file is not the one that the row describes; empty when it is."""
    if row.integrity != file.integrity:
        return "the file is not the one that the database row describes"
    if isinstance(row, Snapshot) and isinstance(file, Snapshot) and row.compressed_at:
        packed = [{a.digest for a in each.artifacts if a.compressed} for each in (row, file)]
        if packed[1] and packed[0] != packed[1]:
            return "the compressed file does not match its own checksum"
    return ""


def _reason(
    noun: Noun, row: Kept | None, error: FleetError | OSError | None, trouble: str
) -> str | None:
    """Return the reason code of what is wrong, None for a noun that has none."""
    if POLICIES[noun].write_failed is None or not (error or trouble):
        return None
    if isinstance(error, Corrupt):
        return error.kind if error.kind != Corrupt.kind else IntegrityMismatch.kind
    if row is not None and row.backed_up_at is None:
        return POLICIES[noun].write_failed
    return IntegrityMismatch.kind


async def _hopeless(
    engine: Engine, noun: Noun, record_id: str, owner_id: str | None, copies: Copies
) -> bool:
    """Whether a record can only be deleted; a file among another owner's decides nothing."""
    if not (copies.row_spoilt and copies.file_spoilt):
        return False
    if owner_id is None:
        return True
    (rows,) = (await engine.execute(NamesGet(noun, [owner_id]))).owners
    return record_id in rows.live


async def _mend(
    engine: Engine, noun: Noun, record_id: str, owner_id: str | None, copies: Copies
) -> bool:
    if copies.row is not None:
        if isinstance(copies.row, Checkpoint) and POLICIES[noun].is_migrated(copies.row):
            await rewrite(engine, copies.row)
        engine.outbox.post(WriteBackup(noun, record_id))
        await engine.outbox.attempted(record_id)
        # The place that was bad: a file among another owner's is not mended by one elsewhere.
        again = await _copies(engine, noun, record_id, owner_id or owner_of(copies.row))
        return not again.row_trouble and not again.file_trouble
    if copies.file is None or owner_id is None:
        return False
    try:
        if record_id not in (await take_in(engine, noun, owner_id)).ids:
            await engine.execute(Heal(copies.file))
    except InvalidState:  # it was deleted, or forgotten; the file is on the way out
        return False
    return True
