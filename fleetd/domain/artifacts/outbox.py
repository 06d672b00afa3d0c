"""Outbox: the files still to be written or removed for rows, and ``latest.json`` beside them."""

from collections.abc import Collection, Mapping, Sequence, Set

import msgspec

from ...protocol.errors import Corrupt, Incompatible
from ...protocol.events import BackupFailed, CheckpointCreated
from ...protocol.types import Noun
from ..core.context import Context
from ..core.event_log import data_of, emit, position
from ..core.ids import find
from ..core.registry import frees_space
from ..core.soft_delete import KEPT_HERE, LIVE, PENDING, UNSETTLED
from ..core.sql import inside_of, named_params
from ..core.tx import RemoveBackup, Row, Tx, WriteBackup
from .kinds import KINDS, RecordKind


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """What latest.json must be: the record it names, and the bytes where it is a copy.

    There are no bytes for a copy of a damaged row: then the existing file stays.
    """

    id: str | None = None
    data: bytes | None = None


def latest_of(tx: Tx, kind: RecordKind, newest: str | None) -> Latest:
    """Return what latest.json must be; ``newest`` is the newest record, None for none."""
    if newest is None or not kind.copies:
        return Latest(id=newest)
    row = tx.one(f"SELECT * FROM {kind.table} WHERE id = :id", id=newest)
    try:
        data = kind.file_of(row) if row else None
    except (Corrupt, Incompatible):
        data = None
    return Latest(id=newest, data=data)


def newest_with_file(
    tx: Tx,
    kind: RecordKind,
    owner_id: str,
    machine: str | None = None,
    coming: Sequence[str] = (),
) -> str | None:
    """Return the newest record whose row says that its file exists; never one that undoes.

    The file is on one ``machine``, or on any. ``coming`` are records whose files are being written,
    or are written but not yet noted in their rows.
    """
    there = "" if machine is None else f" AND {KEPT_HERE}"
    row = tx.one(
        f"SELECT id FROM {kind.table} WHERE {kind.owner} = :owner AND {LIVE}{there}"
        f" AND {kind.nameable} AND (backed_up_at IS NOT NULL OR id IN"
        f" ({inside_of('coming', coming)})) ORDER BY seq DESC LIMIT 1",
        owner=owner_id,
        **named_params("coming", coming),
        **({} if machine is None else {"machine": machine}),
    )
    return row["id"] if row else None


def newest_of_files(
    tx: Tx, ctx: Context, noun: Noun, owner_id: str, files: frozenset[str]
) -> Latest:
    """Return what latest.json must be when these files are here."""
    kind = KINDS[noun]
    ours = tx.all(
        f"SELECT id FROM {kind.table} WHERE {kind.owner} = :owner AND {KEPT_HERE}",
        owner=owner_id,
        machine=ctx.machine,
    )
    there = files & {row["id"] for row in ours}
    rows = tx.all(_newest_first(kind), owner=owner_id)
    return latest_of(tx, kind, next((row["id"] for row in rows if row["id"] in there), None))


def newest_kept_here(tx: Tx, kind: RecordKind, owner_id: str, elsewhere: Set[str]) -> str | None:
    """Return the newest record whose file this machine keeps, whether that exists or not.

    In a row, the machine comes after the content: it is not read if all are of one machine.
    """
    first = tx.one(f"{_newest_first(kind)} LIMIT 1", owner=owner_id)
    if first is None or first["id"] not in elsewhere:
        return first["id"] if first else None
    rows = tx.all(_newest_first(kind), owner=owner_id)
    return next((row["id"] for row in rows if row["id"] not in elsewhere), None)


def _newest_first(kind: RecordKind) -> str:
    return (
        f"SELECT id FROM {kind.table} WHERE {kind.owner} = :owner AND {LIVE}"
        f" AND {kind.nameable} ORDER BY seq DESC"
    )


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What a file must hold, and what latest.json must be afterwards."""

    data: bytes | None
    owner_id: str
    latest: Latest


def pending(tx: Tx, ctx: Context) -> list[WriteBackup | RemoveBackup]:
    """Return the work that a crash or a full disk left: files to write, then files to remove.

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
    # This uses the outbox's index: with the index of live records, every record would be read.
    return sum(
        tx.value(
            f"SELECT count(*) FROM {kind.table} WHERE {PENDING} AND {LIVE}", machine=ctx.machine
        )
        for kind in KINDS.values()
    )


def backup(
    tx: Tx, ctx: Context, noun: Noun, record_id: str, written: Collection[str] = ()
) -> Backup:
    """Return what the file of a record must hold; raises NotFound when the row is gone.

    There is no data for a record that is marked deleted, or whose file another machine keeps.
    ``written`` are records whose files exist, although no row notes it yet.
    """
    kind = KINDS[noun]
    row = find(tx, noun, record_id)
    owner_id, ours = row[kind.owner], ctx.is_here(row)
    coming = [*written, row["id"]] if ours else [*written]
    newest = newest_with_file(tx, kind, owner_id, ctx.machine, coming)
    return Backup(
        data=kind.file_of(row) if ours and row["deleted_at"] is None else None,
        owner_id=owner_id,
        latest=latest_of(tx, kind, newest),
    )


def files_written(tx: Tx, ctx: Context, written: Sequence[WriteBackup]) -> None:
    """Note that files are on disk; each checkpoint is announced once."""
    for work in written:
        _file_written(tx, ctx, KINDS[work.noun], work.record_id)


def _file_written(tx: Tx, ctx: Context, kind: RecordKind, record_id: str) -> None:
    if kind.compressible:  # the file is there in its plain form again
        tx.run(
            f"UPDATE {kind.table} SET compressed_at = NULL, gzip_digest = NULL,"
            " gzip_bytes = NULL WHERE id = :id AND compressed_at IS NOT NULL",
            id=record_id,
        )
    row = tx.one(
        f"UPDATE {kind.table} SET backed_up_at = :now, verified_at = :now"
        f" WHERE id = :id AND {KEPT_HERE} AND backed_up_at IS NULL RETURNING {kind.judged}",
        now=ctx.now,
        id=record_id,
        machine=ctx.machine,
    )
    if row is not None and kind.announced and not _announced(tx, row):
        _announce(tx, ctx, row, written=True)


def file_not_written(tx: Tx, ctx: Context, noun: Noun, record_id: str, error: str) -> None:
    """Note that a record is only in the database for now."""
    kind = KINDS[noun]
    row = tx.one(f"SELECT {kind.judged} FROM {kind.table} WHERE id = :id", id=record_id)
    if row is None:
        return
    payload = BackupFailed(checkpoint_id=row["id"], error=error, reason_code=kind.write_failed)
    emit(tx, ctx, payload, mission_id=row["owner_id"] if kind.whose == "mission" else None)
    if kind.announced and not _announced(tx, row):
        _announce(tx, ctx, row, written=False)


def _announced(tx: Tx, row: Row) -> bool:
    """Return whether this checkpoint was announced: at a failure, or before a restart."""
    found = tx.all(
        "SELECT data_json FROM events WHERE mission_id = :mission AND type = 'checkpoint_created'"
        " AND seq > :seq",
        mission=row["owner_id"],
        seq=row["seq"],
    )
    return any(data_of(e).get("checkpoint_id") == row["id"] for e in found)


def _announce(tx: Tx, ctx: Context, row: Row, *, written: bool) -> None:
    payload = CheckpointCreated(
        checkpoint_id=row["id"],
        mission_id=row["owner_id"],
        trigger=row["cause"],
        storage_locations=["sqlite", "file"] if written else ["sqlite"],
        machine=ctx.machine or None,
    )
    emit(tx, ctx, payload, mission_id=row["owner_id"])


# The prefix of keys that note the end of the log when rows of a departed machine were removed.
_PURGED = "purged:"


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one owner that must go, and what latest.json must be afterwards."""

    owner_id: str
    record_ids: list[str]
    latest: Latest


def removals(tx: Tx, ctx: Context, noun: Noun, record_ids: list[str]) -> list[Removal]:
    """Return the files to remove, grouped so that each directory is opened and synced once.

    Records that are not marked, and those that another machine keeps, are skipped.
    """
    kind = KINDS[noun]
    ids: dict[str, list[str]] = {}
    for record_id in record_ids:
        row = tx.one(
            f"SELECT {kind.owner} AS owner FROM {kind.table}"
            f" WHERE id = :id AND {KEPT_HERE} AND deleted_at IS NOT NULL",
            id=record_id,
            machine=ctx.machine,
        )
        if row is not None:
            ids.setdefault(row["owner"], []).append(record_id)
    return removals_by_owner(tx, ctx, kind, ids)


def removals_by_owner(
    tx: Tx, ctx: Context, kind: RecordKind, going: Mapping[str, list[str]]
) -> list[Removal]:
    """Return files to remove, by owner, with what each owner's latest.json must be afterwards."""
    return [
        Removal(
            owner_id=owner,
            record_ids=ids,
            latest=latest_of(tx, kind, newest_with_file(tx, kind, owner, ctx.machine)),
        )
        for owner, ids in going.items()
    ]


@frees_space
def purge(tx: Tx, ctx: Context, noun: Noun, record_ids: list[str]) -> int:
    """Remove the rows of marked records whose files are gone from here; returns how many."""
    return sum(
        tx.exists(
            f"DELETE FROM {KINDS[noun].table} WHERE id = :id AND {KEPT_HERE}"
            " AND deleted_at IS NOT NULL RETURNING id",
            id=record_id,
            machine=ctx.machine,
        )
        for record_id in record_ids
    )


def purge_departed(tx: Tx, ctx: Context) -> int:
    """Remove some marked rows whose machine is gone for good; returns how many.

    A mark waits for the daemon that keeps the file, as long as checkpoints are kept. Then its row
    is removed. If that machine comes back after all, the noted end of the log tells it which of its
    files may lack a row.
    """
    rows = [
        row
        for kind in KINDS.values()
        for row in tx.all(
            f"DELETE FROM {kind.table} WHERE id IN (SELECT r.id FROM {kind.table} r"
            f" WHERE {UNSETTLED} AND r.deleted_at IS NOT NULL AND r.machine <> :machine"
            " AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.id = r.machine"
            " AND (m.status = 'here' OR m.heard_at >= :old)) LIMIT :most) RETURNING machine",
            machine=ctx.machine,
            old=ctx.days_ago(ctx.config.retention.days),
            most=ctx.batches.rows,
        )
    ]
    for machine in sorted({row["machine"] for row in rows}):
        tx.run(
            "INSERT INTO store_meta (key, value) VALUES (:key, :end)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            key=_PURGED + machine,
            end=str(position(tx)),
        )
    return len(rows)


def purged_until(tx: Tx, ctx: Context) -> int | None:
    """Return the log position up to which this machine's records may be gone, as it was away.

    None when nothing is gone. That is not the beginning of the log, because records from before
    there was a log have positions before it.
    """
    value = tx.value("SELECT value FROM store_meta WHERE key = :key", key=_PURGED + ctx.machine)
    return None if value is None else int(value)
