"""What happens when a mission falls silent: once per silence, whoever notices it first.

Source: behaviour, Detection.
"""

from ...protocol.durations import duration
from ...protocol.errors import Corrupt, Incompatible
from ...protocol.events import ContextCompacted
from ...protocol.request import Mutation
from ..checkpoints import checkpoints
from ..checkpoints.codec import from_row
from ..core.context import Context
from ..core.event_log import emit
from ..core.registry import handler
from ..core.tx import LogLine, Row, Tx
from ..recovery.state import make_pending
from ..system.startup import Done
from .silence import last_activity, silence_ms, silent_rows


class EpisodeBegin(Mutation[Done], frozen=True):
    """Note that a mission has fallen silent, if it has; not on the wire."""

    mission_id: str


@handler
def begin(tx: Tx, ctx: Context, request: EpisodeBegin) -> Done:
    """Say once that a mission fell silent, keep its state, and let it wait for recovery."""
    limit = ctx.config.detection.threshold_ms
    rows = silent_rows(tx, ctx, limit, " AND m.silent = 0 AND m.id = :id", id=request.mission_id)
    for row in rows:
        _begin(tx, ctx, row)
    return Done(done=bool(rows))


def _begin(tx: Tx, ctx: Context, mission: Row) -> None:
    tx.run("UPDATE missions SET silent = 1 WHERE id = :id", id=mission["id"])
    fresh = tx.one(
        "INSERT INTO episodes (mission_id, last_seq, detected_at) VALUES (:id, :seq, :now)"
        " ON CONFLICT (mission_id, last_seq) DO NOTHING RETURNING mission_id",
        id=mission["id"],
        seq=mission["last_activity_seq"],
        now=ctx.now,
    )
    if fresh is None:
        return
    checkpoint_id = _kept_state(tx, ctx, mission)
    payload = ContextCompacted(
        mission_id=mission["id"],
        last_activity_at=last_activity(mission),
        inactivity_duration_ms=silence_ms(ctx, mission),
        checkpoint_available=True,
        checkpoint_id=checkpoint_id,
    )
    emit(tx, ctx, payload, mission_id=mission["id"])
    make_pending(tx, ctx, mission["id"], checkpoint_id)
    silent = duration(silence_ms(ctx, mission))
    text = f"Mission {mission['id']} ({mission['title']}) has been silent for {silent}"
    tx.after_commit(LogLine("WARNING", f"{text}; it can be recovered from {checkpoint_id}"))


def _kept_state(tx: Tx, ctx: Context, mission: Row) -> str:
    """Return the newest checkpoint; one is taken unless that is good and nothing was done since.

    The state is still here: one that cannot be read is no reason to go back to the one before.
    """
    newest = checkpoints.latest_row(tx, mission["id"])
    if newest and not checkpoints.outdated(newest, mission) and _is_good(newest):
        return str(newest["id"])
    reason = checkpoints.Reason(
        trigger="compaction", details="Mission fell silent", created_by="fleetd"
    )
    return checkpoints.take(tx, ctx, mission["id"], reason).id


def _is_good(row: Row) -> bool:
    try:
        from_row(row)
    except (Corrupt, Incompatible):
        return False
    return True
