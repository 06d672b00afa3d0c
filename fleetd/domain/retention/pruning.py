"""Pruning: expired records are found and marked batch by batch.

Which those are is the word of the noun's rule (``_EXPIRED``). The looking only reads; what it found
is judged anew by the transaction that marks it, since much may have happened in between. Every
batch is bounded, so that nobody waits long behind one.
"""

from collections.abc import Callable, Iterable
from itertools import groupby

from ...protocol.errors import NotFound
from ...protocol.records import Record
from ...protocol.types import Noun
from ..artifacts.kinds import KINDS, RecordKind
from ..core.batches import Batch
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.registry import frees_space
from ..core.soft_delete import LIVE, mark_deleted
from ..core.tx import Row, Tx
from . import checkpoints, snapshots
from .policy import RetentionPolicy

_EXPIRED: dict[Noun, Callable[[Tx, Context, RetentionPolicy, list[Row]], Iterable[Row]]] = {
    "checkpoint": checkpoints.expired,
    "snapshot": snapshots.expired,
}


class PruneCursor(Record, frozen=True, kw_only=True):
    """How far a pruning has looked: owner by owner, in each of them oldest first."""

    owner_id: str = ""
    seq: int = -(2**62)
    record_id: str = ""


class PruneCandidate(Record, frozen=True, kw_only=True):
    """A record that is past its time; ``cause`` is what it was taken for."""

    id: str
    owner_id: str
    timestamp: str
    cause: str
    size_bytes: int


def policy(
    tx: Tx, ctx: Context, noun: Noun, owner_id: str | None, days: int | None, keep: int | None
) -> RetentionPolicy:
    """Return the settings in force unless others are wished; raises NotFound for the owner."""
    kind = KINDS[noun]
    set_days, set_keep = kind.retention(ctx.config.retention)
    return RetentionPolicy(
        days=set_days if days is None else days,
        keep=set_keep if keep is None else keep,
        owner_id=_owner(tx, kind, owner_id) if owner_id else None,
    )


def _owner(tx: Tx, kind: RecordKind, given: str) -> str:
    if kind.whose == "mission":
        return str(find(tx, "mission", given)["id"])
    if tx.one("SELECT id FROM runs WHERE id = :id", id=given) is None:
        raise NotFound(
            f"Run not found: {given}",
            hint="fleetctl snapshot list shows the runs that have snapshots.",
            noun="run",
            id=given,
        )
    return given


def look(
    tx: Tx, ctx: Context, noun: Noun, policy: RetentionPolicy, cursor: PruneCursor
) -> Batch[list[PruneCandidate], PruneCursor]:
    """Return what is expired among the next records, oldest first of each owner."""
    kind, found, looked_at = KINDS[noun], list[PruneCandidate](), 0
    for _ in range(ctx.batches.owners):
        rows = _rows_after(tx, kind, cursor, ctx.batches.records - looked_at)
        if rows:
            found += map(_candidate, _EXPIRED[noun](tx, ctx, policy, rows))
            last, looked_at = rows[-1], looked_at + len(rows)
            cursor = PruneCursor(owner_id=cursor.owner_id, seq=last["seq"], record_id=last["id"])
        if looked_at >= ctx.batches.records:
            break
        owner_id = _next_owner(tx, kind, policy, cursor.owner_id)
        if owner_id is None:
            return Batch(found, None)
        cursor = PruneCursor(owner_id=owner_id)
    return Batch(found, cursor)


def _next_owner(tx: Tx, kind: RecordKind, policy: RetentionPolicy, after: str) -> str | None:
    """Return the next owner that has records, by its id."""
    if policy.owner_id is not None:
        return None if after else policy.owner_id
    row = tx.one(
        f"SELECT min({kind.owner}) AS id FROM {kind.table} WHERE {LIVE} AND {kind.owner} > :after",
        after=after,
    )
    return row["id"] if row else None


def _rows_after(tx: Tx, kind: RecordKind, cursor: PruneCursor, limit: int) -> list[Row]:
    return tx.all(
        f"SELECT {kind.judged} FROM {kind.table} WHERE {kind.owner} = :owner"
        f" AND {LIVE} AND (seq, id) > (:seq, :id) ORDER BY seq, id LIMIT :limit",
        owner=cursor.owner_id,
        seq=cursor.seq,
        id=cursor.record_id,
        limit=limit,
    )


def _candidate(row: Row) -> PruneCandidate:
    return PruneCandidate(**{name: row[name] for name in PruneCandidate.__struct_fields__})


@frees_space
def mark(
    tx: Tx, ctx: Context, noun: Noun, policy: RetentionPolicy, found: list[PruneCandidate]
) -> list[PruneCandidate]:
    """Mark candidates deleted; what was used, deleted or needed since they were found stays."""
    marked = list[PruneCandidate]()
    for _, candidates in groupby(found, key=lambda candidate: candidate.owner_id):
        rows = [row for each in candidates if (row := _live(tx, noun, each.id)) is not None]
        for row in _EXPIRED[noun](tx, ctx, policy, rows) if rows else ():
            mark_deleted(tx, ctx, noun, row["id"])
            marked.append(_candidate(row))
    return marked


def _live(tx: Tx, noun: Noun, record_id: str) -> Row | None:
    kind = KINDS[noun]
    return tx.one(f"SELECT {kind.judged} FROM {kind.table} WHERE id = :id AND {LIVE}", id=record_id)


@frees_space
def announce(tx: Tx, ctx: Context, noun: Noun, deleted: int, freed_bytes: int) -> None:
    """Say once, for all its batches, what a pruning deleted."""
    emit(tx, ctx, KINDS[noun].pruned(deleted=deleted, freed_bytes=freed_bytes))
