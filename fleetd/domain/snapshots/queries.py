"""Snapshot queries: the newest of a run, whose run it is, lists."""

from ...protocol.requests.snapshot import (
    SnapshotList,
    SnapshotPage,
)
from ...protocol.snapshots import Snapshot, SnapshotSummary
from ..core.context import Context
from ..core.counters import tally
from ..core.registry import method
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx
from .builder import newest_row
from .codec import from_row
from .runs import run_row, session_of_run, without_snapshots

_SUMMARY = (
    "id, run_id, timestamp, source, status, step_id, step_ordinal, step_status, window_pressure,"
    " outcome_count, size_bytes, compressed_at"
)


def agent_of_run(tx: Tx, ctx: Context, run_id: str) -> str | None:
    """Return the agent of a run: its session's, else the one that was recorded last."""
    found = session_of_run(tx, run_id) or run_row(tx, run_id)
    return found["agent_id"] if found else None


def latest(tx: Tx, ctx: Context, run_id: str) -> Snapshot:
    """Return the newest snapshot of a run from its row."""
    row = newest_row(tx, run_id)
    if row is None:
        raise without_snapshots(run_id)
    return from_row(row)


@method(SnapshotList)
def list_snapshots(tx: Tx, ctx: Context, request: SnapshotList) -> SnapshotPage:
    """Return summaries, newest first, without touching the documents."""
    where, params = [LIVE], {}
    if request.run_id is not None:
        if not (run_row(tx, request.run_id) or session_of_run(tx, request.run_id)):
            raise without_snapshots(request.run_id)
        where.append("run_id = :run")
        params["run"] = request.run_id
    clause = " AND ".join(where)
    rows = tx.all(
        f"SELECT {_SUMMARY} FROM snapshots WHERE {clause} ORDER BY seq DESC LIMIT :limit",
        **params,
        limit=request.limit,
    )
    if request.run_id is None:
        total = tally(tx, "snapshots")
    else:
        total = tx.value(f"SELECT count(*) FROM snapshots WHERE {clause}", **params)
    return SnapshotPage(snapshots=[_summary_of(row) for row in rows], total=total)


def _summary_of(row: Row) -> SnapshotSummary:
    return SnapshotSummary(
        snapshot_id=row["id"],
        run_id=row["run_id"],
        created_at=row["timestamp"],
        source=row["source"],
        status=row["status"],
        step_id=row["step_id"],
        step_ordinal=row["step_ordinal"],
        step_status=row["step_status"],
        window_pressure=row["window_pressure"],
        outcome_count=row["outcome_count"],
        size_bytes=row["size_bytes"],
        compressed_at=row["compressed_at"],
    )
