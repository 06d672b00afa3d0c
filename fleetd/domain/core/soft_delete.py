"""Soft delete: a marked record is gone for every reader; its file and row are removed later.

The mark keeps a deleted record from coming back from its file after a crash. This module also has
the conditions on rows with a file: which are live, and which machine keeps the file.
"""

from ...protocol.errors import NotFound
from ...protocol.types import Noun
from .context import Context
from .ids import TABLES, find, missing
from .tx import RemoveBackup, Row, Tx

LIVE = "deleted_at IS NULL"
# A file belongs to the machine that took the record: it alone writes, verifies and removes it.
KEPT_HERE = "machine = :machine"
# Rows whose file is still to be written or removed. The text must match that of an index, which is
# nearly always empty.
UNSETTLED = "(backed_up_at IS NULL OR deleted_at IS NOT NULL)"
# The part of these rows that this machine has to settle.
PENDING = f"{KEPT_HERE} AND {UNSETTLED}"
# The mark also empties the content: keeping it would mean rewriting a large row.
_EMPTIED = {
    "checkpoint": "sorties_json = '', locks_json = '', messages_json = '',"
    " recovery_context_json = '', mission_json = NULL",
    "snapshot": "document_json = ''",
}


def mark_deleted(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> None:
    """Mark a record deleted; after COMMIT its file is removed, then its row.

    If another machine keeps the file, the daemon there finds the mark.
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

    ``deleted`` in the error means that its file must not be used either while it still exists.
    """
    row = find(tx, noun, record_id)
    if row["deleted_at"] is not None:
        gone = missing(noun, record_id)
        raise NotFound(gone.message, hint=gone.hint, **gone.values, deleted=True)
    return row
