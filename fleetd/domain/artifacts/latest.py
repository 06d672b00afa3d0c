"""``latest.json``: which record it is to be, decided here from what is known of the files."""

from collections.abc import Set

import msgspec

from ...protocol.errors import Corrupt, Incompatible
from ...protocol.types import Noun
from ..core.context import Context
from ..core.soft_delete import KEPT_HERE, LIVE
from ..core.tx import Tx
from .kinds import KINDS, RecordKind


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """What latest.json must be: the record it names, and the bytes where it is a copy.

    No bytes for a copy that nobody can make now, as its row is damaged: what is there stays.
    """

    id: str | None = None
    data: bytes | None = None


def latest_of(tx: Tx, kind: RecordKind, newest: str | None) -> Latest:
    """Return what latest.json must be when a record is the newest, None when there is none."""
    if newest is None or not kind.copies:
        return Latest(id=newest)
    row = tx.one(f"SELECT * FROM {kind.table} WHERE id = :id", id=newest)
    try:
        data = kind.file_of(row) if row else None
    except (Corrupt, Incompatible):
        data = None
    return Latest(id=newest, data=data)


def newest_with_file(
    tx: Tx, kind: RecordKind, owner_id: str, machine: str | None = None, coming: str | None = None
) -> str | None:
    """Return the newest record whose row says that its file is there; never one that undoes.

    There is on one ``machine``, or on any. ``coming`` is one whose file is just being written.
    """
    there = "" if machine is None else f" AND {KEPT_HERE}"
    row = tx.one(
        f"SELECT id FROM {kind.table} WHERE {kind.owner} = :owner AND {LIVE}{there}"
        f" AND {kind.nameable} AND (backed_up_at IS NOT NULL OR id = CAST(:coming AS TEXT))"
        " ORDER BY seq DESC LIMIT 1",
        owner=owner_id,
        coming=coming,
        **({} if machine is None else {"machine": machine}),
    )
    return row["id"] if row else None


def newest_of_files(
    tx: Tx, ctx: Context, noun: Noun, owner_id: str, files: frozenset[str]
) -> Latest:
    """Return what latest.json must be when these files lie here."""
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
    """Return the newest record whose file this machine keeps, whether it lies there or not.

    Whose it is stands behind the content: where all are of one machine, it is not read.
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
