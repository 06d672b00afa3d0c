"""Runs of which nothing is left and that nobody goes on with; for the daily work.

Nothing here is on the wire. Must not take away a snapshot.
"""

from ...protocol.records import Record
from ...protocol.request import Mutation
from ..core.context import Context
from ..core.registry import handler
from ..core.sql import LIVING
from ..core.tx import Tx

AT_ONCE = 250


class SpentRuns(Record, frozen=True, kw_only=True):
    """Runs whose rows went."""

    ids: list[str]


class SpentRunsDrop(Mutation[SpentRuns], frozen=True):
    """Drop the rows of some runs; there are no more when none is returned."""


@handler
def drop_spent(tx: Tx, ctx: Context, request: SpentRunsDrop) -> SpentRuns:
    """Drop runs without snapshots, unless their agent lives: its run may be recorded again."""
    rows = tx.all(
        "DELETE FROM runs WHERE id IN (SELECT r.id FROM runs r"
        " LEFT JOIN agents a ON a.id = r.agent_id"
        f" WHERE (a.id IS NULL OR a.status NOT IN {LIVING})"
        " AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = r.id)"
        " ORDER BY r.id LIMIT :most) RETURNING id",
        most=AT_ONCE,
    )
    return SpentRuns(ids=sorted(row["id"] for row in rows))
