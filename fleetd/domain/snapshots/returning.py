"""The row of a snapshot written anew from its verified file; must not know where the file lies."""

import hashlib

import msgspec

from ...protocol.snapshots import Artifact, Snapshot
from ..core.context import Context
from ..core.tx import Row, Tx
from .codec import seq_of, to_columns


def read_from(snapshot: Snapshot, raw: bytes, *, compressed: bool) -> Snapshot:
    """Return a snapshot that was read from a form of its file, the bytes of which are ``raw``."""
    ending = ".json.gz" if compressed else ".json"
    form = Artifact(
        path=f"history/{snapshot.snapshot_id}{ending}",
        compressed=compressed,
        present=True,
        size_bytes=len(raw),
        digest=hashlib.sha256(raw).hexdigest(),
    )
    return msgspec.structs.replace(snapshot, artifacts=[form])


def standing_in(snapshot: Snapshot, trouble: str) -> Snapshot:
    """Return a snapshot that another copy held than the one that ought to."""
    warning = f"{trouble.rstrip('.')}; it was read from another copy of it"
    return msgspec.structs.replace(snapshot, warnings=[warning])


def stands_in(snapshot: Snapshot) -> bool:
    """Whether a snapshot from a file was not read from the one that it ought to lie in."""
    return bool(snapshot.warnings)


def insert_snapshot(tx: Tx, ctx: Context, snapshot: Snapshot) -> Row:
    """Return the row of a snapshot that had none; its run's is written too if that is missing.

    Whose run it was stands in no file. The log that its commands were gathered from may be lost, so
    they count as declared; what is left of that log stands in this snapshot already.
    """
    tx.run(
        "INSERT INTO runs (id, status, events_seq) VALUES (:id, :status, :seq)"
        " ON CONFLICT (id) DO UPDATE SET events_seq = CASE WHEN runs.events_seq < :seq"
        " THEN :seq ELSE runs.events_seq END",
        id=snapshot.run_id,
        status=snapshot.status,
        seq=seq_of(snapshot.snapshot_id),
    )
    packed = next((each for each in snapshot.artifacts if each.compressed), None)
    columns = to_columns(snapshot) | {
        "gathered": 0,
        "backed_up_at": ctx.now,
        "verified_at": ctx.now,
        "machine": ctx.machine,
        "compressed_at": ctx.now if packed else None,
        "gzip_digest": packed.digest if packed else None,
        "gzip_bytes": packed.size_bytes if packed else None,
    }
    tx.insert("snapshots", columns)
    tx.run(
        "UPDATE runs SET status = (SELECT status FROM snapshots WHERE run_id = :id"
        " AND deleted_at IS NULL ORDER BY seq DESC LIMIT 1) WHERE id = :id",
        id=snapshot.run_id,
    )
    return columns
