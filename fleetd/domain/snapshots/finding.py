"""Snapshots as they are asked for: one, the newest of a run, lists; must not change anything."""

from ...wire.errors import NotFound
from ...wire.requests.snapshot import SnapshotGet, SnapshotLatest, SnapshotList, SnapshotPage
from ...wire.snapshots import Snapshot, SnapshotSummary
from ..bounds import LIVE
from ..context import Context
from ..ids import find, missing
from ..registry import handler
from ..tx import Row, Tx
from .document import from_row
from .gathering import newest_row
from .runs import run_meant, run_row, session_of_run, without_snapshots

_SUMMARY = (
    "id, run_id, timestamp, source, status, step_id, step_ordinal, step_status, window_pressure,"
    " outcome_count, size_bytes, compressed_at"
)


def find_row(tx: Tx, snapshot_id: str) -> Row:
    """Return the row of a snapshot that is not deleted; raises NotFound.

    ``deleted`` in the error says that its file, while it is still there, must not be used either.
    """
    row = find(tx, "snapshot", snapshot_id)
    if row["deleted_at"] is not None:
        gone = missing("snapshot", snapshot_id)
        raise NotFound(gone.message, hint=gone.hint, **gone.values, deleted=True)
    return row


@handler
def get(tx: Tx, request: SnapshotGet, ctx: Context) -> Snapshot:
    """Return a snapshot from its row; raises NotFound, or Corrupt by its reason code."""
    return from_row(find_row(tx, request.snapshot_id))


@handler
def latest(tx: Tx, request: SnapshotLatest, ctx: Context) -> Snapshot:
    """Return the newest snapshot of a run from its row."""
    run_id = run_meant(tx, request)
    row = newest_row(tx, run_id)
    if row is None:
        raise without_snapshots(run_id)
    return from_row(row)


@handler
def list_snapshots(tx: Tx, request: SnapshotList, ctx: Context) -> SnapshotPage:
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
