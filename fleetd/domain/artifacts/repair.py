"""Repair of a record's row from its verified file."""

from ...protocol.errors import Corrupt, InvalidState
from ...protocol.types import Noun
from ..core.context import Context
from ..core.ids import find
from ..core.soft_delete import find_live
from ..core.tombstones import was_forgotten
from ..core.tx import Row, Tx, WriteBackup
from .kinds import KINDS, FileRecord, id_of, noun_of, owner_of, seq_of


def stored(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> FileRecord:
    """Return a record from its row; raises NotFound, Corrupt or Incompatible."""
    record: FileRecord = KINDS[noun].from_row(find_live(tx, noun, record_id))
    return record


def repair_row(tx: Tx, ctx: Context, record: FileRecord) -> None:
    """Bring a row back; one that was deleted does not come back. Raises InvalidState."""
    noun, record_id = noun_of(record), id_of(record)
    kind = KINDS[noun]
    old = tx.one(f"SELECT deleted_at FROM {kind.table} WHERE id = :id", id=record_id)
    if old is not None and old["deleted_at"] is not None:
        raise InvalidState(
            f"{noun.capitalize()} {record_id} was deleted and does not come back.",
            hint=f"Use another {noun}.",
        )
    if was_forgotten(tx, kind.whose, owner_of(record), seq_of(record)):
        raise InvalidState(
            f"The {kind.whose} of {noun} {record_id} was forgotten and does not come back.",
            hint="Remove the file; nothing else is left of it.",
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
    except Corrupt:  # what stands beside the content stands nowhere else: it is lost
        tx.run(
            f"UPDATE {kind.table} SET source_details_json = '[]', warnings_json = '[]'"
            " WHERE id = :id",
            id=columns["id"],
        )


def insert(tx: Tx, ctx: Context, record: FileRecord) -> bool:
    """Write the row of a record that has none, and its owner's if that is missing too.

    Returns whether a mission had to be made: it is to be caught up then.
    """
    columns, made = KINDS[noun_of(record)].insert(tx, ctx, record)
    _file_again(tx, record, columns)
    return made


def _file_again(tx: Tx, record: FileRecord, columns: Row) -> None:
    """Have a record's file written whose texts the store does not hold as they are there."""
    if record.integrity and columns["digest"] != record.integrity.digest:
        tx.after_commit(WriteBackup(noun_of(record), id_of(record)))
