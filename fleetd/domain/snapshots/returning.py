"""The row of a snapshot written anew from its verified file; must not know where the file lies."""

import hashlib

import msgspec

from ...wire.snapshots import Artifact, Snapshot
from ..context import Context
from ..tx import Tx
from .document import to_columns


def from_compressed(snapshot: Snapshot, raw: bytes) -> Snapshot:
    """Return a snapshot that was read from its compressed form, the bytes of which are ``raw``."""
    packed = Artifact(
        path=f"history/{snapshot.snapshot_id}.json.gz",
        compressed=True,
        present=True,
        size_bytes=len(raw),
        digest=hashlib.sha256(raw).hexdigest(),
    )
    return msgspec.structs.replace(snapshot, artifacts=[packed])


def insert_snapshot(tx: Tx, ctx: Context, snapshot: Snapshot) -> None:
    """Write the row of a snapshot that has none, and its run's if that is missing too.

    Whose run it was stands in no file. The log that its commands were gathered from may be lost, so
    they count as declared.
    """
    tx.run(
        "INSERT INTO runs (id, status) VALUES (:id, :status) ON CONFLICT (id) DO NOTHING",
        id=snapshot.run_id,
        status=snapshot.status,
    )
    packed = next((each for each in snapshot.artifacts if each.compressed), None)
    columns = to_columns(snapshot) | {
        "gathered": 0,
        "backed_up_at": ctx.now,
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
