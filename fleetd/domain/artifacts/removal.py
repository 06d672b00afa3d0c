"""What goes once a record is marked deleted: its file, then its row; must not mark any.

Nothing here is on the wire; the outbox asks for it, for many records at a time.
"""

from collections.abc import Mapping

from ...protocol.errors import Corrupt, Incompatible
from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.types import Noun
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Tx
from .kinds import POLICIES, Policy
from ..core.soft_delete import LIVE


class Latest(Record, frozen=True, kw_only=True):
    """What latest.json must be: the record it names, and the bytes where it is a copy.

    No bytes for a copy that nobody can make now, as its row is damaged: what is there stays.
    """

    id: str | None = None
    data: bytes | None = None


class Removal(Record, frozen=True, kw_only=True):
    """Files of one owner that must go, and what latest.json must be afterwards."""

    owner_id: str
    record_ids: list[str]
    latest: Latest


class Removals(Record, frozen=True, kw_only=True):
    """Files that must go, owner by owner."""

    owners: list[Removal]


class RemovalsGet(Query[Removals], frozen=True):
    """Ask where the files of these records lie.

    Those that are not marked, and those that another machine keeps, are passed over.
    """

    noun: Noun
    record_ids: list[str]


class Purged(Record, frozen=True, kw_only=True):
    """How many rows went."""

    purged: int


class Purge(Mutation[Purged], frozen=True):
    """Remove the rows of records that are marked deleted and whose files are gone from here."""

    noun: Noun
    record_ids: list[str]


@handler
def removals(tx: Tx, ctx: Context, request: RemovalsGet) -> Removals:
    """Return the files to remove, grouped so that each directory is opened and synced once."""
    policy = POLICIES[request.noun]
    ids: dict[str, list[str]] = {}
    for record_id in request.record_ids:
        row = tx.one(
            f"SELECT {policy.owner} AS owner FROM {policy.table}"
            " WHERE id = :id AND machine = :machine AND deleted_at IS NOT NULL",
            id=record_id,
            machine=ctx.machine,
        )
        if row is not None:
            ids.setdefault(row["owner"], []).append(record_id)
    return removals_of(tx, ctx, policy, ids)


def removals_of(tx: Tx, ctx: Context, policy: Policy, going: Mapping[str, list[str]]) -> Removals:
    """Return files to remove, by owner, with what each owner's latest.json must be afterwards."""
    return Removals(
        owners=[
            Removal(
                owner_id=owner,
                record_ids=ids,
                latest=latest_of(tx, policy, newest_with_file(tx, policy, owner, ctx.machine)),
            )
            for owner, ids in going.items()
        ]
    )


def latest_of(tx: Tx, policy: Policy, newest: str | None) -> Latest:
    """Return what latest.json must be when a record is the newest, None when there is none."""
    if newest is None or not policy.copies:
        return Latest(id=newest)
    row = tx.one(f"SELECT * FROM {policy.table} WHERE id = :id", id=newest)
    try:
        data = policy.file_of(row) if row else None
    except (Corrupt, Incompatible):
        data = None
    return Latest(id=newest, data=data)


def newest_with_file(
    tx: Tx, policy: Policy, owner_id: str, machine: str | None = None, coming: str | None = None
) -> str | None:
    """Return the newest record whose file is there, passing over what undoes something.

    There is on one ``machine``, or on any. ``coming`` is one whose file is just being written.
    """
    there = "" if machine is None else " AND machine = :machine"
    row = tx.one(
        f"SELECT id FROM {policy.table} WHERE {policy.owner} = :owner AND {LIVE}{there}"
        f" AND {policy.nameable} AND (backed_up_at IS NOT NULL OR id = CAST(:coming AS TEXT))"
        " ORDER BY seq DESC LIMIT 1",
        owner=owner_id,
        coming=coming,
        **({} if machine is None else {"machine": machine}),
    )
    return row["id"] if row else None


@handler
def purge(tx: Tx, ctx: Context, request: Purge) -> Purged:
    """Remove marked rows; one that is not marked, or is another machine's, stays."""
    policy = POLICIES[request.noun]
    gone = [
        tx.one(
            f"DELETE FROM {policy.table} WHERE id = :id AND machine = :machine"
            " AND deleted_at IS NOT NULL RETURNING id",
            id=record_id,
            machine=ctx.machine,
        )
        for record_id in request.record_ids
    ]
    return Purged(purged=sum(row is not None for row in gone))
