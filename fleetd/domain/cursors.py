"""How far each consumer has read each stream; must not read the events themselves."""

from ..wire.errors import InvalidParams, InvalidState
from ..wire.requests.event import CursorAdvance, CursorGet, CursorPosition
from .context import Context
from .events import epoch, position
from .registry import handler
from .tx import Tx


@handler
def cursor_get(tx: Tx, request: CursorGet, ctx: Context) -> CursorPosition:
    """Return a consumer's position, 0 when it never read the stream."""
    return CursorPosition(position=_cursor(tx, request.consumer, request.stream), epoch=epoch(tx))


def _cursor(tx: Tx, consumer: str, stream: str) -> int:
    value = tx.value(
        "SELECT position FROM cursors WHERE consumer = :consumer AND stream = :stream",
        consumer=consumer,
        stream=stream,
    )
    return value or 0


@handler
def cursor_advance(tx: Tx, request: CursorAdvance, ctx: Context) -> CursorPosition:
    """Move a cursor forward; never backwards, never past the end of the log."""
    before, end = _cursor(tx, request.consumer, request.stream), position(tx)
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
    tx.run(
        "INSERT INTO cursors (consumer, stream, position, updated_at)"
        " VALUES (:consumer, :stream, :position, :now)"
        " ON CONFLICT (consumer, stream) DO UPDATE SET position = :position, updated_at = :now",
        consumer=request.consumer,
        stream=request.stream,
        position=request.position,
        now=ctx.now,
    )
    return CursorPosition(position=request.position, epoch=epoch(tx))
