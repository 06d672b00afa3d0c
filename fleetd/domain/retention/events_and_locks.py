"""Which events and locks nobody needs any more, found and removed piece by piece.

Source: behaviour, Pruning. An event stays while its mission is unfinished or has a checkpoint, and
while a cursor on its stream that is used has not come to it; the newest event always stays, since
the log's end must not go back.

The log is walked by ``seq``, and an event that is young enough ends the walk, since whatever comes
after it is younger, even if a clock that was set back says otherwise. Only an event from the
future does not end it: a clock that was wrong wrote that one. It stays until its time has come.
"""

from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ..core.context import Context
from ..core.registry import handler
from ..core.soft_delete import LIVE
from ..core.tx import Tx
from ..events.cursors import note_missed, unused_since

# How many events one piece of work looks at.
AT_ONCE = 250


class OldEvents(Record, frozen=True, kw_only=True):
    """A piece of the log: ``unneeded`` events after ``since`` and up to ``until``.

    ``more`` says whether the log goes on being old behind it.
    """

    since: int
    until: int
    unneeded: int
    more: bool


class OldEventsFind(Query[OldEvents], frozen=True):
    """Look at the next piece of the log."""

    since: int


class Dropped(Record, frozen=True, kw_only=True):
    """How many events went."""

    dropped: int


class OldEventsDrop(Mutation[Dropped], frozen=True):
    """Remove what nobody needs from a piece of the log, as it is needed now."""

    since: int
    until: int


class OldLocksDrop(Mutation[Dropped], frozen=True):
    """Remove some locks that ended as long ago as the oldest events; none when there are no more.

    What was locked by whom is told by the log for as long. The newest token stands elsewhere.
    """


_UNNEEDED = (
    "e.seq > :since AND e.seq <= :until AND e.timestamp < :old"
    " AND e.seq < (SELECT max(seq) FROM events)"
    " AND NOT EXISTS (SELECT 1 FROM missions m WHERE m.id = e.mission_id"
    " AND m.status IN ('pending', 'in_progress'))"
    f" AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.mission_id = e.mission_id AND c.{LIVE})"
    " AND NOT EXISTS (SELECT 1 FROM cursors c WHERE c.stream = e.stream AND c.position < e.seq"
    " AND c.updated_at >= :old)"
)


@handler
def find_old(tx: Tx, ctx: Context, request: OldEventsFind) -> OldEvents:
    """Return how far the next piece is old, and how much of it nobody needs."""
    old = unused_since(ctx)
    rows = tx.all(
        "SELECT seq, timestamp FROM events WHERE seq > :since ORDER BY seq LIMIT :limit",
        since=request.since,
        limit=AT_ONCE,
    )
    until, more = request.since, len(rows) == AT_ONCE
    for row in rows:
        if old <= row["timestamp"] <= ctx.now:
            more = False
            break
        until = row["seq"]
    unneeded = tx.value(
        f"SELECT count(*) FROM events e WHERE {_UNNEEDED}",
        since=request.since,
        until=until,
        old=old,
    )
    return OldEvents(since=request.since, until=until, unneeded=unneeded, more=more)


@handler
def drop_old(tx: Tx, ctx: Context, request: OldEventsDrop) -> Dropped:
    """Remove the events of a piece that nobody needs now."""
    rows = tx.all(
        "DELETE FROM events WHERE seq IN"
        f" (SELECT e.seq FROM events e WHERE {_UNNEEDED}) RETURNING seq, stream",
        since=request.since,
        until=request.until,
        old=unused_since(ctx),
    )
    note_missed(tx, ctx, rows)
    return Dropped(dropped=len(rows))


@handler
def drop_old_locks(tx: Tx, ctx: Context, request: OldLocksDrop) -> Dropped:
    """Remove locks that ended before the oldest events that are kept, the oldest first."""
    rows = tx.all(
        "DELETE FROM locks WHERE id IN (SELECT id FROM locks WHERE status <> 'active'"
        " AND released_at < :old ORDER BY released_at LIMIT :most) RETURNING id",
        old=unused_since(ctx),
        most=AT_ONCE,
    )
    return Dropped(dropped=len(rows))
