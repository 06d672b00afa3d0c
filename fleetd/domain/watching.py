"""What has come due by itself, and when to look again; must not act on it.

The longest wait is the silence threshold: nothing that happens after a look can come due sooner.
"""

from ..wire.base import Query
from ..wire.model import Record
from .activity import silent_rows
from .context import Context
from .losing import UNHEARD_MS
from .registry import handler
from .turns import LONGEST_CALL_MS
from .tx import Tx


class Due(Record, frozen=True, kw_only=True):
    """Ids of what has come due, and the ms until the next can."""

    missions: list[str]
    recoveries: list[str]
    agents: list[str]
    look_again_ms: int


class DueGet(Query[Due], frozen=True):
    """Ask what has come due; not on the wire.

    ``hearing_since_ms``, on the awake clock, is since when agents could make themselves heard:
    while no daemon ran nobody could.
    """

    hearing_since_ms: int


@handler
def due(tx: Tx, request: DueGet, ctx: Context) -> Due:
    """Return missions fallen silent, briefed agents and heartbeats that did not come."""
    limit = ctx.config.detection.threshold_ms
    silent = silent_rows(tx, ctx, limit, " AND m.silent = 0")
    doubtful = tx.all(
        "SELECT id FROM recoveries WHERE state <> 'resumed' AND state = 'briefed'"
        " AND briefed_awake_ms < :before",
        before=ctx.awake_ms - limit,
    )
    unheard = tx.all(
        "SELECT id FROM agents WHERE status = 'active' AND pid IS NULL AND seen_awake_ms < :before"
        " AND :hearing < :before",
        before=ctx.awake_ms - UNHEARD_MS,
        hearing=request.hearing_since_ms,
    )
    return Due(
        missions=[row["id"] for row in silent],
        recoveries=[row["id"] for row in doubtful],
        agents=[row["id"] for row in unheard],
        look_again_ms=_look_again(tx, ctx, request.hearing_since_ms),
    )


def _look_again(tx: Tx, ctx: Context, hearing_since_ms: int) -> int:
    """Return in how many ms the next thing can come due; it is due one past its limit."""
    limit = ctx.config.detection.threshold_ms
    active = tx.value(
        "SELECT min(active_awake_ms) FROM missions WHERE status = 'in_progress' AND silent = 0"
        " AND active_awake_ms >= :before",
        before=ctx.awake_ms - limit,
    )
    called = tx.value(
        "SELECT min(started_awake_ms) FROM tool_calls WHERE started_awake_ms >= :forgotten",
        forgotten=ctx.awake_ms - LONGEST_CALL_MS,
    )
    briefed = tx.value(
        "SELECT min(briefed_awake_ms) FROM recoveries WHERE state <> 'resumed'"
        " AND state = 'briefed' AND briefed_awake_ms >= :before",
        before=ctx.awake_ms - limit,
    )
    seen = tx.value("SELECT min(seen_awake_ms) FROM agents WHERE status = 'active' AND pid IS NULL")
    heard = None if seen is None else max(seen, hearing_since_ms)
    ends: list[int] = [
        since + length
        for since, length in (
            (active, limit),
            (called, LONGEST_CALL_MS),
            (briefed, limit),
            (heard, UNHEARD_MS),
        )
        if since is not None
    ]
    return max(1, min([limit, *(end + 1 - ctx.awake_ms for end in ends)]))
