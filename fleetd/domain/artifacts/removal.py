"""Garbage collection: once a record is marked deleted, its file goes, then its row."""

from collections.abc import Mapping

import msgspec

from ...protocol.types import Noun
from ..core.context import Context
from ..core.event_log import position
from ..core.registry import frees_space
from ..core.soft_delete import KEPT_HERE, UNSETTLED
from ..core.tx import Tx
from .kinds import KINDS, RecordKind
from .latest import Latest, latest_of, newest_with_file

# Rows of departed machines that go in one transaction.
_PURGED = "purged:"


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one owner that must go, and what latest.json must be afterwards."""

    owner_id: str
    record_ids: list[str]
    latest: Latest


def removals(tx: Tx, ctx: Context, noun: Noun, record_ids: list[str]) -> list[Removal]:
    """Return the files to remove, grouped so that each directory is opened and synced once.

    Records that are not marked, and those that another machine keeps, are passed over.
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
    return removals_of(tx, ctx, kind, ids)


def removals_of(
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
    gone = [
        tx.one(
            f"DELETE FROM {KINDS[noun].table} WHERE id = :id AND {KEPT_HERE}"
            " AND deleted_at IS NOT NULL RETURNING id",
            id=record_id,
            machine=ctx.machine,
        )
        for record_id in record_ids
    ]
    return sum(row is not None for row in gone)


def purge_departed(tx: Tx, ctx: Context) -> int:
    """Remove some marked rows whose machine is gone for good; returns how many.

    A mark waits for the daemon that keeps the file, as long as checkpoints are kept. Then its rows
    go; should that machine come back after all, the log's end that is noted here tells it which of
    its files may be without a row.
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
    """Return up to where in the log this machine's records may have gone while it was away.

    None when nothing went, which is not the log's begin: what was kept before there was a log has
    a place in front of it.
    """
    value = tx.value("SELECT value FROM store_meta WHERE key = :key", key=_PURGED + ctx.machine)
    return None if value is None else int(value)
