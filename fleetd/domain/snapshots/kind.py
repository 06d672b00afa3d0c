"""Snapshots as a kind of record that has a row and a file."""

from ...protocol.errors import AtomicWriteFailed, RetentionPruneFailed
from ...protocol.events import SnapshotsPruned
from ..artifacts.kinds import RecordKind, register_kind
from . import codec

register_kind(
    RecordKind(
        noun="snapshot",
        table="snapshots",
        owner="run_id",
        whose="run",
        version=codec.VERSION,
        nameable="1 = 1",
        copies=True,
        compressible=True,
        from_row=codec.from_row,
        from_file=codec.from_file,
        to_file=codec.to_file,
        file_of=lambda row: codec.to_file(codec.from_row(row)),
        to_columns=codec.to_columns,
        insert=lambda tx, ctx, snapshot: (codec.insert_snapshot(tx, ctx, snapshot), False),
        seq_of=lambda snapshot: codec.seq_of(snapshot.snapshot_id),
        to_rewrite=codec.is_from_another_copy,
        retention=lambda settings: (settings.snapshot_days, settings.snapshots_per_run),
        judged="id, run_id AS owner_id, timestamp, source AS cause, seq, status, size_bytes",
        pruned=SnapshotsPruned,
        announced=False,
        list="fleetctl snapshot list",
        verify="fleetctl snapshot verify",
        way_out=lambda record_id: "it goes when its time has come: fleetctl snapshot prune",
        write_failed=AtomicWriteFailed.kind,
        prune_failed=RetentionPruneFailed.kind,
    )
)
