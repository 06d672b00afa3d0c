"""Which files were not verified for longest, and that they were; must not look at any file.

Nothing here is on the wire; the daily work asks for it.
"""

from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.types import Noun
from ..core.context import Context
from ..core.registry import handler
from ..core.sql import inside_of, named_params
from ..core.tx import Row, Tx
from ..system.startup import Done
from .kinds import POLICIES
from ..core.soft_delete import LIVE

AHEAD_MS = 3_600_000


class Filed(Record, frozen=True, kw_only=True):
    """A record with a file on this machine, and whose it is."""

    id: str
    owner_id: str


class Unverified(Record, frozen=True, kw_only=True):
    """Records whose files were not verified for longest, those that never were first."""

    records: list[Filed]


class UnverifiedGet(Query[Unverified], frozen=True):
    """Ask for ``most`` of the files that were last verified, or written, before a moment."""

    noun: Noun
    before: str
    most: int


class FilesVerified(Mutation[Done], frozen=True):
    """Note that the files of records were verified now, whatever came of it."""

    noun: Noun
    record_ids: list[str]


@handler
def unverified(tx: Tx, ctx: Context, request: UnverifiedGet) -> Unverified:
    """Return the oldest of them, from the index of just these."""
    rows = _filed(tx, ctx, request.noun, "verified_at < :limit", request.before, request.most)
    if len(rows) < request.most:  # noted by a clock that was ahead: nobody knows when that was
        left = request.most - len(rows)
        rows += _filed(tx, ctx, request.noun, "verified_at > :limit", ctx.at(AHEAD_MS), left)
    return Unverified(records=[Filed(id=row["id"], owner_id=row["owner"]) for row in rows])


def _filed(tx: Tx, ctx: Context, noun: Noun, when: str, limit: str, most: int) -> list[Row]:
    policy = POLICIES[noun]
    return tx.all(
        f"SELECT id, {policy.owner} AS owner FROM {policy.table} WHERE machine = :machine"
        f" AND backed_up_at IS NOT NULL AND {LIVE} AND {when} ORDER BY verified_at, id LIMIT :most",
        machine=ctx.machine,
        limit=limit,
        most=most,
    )


@handler
def files_verified(tx: Tx, ctx: Context, request: FilesVerified) -> Done:
    """Put records at the end of the line."""
    tx.run(
        f"UPDATE {POLICIES[request.noun].table} SET verified_at = :now"
        f" WHERE id IN ({inside_of('i', request.record_ids)})",
        now=ctx.now,
        **named_params("i", request.record_ids),
    )
    return Done(done=True)
