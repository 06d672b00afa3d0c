"""Verification of files in turns: which were not verified for longest, and that they were."""

import msgspec

from ...protocol.types import Noun
from ..core.context import Context
from ..core.soft_delete import KEPT_HERE, LIVE
from ..core.sql import inside_of, named_params
from ..core.tx import Row, Tx
from .kinds import KINDS

AHEAD_MS = 3_600_000


class Filed(msgspec.Struct, frozen=True, kw_only=True):
    """A record with a file on this machine, and whose it is."""

    id: str
    owner_id: str


def unverified(tx: Tx, ctx: Context, noun: Noun, before: str, most: int) -> list[Filed]:
    """Return files that were last verified, or written, before a moment, those of longest ago.

    They are read from the index of just these.
    """
    rows = _filed(tx, ctx, noun, "verified_at < :limit", before, most)
    if len(rows) < most:  # noted by a clock that was ahead: nobody knows when that was
        rows += _filed(tx, ctx, noun, "verified_at > :limit", ctx.at(AHEAD_MS), most - len(rows))
    return [Filed(id=row["id"], owner_id=row["owner"]) for row in rows]


def _filed(tx: Tx, ctx: Context, noun: Noun, when: str, limit: str, most: int) -> list[Row]:
    kind = KINDS[noun]
    return tx.all(
        f"SELECT id, {kind.owner} AS owner FROM {kind.table} WHERE {KEPT_HERE}"
        f" AND backed_up_at IS NOT NULL AND {LIVE} AND {when} ORDER BY verified_at, id LIMIT :most",
        machine=ctx.machine,
        limit=limit,
        most=most,
    )


def files_verified(tx: Tx, ctx: Context, noun: Noun, record_ids: list[str]) -> None:
    """Put records at the end of the line, whatever came of their verification."""
    tx.run(
        f"UPDATE {KINDS[noun].table} SET verified_at = :now"
        f" WHERE id IN ({inside_of('i', record_ids)})",
        now=ctx.now,
        **named_params("i", record_ids),
    )
