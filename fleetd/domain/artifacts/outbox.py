"""The outbox: which files the rows still want written or removed, and what became of them."""

import msgspec

from ...protocol.events import BackupFailed, CheckpointCreated
from ...protocol.types import Noun
from ..core.context import Context
from ..core.event_log import data_of, emit
from ..core.ids import find
from ..core.soft_delete import KEPT_HERE, LIVE, PENDING
from ..core.tx import RemoveBackup, Row, Tx, WriteBackup
from .kinds import KINDS
from .latest import Latest, latest_of, newest_with_file


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What a file must hold, and what latest.json must be afterwards."""

    data: bytes | None
    owner_id: str
    latest: Latest


def pending(tx: Tx, ctx: Context) -> list[WriteBackup | RemoveBackup]:
    """Return the work that a crash or a full disk left behind: files to write, then those to go.

    Oldest first.
    """
    rows = [
        (noun, row["id"], row["deleted_at"])
        for noun, kind in KINDS.items()
        for row in tx.all(
            f"SELECT id, deleted_at FROM {kind.table} WHERE {PENDING} ORDER BY seq",
            machine=ctx.machine,
        )
    ]
    return [
        *(WriteBackup(noun, each) for noun, each, gone in rows if gone is None),
        *(RemoveBackup(noun, each) for noun, each, gone in rows if gone is not None),
    ]


def unwritten(tx: Tx, ctx: Context) -> int:
    """Return how many records wait for their file on this machine."""
    # By the outbox's index: by that of the live ones, every record would be read.
    return sum(
        tx.value(
            f"SELECT count(*) FROM {kind.table} WHERE {PENDING} AND {LIVE}", machine=ctx.machine
        )
        for kind in KINDS.values()
    )


def backup(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> Backup:
    """Return what the file of a record must hold; raises NotFound when the row is gone.

    There is no data of one that is marked deleted, or whose file another machine keeps.
    """
    kind = KINDS[noun]
    row = find(tx, noun, record_id)
    owner_id, ours = row[kind.owner], ctx.is_here(row)
    newest = newest_with_file(tx, kind, owner_id, ctx.machine, coming=row["id"] if ours else None)
    return Backup(
        data=kind.file_of(row) if ours and row["deleted_at"] is None else None,
        owner_id=owner_id,
        latest=latest_of(tx, kind, newest),
    )


def file_written(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> None:
    """Note that a record's file is on disk; of a checkpoint it is said, once."""
    kind = KINDS[noun]
    if kind.compressible:  # what was compressed lies there in its plain form again
        tx.run(
            f"UPDATE {kind.table} SET compressed_at = NULL, gzip_digest = NULL,"
            " gzip_bytes = NULL WHERE id = :id AND compressed_at IS NOT NULL",
            id=record_id,
        )
    row = tx.one(
        f"UPDATE {kind.table} SET backed_up_at = :now, verified_at = :now"
        f" WHERE id = :id AND {KEPT_HERE} AND backed_up_at IS NULL RETURNING *",
        now=ctx.now,
        id=record_id,
        machine=ctx.machine,
    )
    if row is not None and kind.announced and not _announced(tx, row):
        _announce(tx, ctx, row, written=True)


def file_not_written(tx: Tx, ctx: Context, noun: Noun, record_id: str, error: str) -> None:
    """Note that a record lies in the database only, for now."""
    kind = KINDS[noun]
    row = tx.one(f"SELECT * FROM {kind.table} WHERE id = :id", id=record_id)
    if row is None:
        return
    payload = BackupFailed(checkpoint_id=row["id"], error=error, reason_code=kind.write_failed)
    emit(tx, ctx, payload, mission_id=row.get("mission_id"))
    if kind.announced and not _announced(tx, row):
        _announce(tx, ctx, row, written=False)


def _announced(tx: Tx, row: Row) -> bool:
    """Whether checkpoint_created was said of this checkpoint: at a failure, or before a restart."""
    found = tx.all(
        "SELECT data_json FROM events WHERE mission_id = :mission AND type = 'checkpoint_created'"
        " AND seq > :seq",
        mission=row["mission_id"],
        seq=row["seq"],
    )
    return any(data_of(e).get("checkpoint_id") == row["id"] for e in found)


def _announce(tx: Tx, ctx: Context, row: Row, *, written: bool) -> None:
    payload = CheckpointCreated(
        checkpoint_id=row["id"],
        mission_id=row["mission_id"],
        trigger=row["trigger"],
        storage_locations=["sqlite", "file"] if written else ["sqlite"],
        machine=row["machine"] or None,
    )
    emit(tx, ctx, payload, mission_id=row["mission_id"])
