"""What the files of a mission's checkpoints must hold, on whichever machine they are kept."""

import msgspec

from ..core.context import Context
from ..core.soft_delete import LIVE
from ..core.tx import Tx
from .kinds import POLICIES

AT_ONCE = 100


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a mission's checkpoints were gone through, from the newest on."""

    seq: int = 2**62
    checkpoint_id: str = ""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Some of a mission's checkpoints, newest first, and where to go on.

    ``nameable`` are those that ``latest.json`` may be.
    """

    ids: list[str]
    nameable: frozenset[str]
    cursor: Cursor | None


def batch(tx: Tx, ctx: Context, mission_id: str, cursor: Cursor) -> Batch:
    """Return the next of a mission's checkpoints, without touching the content."""
    rows = tx.all(
        f"SELECT id, seq, undo FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
        " AND (seq, id) < (:seq, :id) ORDER BY seq DESC, id DESC LIMIT :most",
        mission=mission_id,
        seq=cursor.seq,
        id=cursor.checkpoint_id,
        most=AT_ONCE,
    )
    last = rows[-1] if len(rows) == AT_ONCE else None
    return Batch(
        ids=[row["id"] for row in rows],
        nameable=frozenset(row["id"] for row in rows if not row["undo"]),
        cursor=Cursor(seq=last["seq"], checkpoint_id=last["id"]) if last else None,
    )


def content(tx: Tx, ctx: Context, checkpoint_id: str) -> bytes | None:
    """Return the bytes that the daemon which keeps the file writes; its checksum was compared.

    None when the checkpoint was deleted. Raises Corrupt for a damaged row.
    """
    row = tx.one(f"SELECT * FROM checkpoints WHERE id = :id AND {LIVE}", id=checkpoint_id)
    return POLICIES["checkpoint"].file_of(row) if row else None
