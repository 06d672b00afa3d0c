"""Repair: compares the two copies of one record, and restores one from the other."""

from collections.abc import Sequence

import msgspec
import trio

from ...domain.artifacts.ingest import repair_row
from ...domain.artifacts.kinds import KINDS, FileRecord, owner_of
from ...domain.core.tx import WriteBackup
from ...protocol.errors import (
    Corrupt,
    FleetError,
    IntegrityMismatch,
    InvalidState,
    NotFound,
    Unavailable,
)
from ...protocol.records import Checkpoint, Finding
from ...protocol.snapshots import Snapshot
from ...protocol.types import Noun
from ...store.files.record_files import RecordFile
from ..engine import Engine
from .inventory import rows_of
from .read_repair import get, kept_on, owner_in
from .reconcile import ingest_orphans, rewrite
from .verified_read import FormsRead, read_forms

# A file that is about to be written is not missing; this is the longest wait for a slow disk.
FILE_WAIT_S = 1.0


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the two copies of one record: the content, or what is wrong with it.

    Neither a repair nor another version brings back a copy that is ``lost``. ``reason_code`` is
    that of the first problem, if the noun has such codes. A record that is ``gone`` was deleted
    meanwhile.
    """

    gone: bool
    row: FileRecord | None
    row_trouble: str
    row_lost: bool
    file: FileRecord | None
    file_trouble: str
    file_lost: bool
    reason_code: str | None


async def check(
    engine: Engine, noun: Noun, record_id: str, owner_id: str | None, *, repair: bool
) -> Finding:
    """Check one record; ``owner_id`` has a file of it, None for the owner that its row names."""
    elsewhere = await kept_on(engine, noun, record_id)
    if elsewhere is not None:
        return await _check_row(engine, noun, record_id, elsewhere)
    copies = await _copies(engine, noun, record_id, owner_id)
    if copies.gone and engine.outbox.failure(record_id) is None:
        return Finding(check=noun, ok=True, subject=record_id, detail="deleted in the meantime")
    troubles = [text for text in (copies.row_trouble, copies.file_trouble) if text]
    if not troubles:
        return Finding(check=noun, ok=True, subject=record_id, detail="both copies are intact")
    detail = "; ".join(troubles)
    fixed = repair and await _repair(engine, noun, record_id, owner_id, copies)
    if not fixed and await _is_lost(engine, noun, record_id, owner_id, copies):
        detail += f"; no intact copy is left, {KINDS[noun].way_out(record_id)}"
    return Finding(
        check=noun,
        ok=False,
        subject=record_id,
        detail=detail,
        fixed=fixed,
        reason_code=copies.reason_code,
    )


async def _check_row(engine: Engine, noun: Noun, record_id: str, elsewhere: str) -> Finding:
    """Compare a row with its checksum; the machine that keeps the file has to check the file."""
    _, error = await _row(engine, noun, record_id)
    if isinstance(error, NotFound):
        return Finding(check=noun, ok=True, subject=record_id, detail="deleted in the meantime")
    row = "its row is intact" if error is None else error.message.rstrip(".")
    detail = f"{row}; its file is on {elsewhere} and was not compared"
    if error is None:
        return Finding(check="row", ok=True, subject=record_id, detail=detail)
    return Finding(
        check="row",
        ok=False,
        subject=record_id,
        detail=f"{detail}: {KINDS[noun].verify} --repair restores it there",
        reason_code=_reason(noun, None, [error], ""),
    )


async def _copies(engine: Engine, noun: Noun, record_id: str, owner_id: str | None) -> Copies:
    with trio.move_on_after(FILE_WAIT_S):  # its file may be about to be written
        await engine.outbox.attempted(record_id)
    row, row_error = await _row(engine, noun, record_id)
    if owner_id is None and row_error is not None:
        owner_id = owner_in(noun, row_error)
    owner_id = owner_id or (owner_of(row) if row else None)
    found = await _read_file(engine, noun, owner_id, record_id)
    file, trouble = found.record, found.trouble
    file_trouble = str(trouble or "")
    if not found.there and trouble is None:
        file_trouble = "the file is missing"
    elif file is not None and row is not None and trouble is None:
        file_trouble = _difference(row, file)
    row_trouble = row_error.message if row_error else ""
    for copy in filter(None, (row, file)):
        if isinstance(copy, Checkpoint) and KINDS[noun].to_rewrite(copy):
            row_trouble = row_trouble or copy.warnings[-1]
    return Copies(
        gone=isinstance(row_error, NotFound)
        and (bool(row_error.values.get("deleted")) or not (found.there or trouble)),
        row=row,
        row_trouble=row_trouble,
        # Damage of the database itself names no record.
        row_lost=isinstance(row_error, Corrupt) and f"{noun}_id" in row_error.values,
        file=file,
        file_trouble=file_trouble,
        file_lost=file is None and (isinstance(trouble, Corrupt) or trouble is None),
        reason_code=_reason(noun, row, [row_error, trouble], file_trouble),
    )


async def _row(
    engine: Engine, noun: Noun, record_id: str
) -> tuple[FileRecord | None, FleetError | None]:
    try:
        return await get(engine, noun, record_id), None
    except Unavailable:  # which says nothing about the row
        raise
    except FleetError as error:
        return None, error


async def _read_file(engine: Engine, noun: Noun, owner_id: str | None, record_id: str) -> FormsRead:
    if owner_id is None:
        return FormsRead(record=None, trouble=None, there=False)
    file = RecordFile(owner_id, record_id)
    try:
        return await engine.outbox.in_thread(lambda: read_forms(engine.backups[noun], file))
    except OSError as error:
        return FormsRead(record=None, trouble=error, there=False)


def _difference(row: FileRecord, file: FileRecord) -> str:
    """Return how a file differs from the one that the row describes; empty if it does not."""
    if row.integrity != file.integrity:
        return "the file is not the one that the database row describes"
    if isinstance(row, Snapshot) and isinstance(file, Snapshot):
        known = {each.compressed: each.digest for each in row.artifacts}
        for form in file.artifacts:
            # What was compressed a moment ago has no checksum yet.
            if known.get(form.compressed, form.digest) != form.digest:
                which = "compressed file" if form.compressed else "file"
                return f"the {which} does not match its own checksum"
    return ""


def _reason(
    noun: Noun, row: FileRecord | None, errors: Sequence[FleetError | OSError | None], trouble: str
) -> str | None:
    """Return the reason code of the problem, None for a noun that has no codes."""
    if KINDS[noun].write_failed is None or not (any(errors) or trouble):
        return None
    corrupt = next((each for each in errors if isinstance(each, Corrupt)), None)
    if corrupt is not None:
        return corrupt.kind if corrupt.kind != Corrupt.kind else IntegrityMismatch.kind
    if row is not None and row.backed_up_at is None:
        return KINDS[noun].write_failed
    return IntegrityMismatch.kind


async def _is_lost(
    engine: Engine, noun: Noun, record_id: str, owner_id: str | None, copies: Copies
) -> bool:
    """Return whether a record can only be deleted; another owner's file decides nothing."""
    if not (copies.row_lost and copies.file_lost):
        return False
    if owner_id is None:
        return True
    return record_id in (await rows_of(engine, noun, owner_id)).live


async def _repair(
    engine: Engine, noun: Noun, record_id: str, owner_id: str | None, copies: Copies
) -> bool:
    if copies.row is not None:
        if isinstance(copies.row, Checkpoint) and KINDS[noun].to_rewrite(copies.row):
            await rewrite(engine, copies.row)
        return await _rewrite_file(engine, noun, record_id, owner_id or owner_of(copies.row))
    if copies.file is None:
        return False
    owner_id = owner_id or owner_of(copies.file)
    try:
        if record_id not in (await ingest_orphans(engine, noun, owner_id)).ids:
            await engine.write(repair_row, copies.file)
    except InvalidState:  # it was deleted, or forgotten; the file is about to be removed
        return False
    return not copies.file_trouble or await _rewrite_file(engine, noun, record_id, owner_id)


async def _rewrite_file(engine: Engine, noun: Noun, record_id: str, owner_id: str) -> bool:
    """Write a file again; a file in another owner's directory is not repaired by that."""
    engine.outbox.post(WriteBackup(noun, record_id))
    await engine.outbox.attempted(record_id)
    again = await _copies(engine, noun, record_id, owner_id)
    return not again.row_trouble and not again.file_trouble
