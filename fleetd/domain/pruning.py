"""Which checkpoints are past their time; marks them, the engine takes files and rows away.

Source: behaviour, Pruning. Never: the newest ``keep`` of a mission, the target of ``latest.json``
of an unfinished mission, an unused checkpoint of a mission that waits for recovery.
"""

from ..wire.events import CheckpointsPruned
from ..wire.requests.checkpoint import CheckpointPrune, Pruned, PrunedCheckpoint
from ..wire.types import OPEN_MISSION
from .activity import detect
from .bounds import COMPLETED, LIVE, mark_deleted
from .context import Context
from .events import emit
from .ids import find
from .registry import handler
from .tx import LogLine, Row, Tx

_DAY_MS = 86_400_000


@handler
def prune(tx: Tx, request: CheckpointPrune, ctx: Context) -> Pruned:
    """Delete what is past its retention, or only say what would be."""
    retention = ctx.config.retention
    days = retention.days if request.older_than_days is None else request.older_than_days
    keep = retention.keep if request.keep_per_mission is None else request.keep_per_mission
    doomed = [
        row
        for mission in _missions(tx, request.mission_id)
        for row in _doomed(tx, ctx, mission, days, keep)
    ]
    doomed.sort(key=lambda row: row["seq"])
    freed = sum(row["size_bytes"] for row in doomed)
    if doomed and not request.dry_run:
        for row in doomed:
            mark_deleted(tx, ctx, row["id"])
        emit(tx, ctx, CheckpointsPruned(deleted=len(doomed), freed_bytes=freed))
        tx.after_commit(LogLine("INFO", f"Pruned {len(doomed)} checkpoints, {freed} bytes"))
    return Pruned(
        deleted=len(doomed),
        freed_bytes=freed,
        details=[
            PrunedCheckpoint(
                id=row["id"],
                mission_id=row["mission_id"],
                timestamp=row["timestamp"],
                trigger=row["trigger"],
                size_bytes=row["size_bytes"],
            )
            for row in doomed
        ],
    )


def _missions(tx: Tx, mission_id: str | None) -> list[Row]:
    if mission_id:
        return [find(tx, "mission", mission_id)]
    return tx.all("SELECT * FROM missions ORDER BY created_at, id")


def _doomed(tx: Tx, ctx: Context, mission: Row, days: int, keep: int) -> list[Row]:
    """Return a mission's checkpoints that have to go, newest first."""
    rows = tx.all(
        "SELECT id, mission_id, timestamp, trigger, trigger_details, seq, undo, consumed_at,"
        " size_bytes"
        f" FROM checkpoints WHERE mission_id = :id AND {LIVE}"
        " ORDER BY seq DESC",
        id=mission["id"],
    )
    if mission["status"] not in OPEN_MISSION:
        return _doomed_of_finished(ctx, rows)
    oldest = ctx.at(-days * _DAY_MS)
    waits = bool(detect(tx, ctx, mission["id"]).candidates)
    latest = next((row["id"] for row in rows if not row["undo"]), None)
    return [
        row
        for index, row in enumerate(rows)
        if index >= keep
        and row["timestamp"] <= oldest
        and row["id"] != latest
        and not (waits and row["consumed_at"] is None and not row["undo"])
    ]


def _doomed_of_finished(ctx: Context, rows: list[Row]) -> list[Row]:
    """Of a finished mission only the final checkpoint stays, and that for a limited time."""
    real = [row for row in rows if not row["undo"]]
    closing = (row for row in real if row["trigger_details"] == COMPLETED)
    final = next(closing, real[0] if real else None)
    oldest = ctx.at(-ctx.config.retention.completed_days * _DAY_MS)
    return [row for row in rows if row is not final or row["timestamp"] < oldest]
