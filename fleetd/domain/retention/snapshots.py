"""Which snapshots are past their time; must not mark any.

Source: snapshot-lifecycle, Retention. The latest ``failed`` and the latest ``completed`` snapshot
of a run always stay; of the others the latest 50, for 14 days.
"""

from ..core.context import Context
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx
from .terms import Terms, is_older

# What a run can end in, and what its briefing may have to go back to.
TERMINAL = ("failed", "completed")


def doomed(tx: Tx, ctx: Context, terms: Terms, rows: list[Row]) -> list[Row]:
    """Return those snapshots of one run that have to go."""
    every = newest_first(tx, rows[0]["owner_id"])
    kept, latest = preserved(every), {row["id"] for row in every[: terms.keep]}
    return [
        row
        for row in rows
        if row["id"] not in kept
        and (row["id"] not in latest or is_older(ctx, row["timestamp"], terms.days))
    ]


def newest_first(tx: Tx, run_id: str) -> list[Row]:
    """Return what retention asks of a run's snapshots, the newest first."""
    return tx.all(
        f"SELECT id, status, size_bytes FROM snapshots WHERE run_id = :run AND {LIVE}"
        " ORDER BY seq DESC",
        run=run_id,
    )


def preserved(newest: list[Row]) -> set[str]:
    """Return the snapshots of a run that stay however many and old they are."""
    latest = (
        next((row["id"] for row in newest if row["status"] == status), None) for status in TERMINAL
    )
    return {snapshot_id for snapshot_id in latest if snapshot_id}
