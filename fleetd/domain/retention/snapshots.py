"""Retention of snapshots: which of a run are expired, or too many, and which runs are empty.

Source: snapshot-lifecycle, Retention. The latest ``failed`` and the latest ``completed`` snapshot
of a run always stay; of the others the latest 50, for 14 days.
"""

from ...protocol.events import SnapshotsPruned
from ..core.context import Context
from ..core.event_log import emit
from ..core.registry import frees_space
from ..core.soft_delete import LIVE, mark_deleted
from ..core.sql import LIVING
from ..core.tx import Row, Tx
from .policy import RetentionPolicy, is_older

# What a run can end in, and what its recovery context may have to go back to.
TERMINAL = ("failed", "completed")


def expired(tx: Tx, ctx: Context, policy: RetentionPolicy, rows: list[Row]) -> list[Row]:
    """Return those snapshots of one run that have to go."""
    every = _newest_first(tx, rows[0]["owner_id"])
    kept, latest = _preserved(every), {row["id"] for row in every[: policy.keep]}
    return [
        row
        for row in rows
        if row["id"] not in kept
        and (row["id"] not in latest or is_older(ctx, row["timestamp"], policy.days))
    ]


def drop_surplus(tx: Tx, ctx: Context, run_id: str) -> None:
    """Keep a run under its number of snapshots, whatever their age; the oldest go first."""
    rows = _newest_first(tx, run_id)
    kept = _preserved(rows)
    beyond = rows[ctx.config.retention.snapshots_per_run :]
    # A number that was lowered is reached step by step: a snapshot must not wait for it.
    going = [row for row in reversed(beyond) if row["id"] not in kept][: ctx.batches.surplus]
    if not going:
        return
    for row in going:
        mark_deleted(tx, ctx, "snapshot", row["id"])
    freed = sum(row["size_bytes"] for row in going)
    emit(tx, ctx, SnapshotsPruned(deleted=len(going), freed_bytes=freed))


def _newest_first(tx: Tx, run_id: str) -> list[Row]:
    """Return what retention asks of a run's snapshots, the newest first."""
    return tx.all(
        f"SELECT id, status, size_bytes FROM snapshots WHERE run_id = :run AND {LIVE}"
        " ORDER BY seq DESC",
        run=run_id,
    )


def _preserved(newest: list[Row]) -> set[str]:
    """Return the snapshots of a run that stay however many and old they are."""
    latest = (
        next((row["id"] for row in newest if row["status"] == status), None) for status in TERMINAL
    )
    return {snapshot_id for snapshot_id in latest if snapshot_id}


@frees_space
def drop_empty_runs(tx: Tx, ctx: Context) -> list[str]:
    """Drop some runs without snapshots, and return them; none when there are no more.

    One whose agent lives stays: it may be recorded again.
    """
    rows = tx.all(
        "DELETE FROM runs WHERE id IN (SELECT r.id FROM runs r"
        " LEFT JOIN agents a ON a.id = r.agent_id"
        f" WHERE (a.id IS NULL OR a.status NOT IN {LIVING})"
        " AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = r.id)"
        " ORDER BY r.id LIMIT :most) RETURNING id",
        most=ctx.batches.rows,
    )
    return sorted(row["id"] for row in rows)
