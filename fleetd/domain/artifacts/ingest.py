"""Rows from verified files: ingest of missing rows, repair of damaged ones.

The store has a mark for each mission that must be rolled forward afterwards, so that this is done
even after a crash. A mission that was missing is ``made``, one older than its files is ``behind``.
"""

import msgspec

from ...protocol.errors import Corrupt, InvalidState
from ...protocol.records import Checkpoint
from ...protocol.types import Noun
from ..core.context import Context
from ..core.event_log import position
from ..core.ids import find
from ..core.soft_delete import find_live
from ..core.tombstones import was_forgotten
from ..core.tx import LogLine, Row, Tx, WriteBackup
from .kinds import KINDS, FileRecord, id_of, noun_of, owner_of, seq_of
from .outbox import purged_until


def stored(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> FileRecord:
    """Return a record from its row; raises NotFound, Corrupt or Incompatible."""
    record: FileRecord = KINDS[noun].from_row(find_live(tx, noun, record_id))
    return record


def repair_row(tx: Tx, ctx: Context, record: FileRecord) -> None:
    """Restore a row; raises InvalidState for a record that was deleted or forgotten."""
    noun, record_id = noun_of(record), id_of(record)
    kind = KINDS[noun]
    old = tx.one(f"SELECT deleted_at FROM {kind.table} WHERE id = :id", id=record_id)
    if old is not None and old["deleted_at"] is not None:
        raise InvalidState(
            f"{noun.capitalize()} {record_id} was deleted and cannot be restored.",
            hint=f"Use another {noun}.",
        )
    if was_forgotten(tx, kind.whose, owner_of(record), seq_of(record)):
        raise InvalidState(
            f"The {kind.whose} of {noun} {record_id} was forgotten and cannot be restored.",
            hint="Remove the file; it is the last trace.",
        )
    if old is None:
        insert(tx, ctx, record)
    else:
        _overwrite(tx, ctx, record)


def _overwrite(tx: Tx, ctx: Context, record: FileRecord) -> None:
    kind = KINDS[noun_of(record)]
    columns = kind.to_columns(record)
    names = ", ".join(f"{name} = :{name}" for name in columns if name != "id")
    tx.run(
        f"UPDATE {kind.table} SET {names}, backed_up_at = CASE WHEN machine = :machine"
        " THEN coalesce(backed_up_at, :now) ELSE backed_up_at END WHERE id = :id",
        **columns,
        now=ctx.now,
        machine=ctx.machine,
    )
    _file_again(tx, record, columns)
    try:
        kind.from_row(find(tx, kind.noun, columns["id"]))
    except Corrupt:  # columns beside the content exist nowhere else: they are lost
        tx.run(
            f"UPDATE {kind.table} SET source_details_json = '[]', warnings_json = '[]'"
            " WHERE id = :id",
            id=columns["id"],
        )


def insert(tx: Tx, ctx: Context, record: FileRecord) -> bool:
    """Write the row of a record that has none, and its owner's if that is missing too.

    Returns whether a mission had to be made: then it must be caught up.
    """
    columns, made = KINDS[noun_of(record)].insert(tx, ctx, record)
    _file_again(tx, record, columns)
    return made


def _file_again(tx: Tx, record: FileRecord, columns: Row) -> None:
    """Write a record's file again if the store holds its texts in another form."""
    if record.integrity and columns["digest"] != record.integrity.digest:
        tx.after_commit(WriteBackup(noun_of(record), id_of(record)))


def _log_end_key(ctx: Context) -> str:
    """Return the key under which this machine's import notes the end of the log."""
    return f"import:{ctx.machine}" if ctx.machine else "import"


def _mark_prefix(ctx: Context) -> str:
    """Return the key prefix of the missions that this machine has to catch up.

    Machines that ingest their files at the same time must not remove each other's marks.
    """
    return f"catch_up:{ctx.machine}:" if ctx.machine else "catch_up:"


class Ingested(msgspec.Struct, frozen=True):
    """Records that have a row now, newest first.

    ``gone`` were deleted while this machine was away for too long to be waited for.
    """

    ids: list[str] = []
    gone: list[str] = []


def ingest(tx: Tx, ctx: Context, records: list[FileRecord]) -> Ingested:
    """Write rows for verified files; a record with a row, even a deleted one, stays unchanged."""
    end, gone_until = _end_of_log(tx, ctx), purged_until(tx, ctx)
    taken, gone = [], []
    # A missing mission is made from the newest record.
    for record in sorted(records, key=seq_of, reverse=True):
        noun, record_id = noun_of(record), id_of(record)
        kind = KINDS[noun]
        if tx.exists(f"SELECT id FROM {kind.table} WHERE id = :id", id=record_id):
            continue
        if was_forgotten(tx, kind.whose, owner_of(record), seq_of(record)):
            text = f"The file of {noun} {record_id} belongs to a forgotten record; remove it"
            tx.after_commit(LogLine("WARNING", text))
            continue
        # A record is always followed by its own event.
        if gone_until is not None and seq_of(record) < gone_until:
            gone.append(record_id)
            continue
        made = insert(tx, ctx, record)
        if isinstance(record, Checkpoint) and (made or (record.seq > end and not record.undo)):
            tx.run(
                "INSERT INTO store_meta (key, value) VALUES (:key, :how)"
                " ON CONFLICT (key) DO NOTHING",
                key=_mark_prefix(ctx) + record.mission_id,
                how="made" if made else "behind",
            )
        taken.append(record_id)
    return Ingested(taken, gone)


def _end_of_log(tx: Tx, ctx: Context) -> int:
    """Return where the log ended when the import began, even if a crash interrupted it since."""
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES (:key, :end) ON CONFLICT (key) DO NOTHING",
        key=_log_end_key(ctx),
        end=str(position(tx)),
    )
    return int(tx.value("SELECT value FROM store_meta WHERE key = :key", key=_log_end_key(ctx)))


def to_roll_forward(tx: Tx, ctx: Context, how: str | None = None) -> list[str]:
    """Return the missions that must be caught up, or those of one kind, the newest first."""
    rows = tx.all(
        "SELECT substr(m.key, CAST(:skip AS INTEGER)) AS id, m.value AS how FROM store_meta m"
        " WHERE m.key LIKE :prefix ORDER BY (SELECT max(c.seq) FROM checkpoints c"
        " WHERE c.mission_id = substr(m.key, CAST(:skip AS INTEGER))) DESC NULLS LAST, m.key",
        skip=len(_mark_prefix(ctx)) + 1,
        prefix=f"{_mark_prefix(ctx)}%",
    )
    return [row["id"] for row in rows if how in (None, row["how"])]


def mark_old_rows_dropped(tx: Tx, ctx: Context, mission_id: str) -> None:
    """Note that what has ended was dropped from a mission's old rows, so that it is done once."""
    tx.run(
        "UPDATE store_meta SET value = 'settled' WHERE key = :key",
        key=_mark_prefix(ctx) + mission_id,
    )


def unmark(tx: Tx, ctx: Context, mission_id: str) -> bool:
    """Remove the mark of a mission; return whether it had one."""
    deleted = "DELETE FROM store_meta WHERE key = :key RETURNING key"
    return tx.exists(deleted, key=_mark_prefix(ctx) + mission_id)


def drop_stale_marks(tx: Tx, ctx: Context) -> None:
    """Remove the marks of missions that were deleted or forgotten after the ingest."""
    tx.run(
        "DELETE FROM store_meta WHERE key LIKE :prefix"
        " AND substr(key, CAST(:skip AS INTEGER)) NOT IN (SELECT id FROM missions)",
        prefix=f"{_mark_prefix(ctx)}%",
        skip=len(_mark_prefix(ctx)) + 1,
    )


def take_import_end(tx: Tx, ctx: Context) -> int | None:
    """End the import and return where the log ended when it began; None if none was running."""
    row = tx.one("DELETE FROM store_meta WHERE key = :key RETURNING value", key=_log_end_key(ctx))
    return int(row["value"]) if row else None
