"""Which history files are old enough to be compressed, and that they are; must not touch files.

Source: snapshot-lifecycle, Compression policy. Nothing here is on the wire.
"""

from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ..core.context import Context
from ..core.registry import handler
from ..core.soft_delete import LIVE
from ..core.tx import Tx
from ..system.startup import Done

HOUR_MS = 3_600_000
AT_ONCE = 50


class Plain(Record, frozen=True, kw_only=True):
    """Snapshots whose file is to be compressed, oldest first, and behind whom to look further."""

    ids: list[str]
    until: str | None


class PlainFind(Query[Plain], frozen=True):
    """Find some history files here that are old and plain; ``since`` is their time."""

    since: str


class Compressed(Mutation[Done], frozen=True, kw_only=True):
    """Note that a history file lies there compressed, and the checksum of its bytes."""

    snapshot_id: str
    digest: str
    size_bytes: int


@handler
def find_plain(tx: Tx, ctx: Context, request: PlainFind) -> Plain:
    """Return the next snapshots to compress; nothing when the settings turn that off."""
    hours = ctx.config.retention.snapshot_gzip_hours
    if not hours:
        return Plain(ids=[], until=None)
    rows = tx.all(
        f"SELECT id, timestamp FROM snapshots WHERE compressed_at IS NULL AND {LIVE}"
        " AND timestamp < :old AND timestamp >= :since AND backed_up_at IS NOT NULL"
        " AND machine = :machine ORDER BY timestamp, id LIMIT :limit",
        old=ctx.at(-hours * HOUR_MS),
        since=request.since,
        machine=ctx.machine,
        limit=AT_ONCE,
    )
    return Plain(
        ids=[row["id"] for row in rows],
        until=rows[-1]["timestamp"] if len(rows) == AT_ONCE else None,
    )


@handler
def compressed(tx: Tx, ctx: Context, request: Compressed) -> Done:
    """Keep the checksum of the compressed form beside that of the plain one."""
    row = tx.one(
        "UPDATE snapshots SET compressed_at = :now, gzip_digest = :digest, gzip_bytes = :size"
        f" WHERE id = :id AND {LIVE} AND backed_up_at IS NOT NULL RETURNING id",
        now=ctx.now,
        digest=request.digest,
        size=request.size_bytes,
        id=request.snapshot_id,
    )
    return Done(done=row is not None)
