"""Records past their time, found and marked piece by piece; must not touch files.

Which those are is the word of the noun's rule (``_DOOMED``). The looking only reads; what it found
is judged anew by the transaction that marks it, since much may have happened in between. Every
piece is bounded, so that nobody waits long behind one.
"""

from collections.abc import Callable, Iterable
from itertools import groupby

from ...protocol.errors import NotFound
from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.types import Noun
from ..artifacts.kinds import POLICIES, Policy
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.registry import handler
from ..core.soft_delete import LIVE, mark_deleted
from ..core.tx import Row, Tx
from ..system.startup import Done
from . import checkpoints
from . import snapshots as outdated_snapshots
from .terms import Terms

# How much one piece of work looks at, and then marks: a few milliseconds' worth.
ROWS_AT_ONCE = 25
OWNERS_AT_ONCE = 20
_DOOMED: dict[Noun, Callable[[Tx, Context, Terms, list[Row]], Iterable[Row]]] = {
    "checkpoint": checkpoints.doomed,
    "snapshot": outdated_snapshots.doomed,
}


class PruneTerms(Query[Terms], frozen=True, kw_only=True):
    """Settle what a pruning goes by; raises NotFound for a mission or run that is not there."""

    noun: Noun
    days: int | None = None
    keep: int | None = None
    owner_id: str | None = None


class Place(Record, frozen=True, kw_only=True):
    """How far a pruning has looked: owner by owner, in each of them oldest first."""

    owner_id: str = ""
    seq: int = -(2**62)
    record_id: str = ""


class Candidate(Record, frozen=True, kw_only=True):
    """A record that is past its time; ``cause`` is what it was taken for."""

    id: str
    owner_id: str
    timestamp: str
    cause: str
    size_bytes: int


class Found(Record, frozen=True, kw_only=True):
    """Records to prune, oldest first of each owner, and where to look further."""

    candidates: list[Candidate]
    place: Place | None


class PruneLook(Query[Found], frozen=True, kw_only=True):
    """Find what is past its time, a bounded piece at a time."""

    noun: Noun
    terms: Terms
    place: Place


class Marked(Record, frozen=True, kw_only=True):
    """The records that were deleted."""

    records: list[Candidate]


class PruneMark(Mutation[Marked], frozen=True, kw_only=True):
    """Delete what was found, as far as it is still past its time."""

    noun: Noun
    terms: Terms
    candidates: list[Candidate]


class PruneDone(Mutation[Done], frozen=True, kw_only=True):
    """Note how much a whole pruning deleted."""

    noun: Noun
    deleted: int
    freed_bytes: int


@handler
def terms(tx: Tx, ctx: Context, request: PruneTerms) -> Terms:
    """Return the settings in force, unless others are wished."""
    policy = POLICIES[request.noun]
    days, keep = policy.retention(ctx.config.retention)
    return Terms(
        days=days if request.days is None else request.days,
        keep=keep if request.keep is None else request.keep,
        owner_id=_owner(tx, policy, request.owner_id) if request.owner_id else None,
    )


def _owner(tx: Tx, policy: Policy, given: str) -> str:
    if policy.whose == "mission":
        return str(find(tx, "mission", given)["id"])
    if tx.one("SELECT id FROM runs WHERE id = :id", id=given) is None:
        raise NotFound(
            f"Run not found: {given}",
            hint="fleetctl snapshot list shows the runs that have snapshots.",
            noun="run",
            id=given,
        )
    return given


@handler
def look(tx: Tx, ctx: Context, request: PruneLook) -> Found:
    """Return what is past its time among the next records."""
    policy, terms = POLICIES[request.noun], request.terms
    place, found, looked_at = request.place, list[Candidate](), 0
    for _ in range(OWNERS_AT_ONCE):
        rows = _rows_after(tx, policy, place, ROWS_AT_ONCE - looked_at)
        if rows:
            found += map(_candidate, _DOOMED[request.noun](tx, ctx, terms, rows))
            last, looked_at = rows[-1], looked_at + len(rows)
            place = Place(owner_id=place.owner_id, seq=last["seq"], record_id=last["id"])
        if looked_at >= ROWS_AT_ONCE:
            break
        owner_id = _next_owner(tx, policy, terms, place.owner_id)
        if owner_id is None:
            return Found(candidates=found, place=None)
        place = Place(owner_id=owner_id)
    return Found(candidates=found, place=place)


def _next_owner(tx: Tx, policy: Policy, terms: Terms, after: str) -> str | None:
    """Return the next owner that has records, by its id."""
    if terms.owner_id is not None:
        return None if after else terms.owner_id
    row = tx.one(
        f"SELECT min({policy.owner}) AS id FROM {policy.table}"
        f" WHERE {LIVE} AND {policy.owner} > :after",
        after=after,
    )
    return row["id"] if row else None


def _rows_after(tx: Tx, policy: Policy, place: Place, limit: int) -> list[Row]:
    return tx.all(
        f"SELECT {policy.judged} FROM {policy.table} WHERE {policy.owner} = :owner"
        f" AND {LIVE} AND (seq, id) > (:seq, :id) ORDER BY seq, id LIMIT :limit",
        owner=place.owner_id,
        seq=place.seq,
        id=place.record_id,
        limit=limit,
    )


def _candidate(row: Row) -> Candidate:
    return Candidate(**{name: row[name] for name in Candidate.__struct_fields__})


@handler
def mark(tx: Tx, ctx: Context, request: PruneMark) -> Marked:
    """Mark candidates deleted; what was used, deleted or needed since they were found stays."""
    noun, marked = request.noun, list[Candidate]()
    for _, candidates in groupby(request.candidates, key=lambda candidate: candidate.owner_id):
        rows = [row for each in candidates if (row := _live(tx, noun, each.id)) is not None]
        for row in _DOOMED[noun](tx, ctx, request.terms, rows) if rows else ():
            mark_deleted(tx, ctx, noun, row["id"])
            marked.append(_candidate(row))
    return Marked(records=marked)


def _live(tx: Tx, noun: Noun, record_id: str) -> Row | None:
    policy = POLICIES[noun]
    return tx.one(
        f"SELECT {policy.judged} FROM {policy.table} WHERE id = :id AND {LIVE}", id=record_id
    )


@handler
def done(tx: Tx, ctx: Context, request: PruneDone) -> Done:
    """Say once, for all its pieces, what a pruning deleted."""
    pruned = POLICIES[request.noun].pruned
    emit(tx, ctx, pruned(deleted=request.deleted, freed_bytes=request.freed_bytes))
    return Done(done=True)
