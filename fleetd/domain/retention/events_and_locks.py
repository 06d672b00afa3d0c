"""Retention of the log: deletes events and ended locks that nobody needs, batch by batch.

An event stays while its mission is unfinished or has a checkpoint, and while a cursor in use on its
stream has not reached it. The newest event always stays: the log's end must not go back.

The walk goes by ``seq`` and ends at an event that is young enough. All later events are younger,
even if a clock that was set back says otherwise. Only an event from the future does not end the
walk, because a wrong clock wrote it. It stays until its time has come.
"""

from ...protocol.records import Record
from ..core.context import Context
from ..core.event_log import position, position_before
from ..core.history import KNOWN_FROM, keep_leases
from ..core.registry import frees_space
from ..core.soft_delete import LIVE
from ..core.sql import Batch
from ..core.tx import LogLine, Row, Tx

# A reader that follows the whole log keeps its cursor on this stream, for events of any stream.
WHOLE_LOG = "fleet"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
_UNNEEDED = (
    "e.seq > :since AND e.seq <= :until AND e.timestamp < :old"
    " AND e.seq < (SELECT max(seq) FROM events)"
    " AND NOT EXISTS (SELECT 1 FROM missions m WHERE m.id = e.mission_id"
    " AND m.status IN ('pending', 'in_progress'))"
    f" AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.mission_id = e.mission_id AND c.{LIVE})"
    " AND NOT EXISTS (SELECT 1 FROM cursors c WHERE c.stream = e.stream AND c.position < e.seq"
    " AND c.updated_at >= :old)"
)


class OldEvents(Record, frozen=True, kw_only=True):
    """A batch of the log: ``unneeded`` events after ``since`` and up to ``until``."""

    since: int
    until: int
    unneeded: int


def unused_since(ctx: Context) -> str:
    """Return the oldest use with which a cursor keeps events; events from before may be deleted."""
    return ctx.days_ago(ctx.config.retention.event_days)


def find_old(tx: Tx, ctx: Context, since: int) -> Batch[OldEvents, int]:
    """Return how far the next batch of the log is old, and how many of its events are unneeded."""
    old = unused_since(ctx)
    rows = tx.all(
        "SELECT seq, timestamp FROM events WHERE seq > :since ORDER BY seq LIMIT :limit",
        since=since,
        limit=ctx.batches.rows,
    )
    until, more = since, len(rows) == ctx.batches.rows
    for row in rows:
        if old <= row["timestamp"] <= ctx.now:
            more = False
            break
        until = row["seq"]
    unneeded = tx.value(
        f"SELECT count(*) FROM events e WHERE {_UNNEEDED}", since=since, until=until, old=old
    )
    return Batch(OldEvents(since=since, until=until, unneeded=unneeded), until if more else None)


@frees_space
def drop_old(tx: Tx, ctx: Context, since: int, until: int) -> int:
    """Remove the events of a batch that nobody needs now; return how many."""
    rows = tx.all(
        "DELETE FROM events WHERE seq IN"
        f" (SELECT e.seq FROM events e WHERE {_UNNEEDED}) RETURNING seq, stream",
        since=since,
        until=until,
        old=unused_since(ctx),
    )
    _note_missed(tx, rows)
    return len(rows)


def _note_missed(tx: Tx, dropped: list[Row]) -> None:
    """Note deleted events with the cursors that have not reached them."""
    newest: dict[str, int] = {}
    for row in dropped:
        for stream in (row["stream"], WHOLE_LOG):
            newest[stream] = max(newest.get(stream, 0), row["seq"])
    for stream, seq in newest.items():
        behind = "stream = :stream AND position < :seq"
        first = tx.all(
            f"SELECT consumer FROM cursors WHERE {behind} AND missed_seq <= position",
            stream=stream,
            seq=seq,
        )
        tx.run(
            f"UPDATE cursors SET missed_seq = :seq WHERE {behind} AND missed_seq < :seq",
            stream=stream,
            seq=seq,
        )
        for row in first:
            text = f"Events of {stream} were deleted before {row['consumer']} read them"
            tx.after_commit(LogLine("WARNING", text))


@frees_space
def drop_old_history(tx: Tx, ctx: Context) -> int:
    """Remove the history of agents, locks and edits from before the oldest events that are kept.

    The state of each record at that position stays. Moments before it are unknown from then on.
    Returns how many rows of a batch were removed; 0 when there are no more.
    """
    old = unused_since(ctx)
    cut = position_before(tx, old, position(tx))
    oldest = tx.value("SELECT seq FROM events WHERE seq > :cut ORDER BY seq LIMIT 1", cut=cut)
    if oldest:
        cut = oldest - 1  # the events in between are gone
    if cut == 0:
        return 0
    # Nothing is known of moments between the last deleted event and the first one that is kept.
    known_from = oldest or cut
    keep_leases(tx, cut, old)
    gone = len(
        tx.all(
            "DELETE FROM edit_history WHERE (agent_id, path, seq) IN (SELECT agent_id, path, seq"
            " FROM edit_history WHERE at < :old LIMIT :most) RETURNING seq",
            old=ctx.at(-ctx.config.retention.event_days * DAY_MS - HOUR_MS),
            most=ctx.batches.rows,
        )
    )
    for noun in ("agent", "lock"):
        key = f"{noun}_id"
        gone += len(
            tx.all(
                f"DELETE FROM {noun}_history WHERE ({key}, seq) IN (SELECT h.{key}, h.seq"
                f" FROM {noun}_history h WHERE h.seq < :cut AND EXISTS (SELECT 1"
                f" FROM {noun}_history x WHERE x.{key} = h.{key} AND x.seq > h.seq"
                " AND x.seq <= :cut) LIMIT :most) RETURNING seq",
                cut=cut,
                most=ctx.batches.rows,
            )
        )
    if gone:
        known = int(tx.value("SELECT value FROM store_meta WHERE key = :key", key=KNOWN_FROM) or 0)
        tx.run(
            "INSERT INTO store_meta (key, value) VALUES (:key, :known_from)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            key=KNOWN_FROM,
            known_from=str(max(known_from, known)),
        )
    return gone


@frees_space
def drop_old_locks(tx: Tx, ctx: Context) -> int:
    """Remove locks that ended before the oldest events that are kept, the oldest first.

    Returns how many were removed; 0 when there are no more. The log keeps for as long who locked
    what. The newest token is stored elsewhere.
    """
    rows = tx.all(
        "DELETE FROM locks WHERE id IN (SELECT id FROM locks WHERE status <> 'active'"
        " AND released_at < :old ORDER BY released_at LIMIT :most) RETURNING id",
        old=unused_since(ctx),
        most=ctx.batches.rows,
    )
    return len(rows)
