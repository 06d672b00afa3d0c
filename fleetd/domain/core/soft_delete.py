"""Soft delete: a record that is marked is gone for everybody, and its file and row follow.

The mark keeps what was deleted from coming back out of its file after a crash. Here stand the
conditions on rows that have a file: which are live, and whose machine keeps the file.
"""

from ...protocol.errors import NotFound
from ...protocol.types import Noun
from .context import Context
from .ids import TABLES, find, missing
from .tx import RemoveBackup, Row, Tx

LIVE = "deleted_at IS NULL"
# A file belongs to the machine that took the record: it alone writes, verifies and removes it.
KEPT_HERE = "machine = :machine"
# What still needs a file written, or removed: the words of an index that is nearly always empty.
UNSETTLED = "(backed_up_at IS NULL OR deleted_at IS NOT NULL)"
# What of it is for this machine to do.
PENDING = f"{KEPT_HERE} AND {UNSETTLED}"
# The content goes with the mark: a large row would have to be written anew to hold it.
_EMPTIED = {
    "checkpoint": "sorties_json = '', locks_json = '', messages_json = '',"
    " recovery_context_json = '', mission_json = NULL",
    "snapshot": "document_json = ''",
}


def mark_deleted(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> None:
    """Mark a record deleted; after COMMIT its file goes, then its row.

    What another machine keeps in a file is found marked by the daemon of that one.
    """
    row = tx.one(
        f"UPDATE {TABLES[noun]} SET deleted_at = :now, {_EMPTIED[noun]} WHERE id = :id"
        " RETURNING machine",
        now=ctx.now,
        id=record_id,
    )
    if row is not None and ctx.is_here(row):
        tx.after_commit(RemoveBackup(noun, record_id))


def find_live(tx: Tx, noun: Noun, record_id: str) -> Row:
    """Return the row of a record that is not deleted; raises NotFound.

    ``deleted`` in the error says that its file, while it is still there, must not be used either.
    """
    row = find(tx, noun, record_id)
    if row["deleted_at"] is not None:
        gone = missing(noun, record_id)
        raise NotFound(gone.message, hint=gone.hint, **gone.values, deleted=True)
    return row
