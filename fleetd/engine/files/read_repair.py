"""Read repair: reads a record from either copy, and restores the other one from it.

The row is read first, and its file if the row is missing or damaged.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from ...domain.artifacts.ingest import repair_row, stored
from ...domain.artifacts.inventory import keeper
from ...domain.artifacts.kinds import KINDS, FileRecord, id_of, noun_of
from ...domain.core.context import Context
from ...domain.core.tx import Tx, WriteBackup
from ...protocol.errors import Corrupt, FleetError, Incompatible, InvalidState, NotFound
from ...protocol.records import Checkpoint
from ...protocol.types import Noun
from ...store.files.record_files import RecordFile, RecordFiles
from ..engine import Engine
from .reconcile import IngestResult, ingest_orphans, rewrite
from .verified_read import verified

log = logging.getLogger("fleetd")
K = TypeVar("K", bound=FileRecord)
# Warnings that name one record each; further records are only counted.
NAMED = 3


async def get(engine: Engine, noun: Noun, record_id: str) -> FileRecord:
    """Return a record from its row; raises NotFound, Corrupt or Incompatible."""
    return await engine.read(stored, noun, record_id)


async def kept_on(engine: Engine, noun: Noun, record_id: str) -> str | None:
    """Return the name of the other machine that keeps a record's file, None for this one."""
    if not engine.machine:  # it has the store to itself
        return None
    return await engine.read(keeper, noun, record_id)


async def read(engine: Engine, noun: Noun, record_id: str) -> Any:
    """Read a record, and where its file is; a missing or damaged row is repaired."""
    return await _read(engine, noun, partial(get, engine, noun, record_id), record_id)


async def placed(engine: Engine, record: K) -> K:
    """Return a record with the other machine that keeps its file, if there is one."""
    elsewhere = await kept_on(engine, noun_of(record), id_of(record))
    return record if elsewhere is None else msgspec.structs.replace(record, file_on=elsewhere)


async def _read(
    engine: Engine, noun: Noun, row: Callable[[], Awaitable[FileRecord]], named: str | None = None
) -> FileRecord:
    try:
        record = await row()
    except (NotFound, Corrupt, Incompatible) as error:
        found = error.values.get(f"{noun}_id") or named
        if found is None:
            raise
        record = await repaired(engine, noun, str(found), error)
    else:
        if isinstance(record, Checkpoint) and KINDS[noun].to_rewrite(record):
            await rewrite(engine, record)
    return await placed(engine, record)


async def read_latest(
    engine: Engine, noun: Noun, owner_id: str, latest: Callable[[Tx, Context, str], FileRecord]
) -> Any:
    """Read an owner's newest record after looking for files that lost their row."""
    taken = await ingest_orphans(engine, noun, owner_id)
    newest = partial(engine.read, latest, owner_id)
    try:
        record = await _read(engine, noun, newest)
        if warnings := record.warnings:  # it may be the newest only by the damage of its row
            again = await _read(engine, noun, newest)
            if id_of(again) != id_of(record):
                record = _also_warning(again, warnings)
    except NotFound as error:
        raise next(iter(taken.refused.values()), error) from error
    return _also_warning(record, warnings_of(taken))


def _also_warning(record: K, more: list[str]) -> K:
    return msgspec.structs.replace(record, warnings=[*record.warnings, *more])


def warnings_of(taken: IngestResult) -> list[str]:
    """Return the warnings about files that had no row: the ingested ones, and the others."""
    found = [_restored(record_id, "missing") for record_id in taken.ids[:NAMED]]
    if (more := len(taken.ids) - NAMED) > 0:
        found.append(f"{more} more rows were missing; they were restored from their files")
    left = [f"{_without_period(error)}; it stays in place" for error in taken.refused.values()]
    return found + left


def _restored(record_id: str, what: str) -> str:
    return f"the database row of {record_id} was {what}; it was restored from its file"


async def repaired(engine: Engine, noun: Noun, record_id: str, error: FleetError) -> FileRecord:
    """Write a row again from its file and return the record with a warning.

    ``error`` is the error of the row. Raises an error about both copies if the file is of no use
    either. The file of a deleted record, or of another version, is not read.
    """
    if error.values.get("deleted") or isinstance(error, Incompatible):
        raise error
    if isinstance(error, NotFound):
        return await _ingest_missing(engine, noun, record_id, error)
    record, owner_id = None, owner_in(noun, error)
    try:
        record = await engine.outbox.in_thread(
            lambda: _first_intact(engine.backups[noun], record_id, owner_id)
        )
    except (Corrupt, Incompatible) as trouble:
        log.warning("%s", trouble.message)
        raise _both_damaged(noun, record_id, error, trouble) from error
    except OSError as trouble:
        log.warning("The file of %s cannot be read: %s", record_id, trouble)
    if record is None:
        raise _no_file(noun, error, await kept_on(engine, noun, record_id)) from error
    try:
        await engine.write(repair_row, record)
    except InvalidState:  # deleted on purpose; its file is about to be removed
        raise error from None
    if KINDS[noun].to_rewrite(record):
        engine.outbox.post(WriteBackup(noun, record_id))
    healed = await get(engine, noun, record_id)
    return _with_warning(healed, record.warnings, "damaged")


async def _ingest_missing(
    engine: Engine, noun: Noun, record_id: str, error: NotFound
) -> FileRecord:
    """Ingest the files of the owner that a record without a row belongs to."""
    if error.values.get("noun") != noun:
        raise error
    files: Sequence[RecordFile] = ()
    try:
        files = await engine.outbox.in_thread(lambda: engine.backups[noun].find(record_id))
    except OSError as trouble:
        log.warning("The %s files cannot be read: %s", noun, trouble)
    taken = [await ingest_orphans(engine, noun, file.owner_id) for file in files]
    try:
        healed = await get(engine, noun, record_id)
    except NotFound:
        refused = next((t.refused[record_id] for t in taken if record_id in t.refused), None)
        raise refused or _in_neither_copy(engine, noun, error) from error
    more = [text for each in taken for text in each.warnings.get(record_id, [])]
    return _with_warning(healed, more, "missing")


def _in_neither_copy(engine: Engine, noun: Noun, error: NotFound) -> NotFound:
    """Return the error of a record that has no copy left, with the places that were searched."""
    root = engine.backups[noun].root
    places = f"the database {engine.store.where} and the files below {root}"
    others = " If another machine has its file, restore it there." if engine.machine else ""
    return NotFound(error.message, hint=f"Looked in {places}.{others} {error.hint}", **error.values)


def _with_warning(healed: FileRecord, more: list[str], what: str) -> FileRecord:
    warning = _restored(id_of(healed), what)
    log.warning("%s", warning)
    return _also_warning(healed, [*more, warning])


def _both_damaged(noun: Noun, record_id: str, row: FleetError, file: FleetError) -> FleetError:
    """Return the error of a damaged row whose file is of no use either."""
    kind = type(row) if isinstance(row, Corrupt) else Corrupt
    return kind(
        f"{noun.capitalize()} {record_id} is damaged in both copies: its row"
        f" {row.values.get('reason')}; {_without_period(file)}",
        hint=f"{KINDS[noun].list} shows the others.",
        **cast("dict[str, Any]", {f"{noun}_id": record_id}),
    )


def _no_file(noun: Noun, row: FleetError, elsewhere: str | None) -> FleetError:
    """Return the error of a damaged row that has no file, or none here."""
    where, hint = "it has no file", f"{KINDS[noun].list} shows the others."
    if elsewhere is not None:
        where = f"its file is on {elsewhere}"
        hint = f"Restore it on that machine: {KINDS[noun].verify} --repair"
    return type(row)(f"{_without_period(row)}, and {where}", hint=hint, **row.values)


def _without_period(error: FleetError) -> str:
    return error.message.rstrip(".")


def owner_in(noun: Noun, error: FleetError) -> str | None:
    """Return the owner that a damaged row names, None if it names none."""
    return cast("str | None", error.values.get(f"{KINDS[noun].whose}_id"))


def _first_intact(backups: RecordFiles, record_id: str, owner_id: str | None) -> FileRecord | None:
    """Return the record in the first intact file that is named like it.

    Raises Corrupt when all are damaged, Incompatible for one of another version.
    """
    files = [*backups.find(record_id)]
    if owner_id is not None and RecordFile(owner_id, record_id) not in files:
        files.append(RecordFile(owner_id, record_id))
    refused: FleetError | None = None
    for file in files:
        try:
            record = verified(backups, file)
        except (Corrupt, Incompatible) as error:
            refused = refused or error
        else:
            if record is not None:
                return record
    if refused is not None:
        raise refused
    return None
