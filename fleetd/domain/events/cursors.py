"""Cursors: how far each consumer has read each stream.

A cursor keeps the events of its stream that it has not come to, as long as it is used: moved, or
read. When one that was not used for as long as events are kept loses some, its row notes up to
which, and whoever comes back to it is told so until it moves.
"""

from ...protocol.errors import InvalidParams, InvalidState
from ...protocol.records import Record
from ...protocol.requests.event import CursorAdvance, CursorGap, CursorPosition
from ..core.context import Context
from ..core.event_log import epoch, position
from ..core.registry import method
from ..core.tx import Row, Tx
from ..retention.events_and_locks import WHOLE_LOG, unused_since

# A read is noted no oftener: nearly all of them then write nothing.
USED_MS = 3_600_000


class CursorLine(Record, frozen=True, kw_only=True):
    """A cursor as the doctor shows it; ``used`` says whether it keeps what it has not come to."""

    consumer: str
    stream: str
    position: int
    used_at: str
    used: bool
    missed_seq: int


class Cursors(Record, frozen=True, kw_only=True):
    """Cursors, those first that were not used for longest, and how many more there are."""

    cursors: list[CursorLine]
    more: int
    end: int


def look(tx: Tx, ctx: Context, consumer: str, stream: str) -> tuple[CursorPosition, bool]:
    """Return a consumer's position, 0 when it never read the stream.

    Also whether its use is to be noted, which looking at it does not do.
    """
    row = _row(tx, consumer, stream)
    if row is None:
        return CursorPosition(position=0, epoch=epoch(tx)), False
    gap = _gap(tx, stream, row)
    used_lately = ctx.at(-USED_MS) <= row["updated_at"] <= ctx.at(USED_MS)
    return CursorPosition(position=row["position"], epoch=epoch(tx), gap=gap), not used_lately


def note_used(tx: Tx, ctx: Context, consumer: str, stream: str) -> None:
    """Note that a cursor is in use now, where there is one."""
    tx.run(
        "UPDATE cursors SET updated_at = :now WHERE consumer = :consumer AND stream = :stream",
        now=ctx.now,
        consumer=consumer,
        stream=stream,
    )


def _row(tx: Tx, consumer: str, stream: str) -> Row | None:
    return tx.one(
        "SELECT * FROM cursors WHERE consumer = :consumer AND stream = :stream",
        consumer=consumer,
        stream=stream,
    )


def _gap(tx: Tx, stream: str, row: Row) -> CursorGap | None:
    """Return what went before a cursor came to it."""
    if row["missed_seq"] <= row["position"]:
        return None
    first = tx.value(
        f"SELECT min(seq) AS seq FROM events WHERE seq > :position{_of(stream)}",
        position=row["position"],
        **({} if stream == WHOLE_LOG else {"whose": stream.partition(":")[2], "stream": stream}),
    )
    return CursorGap(first_available=first or position(tx) + 1, missed_until=row["missed_seq"])


def _of(stream: str) -> str:
    """Return the condition on the events of a stream, by an index."""
    if stream == WHOLE_LOG:
        return ""
    mine = "mission_id" if stream.startswith("mission:") else "agent_id"
    return f" AND {mine} = :whose AND stream = :stream"


@method(CursorAdvance)
def cursor_advance(tx: Tx, ctx: Context, request: CursorAdvance) -> CursorPosition:
    """Move a cursor forward; never backwards, never past the end of the log.

    Where it stood stays what it is: a gap is told until the cursor moves on, the last time here.
    """
    row, end = _row(tx, request.consumer, request.stream), position(tx)
    before = row["position"] if row else 0
    if request.position < before:
        raise InvalidState(
            f"The cursor of {request.consumer} on {request.stream} stands at {before} and does "
            f"not go back to {request.position}.",
            hint="To read again, list events since an earlier position; the cursor may stay.",
            position=before,
        )
    if request.position > end:
        raise InvalidParams(
            f"position is {request.position}, but the log ends at {end}.",
            hint="Advance to the seq of an event that was read.",
            field="position",
            position=end,
        )
    gap = _gap(tx, request.stream, row) if row else None
    tx.run(
        "INSERT INTO cursors (consumer, stream, position, updated_at)"
        " VALUES (:consumer, :stream, :position, :now)"
        " ON CONFLICT (consumer, stream) DO UPDATE SET updated_at = :now, missed_seq ="
        " CASE WHEN cursors.position = :position THEN cursors.missed_seq ELSE 0 END,"
        " position = :position",
        consumer=request.consumer,
        stream=request.stream,
        position=request.position,
        now=ctx.now,
    )
    return CursorPosition(position=request.position, epoch=epoch(tx), gap=gap)


def least_used(tx: Tx, ctx: Context, most: int) -> Cursors:
    """Return the cursors that were not used for longest."""
    rows = tx.all(
        "SELECT * FROM cursors ORDER BY updated_at, consumer, stream LIMIT :most", most=most
    )
    number = tx.value("SELECT count(*) AS number FROM cursors")
    old = unused_since(ctx)
    return Cursors(
        cursors=[
            CursorLine(
                consumer=row["consumer"],
                stream=row["stream"],
                position=row["position"],
                used_at=row["updated_at"],
                used=row["updated_at"] >= old,
                missed_seq=row["missed_seq"] if row["missed_seq"] > row["position"] else 0,
            )
            for row in rows
        ],
        more=number - len(rows),
        end=position(tx),
    )
