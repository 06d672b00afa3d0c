"""The two copies of a record, seen from its row: the outbox, backups done.

Nothing here is on the wire; the daemon's own tasks ask for it.
"""

from ...protocol.events import BackupFailed, CheckpointCreated
from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.types import Noun
from ..core.context import Context
from ..core.event_log import data_of, emit
from ..core.ids import find
from ..core.registry import handler
from ..core.tx import Effect, RemoveBackup, Row, Tx, WriteBackup
from ..system.startup import Done
from .kinds import POLICIES
from .removal import Latest, latest_of, newest_with_file
from ..core.soft_delete import OWED


class Outbox(Record, frozen=True, kw_only=True):
    """Records whose file must be written, and those that must go."""

    unwritten: list[WriteBackup]
    deleted: list[RemoveBackup]

    @property
    def all(self) -> list[Effect]:
        """Return all that is to be done."""
        return [*self.unwritten, *self.deleted]


class OutboxGet(Query[Outbox], frozen=True):
    """Ask what the disk still owes the database."""


class Backup(Record, frozen=True, kw_only=True):
    """What a file must hold, and what latest.json must be afterwards."""

    data: bytes | None
    owner_id: str
    latest: Latest


class BackupGet(Query[Backup], frozen=True):
    """Read a record for its file; there is no data of one that is marked or kept elsewhere."""

    noun: Noun
    record_id: str


class BackupWritten(Mutation[Done], frozen=True):
    """Note that a record's file is on disk."""

    noun: Noun
    record_id: str


class BackupNotWritten(Mutation[Done], frozen=True):
    """Note that a record's file could not be written; only the first failure is announced."""

    noun: Noun
    record_id: str
    error: str
    first: bool


@handler
def outbox(tx: Tx, ctx: Context, request: OutboxGet) -> Outbox:
    """Return the work that a crash or a full disk left behind, oldest first."""
    rows = [
        (noun, row["id"], row["deleted_at"])
        for noun, policy in POLICIES.items()
        for row in tx.all(
            f"SELECT id, deleted_at FROM {policy.table} WHERE {OWED} ORDER BY seq",
            machine=ctx.machine,
        )
    ]
    return Outbox(
        unwritten=[WriteBackup(noun, each) for noun, each, gone in rows if gone is None],
        deleted=[RemoveBackup(noun, each) for noun, each, gone in rows if gone is not None],
    )


@handler
def backup(tx: Tx, ctx: Context, request: BackupGet) -> Backup:
    """Return what the file of a record must hold; raises NotFound when the row is gone."""
    policy = POLICIES[request.noun]
    row = find(tx, request.noun, request.record_id)
    owner_id, ours = row[policy.owner], row["machine"] == ctx.machine
    newest = newest_with_file(tx, policy, owner_id, ctx.machine, coming=row["id"] if ours else None)
    return Backup(
        data=policy.file_of(row) if ours and row["deleted_at"] is None else None,
        owner_id=owner_id,
        latest=latest_of(tx, policy, newest),
    )


@handler
def backup_written(tx: Tx, ctx: Context, request: BackupWritten) -> Done:
    """Note where a record now lies; of a checkpoint it is said, once."""
    policy = POLICIES[request.noun]
    if policy.compressible:  # what was compressed lies there in its plain form again
        tx.run(
            f"UPDATE {policy.table} SET compressed_at = NULL, gzip_digest = NULL,"
            " gzip_bytes = NULL WHERE id = :id AND compressed_at IS NOT NULL",
            id=request.record_id,
        )
    row = tx.one(
        f"UPDATE {policy.table} SET backed_up_at = :now, verified_at = :now"
        " WHERE id = :id AND machine = :machine AND backed_up_at IS NULL RETURNING *",
        now=ctx.now,
        id=request.record_id,
        machine=ctx.machine,
    )
    if row is None:
        return Done(done=False)
    if policy.announced and not _announced(tx, row):
        _announce(tx, ctx, row, written=True)
    return Done(done=True)


@handler
def backup_not_written(tx: Tx, ctx: Context, request: BackupNotWritten) -> Done:
    """Note that a record lies in the database only, for now."""
    policy = POLICIES[request.noun]
    row = tx.one(f"SELECT * FROM {policy.table} WHERE id = :id", id=request.record_id)
    if row is None or not request.first:
        return Done(done=False)
    payload = BackupFailed(
        checkpoint_id=row["id"], error=request.error, reason_code=policy.write_failed
    )
    emit(tx, ctx, payload, mission_id=row.get("mission_id"))
    if policy.announced and not _announced(tx, row):
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
