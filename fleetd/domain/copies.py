"""The two copies of a checkpoint, seen from its row: the outbox, backups done.

Nothing here is on the wire; the daemon's own tasks ask for it.
"""

import msgspec

from ..wire.base import Mutation, Query
from ..wire.events import BackupFailed, CheckpointCreated
from ..wire.model import Checkpoint, Record
from .content import from_row
from .context import Context
from .events import emit
from .ids import find
from .registry import handler
from .removal import newest_with_file
from .tx import Row, Tx
from .upkeep import Done


class Outbox(Record, frozen=True, kw_only=True):
    """Checkpoints whose file must be written, and those that must go."""

    unwritten: list[str]
    deleted: list[str]


class OutboxGet(Query[Outbox], frozen=True):
    """Ask what the disk still owes the database."""


class Backup(Record, frozen=True, kw_only=True):
    """What a backup file needs: the checkpoint, and where latest.json must point afterwards."""

    checkpoint: Checkpoint | None
    mission_id: str
    latest_id: str | None


class BackupGet(Query[Backup], frozen=True):
    """Read a checkpoint for its file; a marked or missing one is None."""

    checkpoint_id: str


class BackupWritten(Mutation[Done], frozen=True):
    """Note that a checkpoint's file is on disk."""

    checkpoint_id: str


class BackupNotWritten(Mutation[Done], frozen=True):
    """Note that a checkpoint's file could not be written; only the first failure is announced."""

    checkpoint_id: str
    error: str
    first: bool


@handler
def outbox(tx: Tx, request: OutboxGet, ctx: Context) -> Outbox:
    """Return the work that a crash or a full disk left behind, oldest first."""
    rows = tx.all(
        "SELECT id, deleted_at FROM checkpoints WHERE backed_up_at IS NULL"
        " OR deleted_at IS NOT NULL ORDER BY seq"
    )
    return Outbox(
        unwritten=[row["id"] for row in rows if row["deleted_at"] is None],
        deleted=[row["id"] for row in rows if row["deleted_at"] is not None],
    )


@handler
def backup(tx: Tx, request: BackupGet, ctx: Context) -> Backup:
    """Return what the file of a checkpoint must hold; raises NotFound when the row is gone."""
    row = find(tx, "checkpoint", request.checkpoint_id)
    gone = row["deleted_at"] is not None
    return Backup(
        checkpoint=None if gone else from_row(row),
        mission_id=row["mission_id"],
        latest_id=newest_with_file(tx, row["mission_id"], coming=row["id"]),
    )


@handler
def backup_written(tx: Tx, request: BackupWritten, ctx: Context) -> Done:
    """Note where a checkpoint now lies; said once per checkpoint."""
    row = tx.one(
        "UPDATE checkpoints SET backed_up_at = :now WHERE id = :id AND backed_up_at IS NULL"
        " RETURNING *",
        now=ctx.now,
        id=request.checkpoint_id,
    )
    if row is None:
        return Done(done=False)
    if not _announced(tx, row):
        _announce(tx, ctx, row, written=True)
    return Done(done=True)


@handler
def backup_not_written(tx: Tx, request: BackupNotWritten, ctx: Context) -> Done:
    """Note that a checkpoint lies in the database only, for now."""
    row = tx.one("SELECT * FROM checkpoints WHERE id = :id", id=request.checkpoint_id)
    if row is None or not request.first:
        return Done(done=False)
    payload = BackupFailed(checkpoint_id=row["id"], error=request.error)
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    if not _announced(tx, row):
        _announce(tx, ctx, row, written=False)
    return Done(done=True)


def _announced(tx: Tx, row: Row) -> bool:
    """Whether checkpoint_created was said of this checkpoint: at a failure, or before a restart."""
    found = tx.all(
        "SELECT data_json FROM events WHERE mission_id = :mission AND type = 'checkpoint_created'"
        " AND seq > :seq",
        mission=row["mission_id"],
        seq=row["seq"],
    )
    return any(msgspec.json.decode(e["data_json"])["checkpoint_id"] == row["id"] for e in found)


def _announce(tx: Tx, ctx: Context, row: Row, *, written: bool) -> None:
    payload = CheckpointCreated(
        checkpoint_id=row["id"],
        mission_id=row["mission_id"],
        trigger=row["trigger"],
        storage_locations=["sqlite", "file"] if written else ["sqlite"],
    )
    emit(tx, ctx, payload, mission_id=row["mission_id"])
