"""What keeps the snapshots of a run few; must not know their age.

Source: snapshot-lifecycle, Retention. The latest failed and the latest completed one of a run stay,
beside those that are kept for being the latest.
"""

from ...protocol.events import SnapshotsPruned
from ..checkpoints.limits import DROPPED_AT_ONCE
from ..core.context import Context
from ..core.event_log import emit
from ..core.soft_delete import mark_deleted
from ..core.tx import Tx
from .snapshots import newest_first, preserved


def make_room(tx: Tx, ctx: Context, run_id: str) -> None:
    """Keep a run under its number of snapshots; the oldest go first."""
    rows = newest_first(tx, run_id)
    kept = preserved(rows)
    beyond = rows[ctx.config.retention.snapshots_per_run :]
    # A number that was lowered is reached step by step: a snapshot must not wait for it.
    going = [row for row in reversed(beyond) if row["id"] not in kept][:DROPPED_AT_ONCE]
    if not going:
        return
    for row in going:
        mark_deleted(tx, ctx, "snapshot", row["id"])
    freed = sum(row["size_bytes"] for row in going)
    emit(tx, ctx, SnapshotsPruned(deleted=len(going), freed_bytes=freed))
