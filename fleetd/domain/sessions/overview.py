"""What came from hooks so far, by harness; must not change anything."""

from ...protocol.records import Record
from ...protocol.request import Query
from ..core.context import Context
from ..core.counters import by_part
from ..core.registry import handler
from ..core.tx import Row, Tx


class HookCounts(Record, frozen=True, kw_only=True):
    """The rows of what was counted, and how many sessions each harness has had."""

    rows: list[Row]
    sessions: dict[str, int]


class HookCountsGet(Query[HookCounts], frozen=True):
    """Return what was counted; not on the wire."""


@handler
def counted(tx: Tx, ctx: Context, request: HookCountsGet) -> HookCounts:
    """Return the counts of every harness that was heard of."""
    return HookCounts(
        rows=tx.all("SELECT * FROM hook_counts ORDER BY harness"),
        sessions=by_part(tx, "sessions"),
    )
