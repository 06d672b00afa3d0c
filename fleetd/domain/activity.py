"""Which missions have fallen silent; must not act on it."""

from ..wire.model import RecoveryCandidate
from ..wire.requests.agent import Detection
from ..wire.requests.recovery import RecoveryDetect
from ..wire.times import to_ms
from .checkpoints import latest_row
from .context import Context
from .ids import find
from .registry import handler
from .tx import Row, Tx


def detect(
    tx: Tx, ctx: Context, mission_id: str | None = None, threshold_ms: int | None = None
) -> Detection:
    """Find missions in progress that are silent for longer than the threshold, newest first.

    Exactly at the threshold a mission is not silent yet. Recovery is needed when one of them has
    a checkpoint.
    """
    limit = ctx.config.detection.threshold_ms if threshold_ms is None else threshold_ms
    rows = tx.all(
        "SELECT * FROM missions WHERE status = 'in_progress'"
        " AND coalesce(last_activity_at, started_at) < :before"
        " ORDER BY coalesce(last_activity_at, started_at) DESC",
        before=ctx.at(-limit),
    )
    found = [_candidate(tx, ctx, row) for row in rows if mission_id in (None, row["id"])]
    return Detection(needed=any(c.checkpoint_id for c in found), candidates=found)


def _candidate(tx: Tx, ctx: Context, row: Row) -> RecoveryCandidate:
    last = row["last_activity_at"] or row["started_at"]
    checkpoint = latest_row(tx, row["id"])
    return RecoveryCandidate(
        mission_id=row["id"],
        mission_title=row["title"],
        last_activity_at=last,
        inactivity_duration_ms=ctx.now_ms - to_ms(last),
        checkpoint_id=checkpoint["id"] if checkpoint else None,
        checkpoint_progress=checkpoint["progress_percent"] if checkpoint else None,
        checkpoint_timestamp=checkpoint["timestamp"] if checkpoint else None,
    )


@handler
def recovery_detect(tx: Tx, request: RecoveryDetect, ctx: Context) -> Detection:
    """Answer which missions wait for recovery."""
    mission_id = find(tx, "mission", request.mission_id)["id"] if request.mission_id else None
    return detect(tx, ctx, mission_id, request.threshold_ms)
