"""How far each consumer has read each stream; must not read the events themselves.

A cursor keeps the events of its stream that it has not come to, as long as it is used: moved, or
read. When one that was not used for as long as events are kept loses some, its row notes up to
which, and whoever comes back to it is told so until it moves.
"""

from ...protocol.errors import InvalidParams, InvalidState
from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.requests.event import CursorAdvance, CursorGap, CursorPosition
from ..core.context import Context
from ..core.event_log import epoch, position
from ..core.registry import handler, method
from ..core.tx import Row, Tx
from ..retention.events_and_locks import WHOLE_LOG, unused_since
from ..system.startup import Done

# A read is noted no oftener: nearly all of them then write nothing.
USED_MS = 3_600_000


class Looked(Record, frozen=True, kw_only=True):
    """A cursor, and whether its use is to be noted."""

    found: CursorPosition
    to_note: bool


class CursorLook(Query[Looked], frozen=True):
    """Look at a cursor without using it."""

    consumer: str
    stream: str


class CursorUsed(Mutation[Done], frozen=True):
    """Note that somebody uses a cursor, where there is one."""

    consumer: str
    stream: str


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


class CursorsGet(Query[Cursors], frozen=True):
    """Ask for the cursors that were not used for longest."""

    most: int


@handler
def look(tx: Tx, ctx: Context, request: CursorLook) -> Looked:
    """Return a consumer's position, 0 when it never read the stream."""
    row = _row(tx, request.consumer, request.stream)
    if row is None:
        return Looked(found=CursorPosition(position=0, epoch=epoch(tx)), to_note=False)
    return Looked(
        found=CursorPosition(
            position=row["position"], epoch=epoch(tx), gap=_gap(tx, request.stream, row)
        ),
        to_note=not ctx.at(-USED_MS) <= row["updated_at"] <= ctx.at(USED_MS),
    )


@handler
def cursor_used(tx: Tx, ctx: Context, request: CursorUsed) -> Done:
    """Note that a cursor is in use now."""
    tx.run(
        "UPDATE cursors SET updated_at = :now WHERE consumer = :consumer AND stream = :stream",
        now=ctx.now,
        consumer=request.consumer,
        stream=request.stream,
    )
    return Done(done=True)


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


@handler
def cursors(tx: Tx, ctx: Context, request: CursorsGet) -> Cursors:
    """Return the cursors that were not used for longest."""
    rows = tx.all(
        "SELECT * FROM cursors ORDER BY updated_at, consumer, stream LIMIT :most",
        most=request.most,
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
