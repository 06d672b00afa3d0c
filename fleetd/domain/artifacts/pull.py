"""What the files of a mission's checkpoints must hold, on whichever machine they are kept."""

from ..core.batches import Batch
from ..core.context import Context
from ..core.soft_delete import LIVE
from ..core.tx import Tx
from .kinds import KINDS

PullCursor = tuple[int, str]
"""Position in the log and id of the last checkpoint that was looked at."""
NEWEST: PullCursor = (2**62, "")


def batch(
    tx: Tx, ctx: Context, mission_id: str, cursor: PullCursor
) -> Batch[dict[str, bool], PullCursor]:
    """Return the next of a mission's checkpoints, newest first, without touching the content.

    Of each it says whether ``latest.json`` may be it.
    """
    rows = tx.all(
        f"SELECT id, seq, undo FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
        " AND (seq, id) < (:seq, :id) ORDER BY seq DESC, id DESC LIMIT :most",
        mission=mission_id,
        seq=cursor[0],
        id=cursor[1],
        most=ctx.batches.pulled,
    )
    following = (rows[-1]["seq"], rows[-1]["id"]) if len(rows) == ctx.batches.pulled else None
    return Batch({row["id"]: not row["undo"] for row in rows}, following)


def content(tx: Tx, ctx: Context, checkpoint_id: str) -> bytes | None:
    """Return the bytes that the daemon which keeps the file writes; its checksum was compared.

    None when the checkpoint was deleted. Raises Corrupt for a damaged row.
    """
    row = tx.one(f"SELECT * FROM checkpoints WHERE id = :id AND {LIVE}", id=checkpoint_id)
    return KINDS["checkpoint"].file_of(row) if row else None
