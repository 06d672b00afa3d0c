"""Run snapshots with their files: recording them, and reading them from both copies."""

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.snapshots import snapshots as rules
from ...domain.snapshots.runs import requested_run
from ...protocol.errors import AtomicWriteFailed
from ...protocol.requests.snapshot import SnapshotGet, SnapshotLatest, SnapshotRecord
from ...protocol.snapshots import Snapshot
from ..engine import Engine
from ..files.read_repair import placed, read, read_latest
from .checkpoints import as_written


@method(SnapshotRecord)
async def record(engine: Engine, request: SnapshotRecord, caller: Caller) -> Snapshot:
    """Record the progress of a run and wait until its file is written, for a second at most.

    Raises AtomicWriteFailed when the file could not be written; the row is stored anyway, and the
    file is tried again.
    """
    snapshot = await engine.earlier_answer(request)
    if snapshot is None:
        snapshot = await engine.run(rules.record, request, caller)
    written = await as_written(engine, snapshot)
    failure = engine.outbox.failure(snapshot.snapshot_id)
    if failure is not None:
        path = engine.backups["snapshot"].path_of(snapshot.run_id, snapshot.snapshot_id)
        raise AtomicWriteFailed(
            f"Snapshot {snapshot.snapshot_id} is stored, but its file {path} could not be written:"
            f" {failure.rstrip('.')}.",
            hint="No data is lost: the database has it, and fleetd keeps trying to write the file.",
            snapshot_id=snapshot.snapshot_id,
            path=str(path),
        )
    # A snapshot that it joined may be another machine's.
    return await placed(engine, written) if written.source_details else written


@method(SnapshotGet)
async def get(engine: Engine, request: SnapshotGet, caller: Caller) -> Snapshot:
    """Return a snapshot from its row, else from its file, with a warning."""
    snapshot: Snapshot = await read(engine, "snapshot", request.snapshot_id)
    return snapshot


@method(SnapshotLatest)
async def latest(engine: Engine, request: SnapshotLatest, caller: Caller) -> Snapshot:
    """Return a run's newest snapshot, from either copy; also one that lost its row."""
    run_id = (await engine.read(requested_run, request)).run_id
    snapshot: Snapshot = await read_latest(engine, "snapshot", run_id, rules.latest)
    return snapshot
