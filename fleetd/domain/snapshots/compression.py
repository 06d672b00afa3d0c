"""Compression of history files: which are old enough, and that they are compressed.

Source: snapshot-lifecycle, Compression policy.
"""

from ..core.context import Context
from ..core.soft_delete import KEPT_HERE, LIVE
from ..core.tx import Tx

HOUR_MS = 3_600_000


def uncompressed(tx: Tx, ctx: Context, since: str) -> tuple[list[str], str | None]:
    """Return some snapshots whose files here are old and plain, from the time ``since`` on.

    Behind them is the time to go on from, None at the end. Nothing when settings turn this off.
    """
    hours = ctx.config.retention.snapshot_gzip_hours
    if not hours:
        return [], None
    rows = tx.all(
        f"SELECT id, timestamp FROM snapshots WHERE compressed_at IS NULL AND {LIVE}"
        " AND timestamp < :old AND timestamp >= :since AND backed_up_at IS NOT NULL"
        f" AND {KEPT_HERE} ORDER BY timestamp, id LIMIT :limit",
        old=ctx.at(-hours * HOUR_MS),
        since=since,
        machine=ctx.machine,
        limit=ctx.batches.compressed,
    )
    is_full = len(rows) == ctx.batches.compressed
    return [row["id"] for row in rows], rows[-1]["timestamp"] if is_full else None


def note_compressed(tx: Tx, ctx: Context, snapshot_id: str, digest: str, size_bytes: int) -> bool:
    """Keep the checksum of a file's compressed bytes; False for what is gone meanwhile."""
    row = tx.one(
        "UPDATE snapshots SET compressed_at = :now, gzip_digest = :digest, gzip_bytes = :size"
        f" WHERE id = :id AND {LIVE} AND backed_up_at IS NOT NULL RETURNING id",
        now=ctx.now,
        digest=digest,
        size=size_bytes,
        id=snapshot_id,
    )
    return row is not None
