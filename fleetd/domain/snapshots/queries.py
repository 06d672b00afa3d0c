"""Snapshots as they are asked for: one, the newest of a run, lists; must not change anything."""

from ...protocol.records import Record
from ...protocol.request import Query
from ...protocol.requests.snapshot import (
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotPage,
)
from ...protocol.snapshots import Snapshot, SnapshotSummary
from ..core.context import Context
from ..core.counters import tally
from ..core.registry import handler, method
from ..core.soft_delete import LIVE, find_live
from ..core.tx import Row, Tx
from .builder import newest_row
from .codec import from_row
from .runs import run_meant, run_row, session_of_run, without_snapshots

_SUMMARY = (
    "id, run_id, timestamp, source, status, step_id, step_ordinal, step_status, window_pressure,"
    " outcome_count, size_bytes, compressed_at"
)


class RunMeant(Record, frozen=True, kw_only=True):
    """The run that a request is about."""

    run_id: str


class RunFind(Query[RunMeant], frozen=True):
    """Ask which run a request for the newest snapshot is about; not on the wire."""

    wanted: SnapshotLatest


class RunAgent(Record, frozen=True, kw_only=True):
    """Whose run it is, None where nobody knows."""

    agent_id: str | None


class RunAgentGet(Query[RunAgent], frozen=True):
    """Ask whose run it is; not on the wire."""

    run_id: str


@handler
def agent_of_run(tx: Tx, ctx: Context, request: RunAgentGet) -> RunAgent:
    """Return the agent of a run: its session's, else the one that was recorded last."""
    found = session_of_run(tx, request.run_id) or run_row(tx, request.run_id)
    return RunAgent(agent_id=found["agent_id"] if found else None)


@handler
def find_run(tx: Tx, ctx: Context, request: RunFind) -> RunMeant:
    """Return the run that is meant, whether it has snapshots or not."""
    return RunMeant(run_id=run_meant(tx, ctx, request.wanted).run_id)


@handler
def get(tx: Tx, ctx: Context, request: SnapshotGet) -> Snapshot:
    """Return a snapshot from its row; raises NotFound, or Corrupt by its reason code."""
    return from_row(find_live(tx, "snapshot", request.snapshot_id))


@handler
def latest(tx: Tx, ctx: Context, request: SnapshotLatest) -> Snapshot:
    """Return the newest snapshot of a run from its row."""
    run_id = run_meant(tx, ctx, request).run_id
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
