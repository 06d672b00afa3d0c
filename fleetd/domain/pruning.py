"""Which checkpoints are past their time, found and marked piece by piece; must not touch files.

Source: behaviour, Pruning. Never: the newest ``keep`` of a mission, the target of ``latest.json``
of an unfinished mission, an unused checkpoint of a mission that waits for recovery. The looking
only reads; what it found is judged anew by the transaction that marks it, since much may have
happened in between. Every piece is bounded, so that nobody waits long behind one.
"""

from collections.abc import Iterable
from itertools import groupby

from ..wire.base import Mutation, Query
from ..wire.events import CheckpointsPruned
from ..wire.model import Record
from ..wire.requests.checkpoint import PrunedCheckpoint
from ..wire.types import OPEN_MISSION
from .activity import detect
from .bounds import COMPLETED
from .context import Context
from .events import emit
from .ids import find
from .marks import LIVE, mark_deleted
from .policy import POLICIES
from .registry import handler
from .removal import newest_with_file
from .tx import Row, Tx
from .upkeep import Done

DAY_MS = 86_400_000
# How much one piece of work looks at, and then marks: a few milliseconds' worth.
ROWS_AT_ONCE = 25
MISSIONS_AT_ONCE = 20
_LOOKED_AT = "id, mission_id, timestamp, trigger, seq, undo, consumed_at, size_bytes"


class Terms(Record, frozen=True, kw_only=True):
    """What a pruning goes by: the settings, or what its caller gave instead."""

    days: int
    keep: int
    mission_id: str | None


class PruneTerms(Query[Terms], frozen=True, kw_only=True):
    """Settle what a pruning goes by; raises NotFound for a mission that is not there."""

    days: int | None
    keep: int | None
    mission_id: str | None


class Place(Record, frozen=True, kw_only=True):
    """How far a pruning has looked: mission by mission, in each of them oldest first."""

    mission_id: str = ""
    seq: int = -1
    checkpoint_id: str = ""


class Found(Record, frozen=True, kw_only=True):
    """Checkpoints to prune, oldest first in each mission, and where to look further."""

    candidates: list[PrunedCheckpoint]
    place: Place | None


class PruneLook(Query[Found], frozen=True, kw_only=True):
    """Find what is past its time, a bounded piece at a time."""

    terms: Terms
    place: Place


class Marked(Record, frozen=True, kw_only=True):
    """The checkpoints that were deleted."""

    checkpoints: list[PrunedCheckpoint]


class PruneMark(Mutation[Marked], frozen=True, kw_only=True):
    """Delete what was found, as far as it is still past its time."""

    terms: Terms
    candidates: list[PrunedCheckpoint]


class PruneDone(Mutation[Done], frozen=True, kw_only=True):
    """Note how much a whole pruning deleted."""

    deleted: int
    freed_bytes: int


@handler
def terms(tx: Tx, request: PruneTerms, ctx: Context) -> Terms:
    """Return the settings in force, unless others are wished."""
    retention = ctx.config.retention
    return Terms(
        days=retention.days if request.days is None else request.days,
        keep=retention.keep if request.keep is None else request.keep,
        mission_id=find(tx, "mission", request.mission_id)["id"] if request.mission_id else None,
    )


@handler
def look(tx: Tx, request: PruneLook, ctx: Context) -> Found:
    """Return what is past its time among the next checkpoints."""
    place, found, looked_at = request.place, list[PrunedCheckpoint](), 0
    for _ in range(MISSIONS_AT_ONCE):
        rows = _rows_after(tx, place, ROWS_AT_ONCE - looked_at)
        if rows:
            found += map(_pruned, _doomed(tx, ctx, request.terms, rows))
            last, looked_at = rows[-1], looked_at + len(rows)
            place = Place(mission_id=place.mission_id, seq=last["seq"], checkpoint_id=last["id"])
        if looked_at >= ROWS_AT_ONCE:
            break
        mission_id = _next_mission(tx, request.terms, place.mission_id)
        if mission_id is None:
            return Found(candidates=found, place=None)
        place = Place(mission_id=mission_id)
    return Found(candidates=found, place=place)


def _next_mission(tx: Tx, terms: Terms, after: str) -> str | None:
    """Return the next mission that has checkpoints, by its id."""
    if terms.mission_id is not None:
        return None if after else terms.mission_id
    row = tx.one(
        f"SELECT min(mission_id) AS id FROM checkpoints WHERE {LIVE} AND mission_id > :after",
        after=after,
    )
    return row["id"] if row else None


def _rows_after(tx: Tx, place: Place, limit: int) -> list[Row]:
    return tx.all(
        f"SELECT {_LOOKED_AT} FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
        " AND (seq, id) > (:seq, :id) ORDER BY seq, id LIMIT :limit",
        mission=place.mission_id,
        seq=place.seq,
        id=place.checkpoint_id,
        limit=limit,
    )


def _pruned(row: Row) -> PrunedCheckpoint:
    return PrunedCheckpoint(
        id=row["id"],
        mission_id=row["mission_id"],
        timestamp=row["timestamp"],
        trigger=row["trigger"],
        size_bytes=row["size_bytes"],
    )


def _doomed(tx: Tx, ctx: Context, terms: Terms, rows: list[Row]) -> Iterable[Row]:
    """Return those checkpoints of one mission that have to go."""
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=rows[0]["mission_id"])
    if mission is None:
        return []
    if mission["status"] in OPEN_MISSION:
        return _doomed_of_open(tx, ctx, terms, mission["id"], rows)
    return _doomed_of_finished(tx, ctx, mission, rows)


def _doomed_of_open(
    tx: Tx, ctx: Context, terms: Terms, mission_id: str, rows: list[Row]
) -> list[Row]:
    oldest_kept = tx.value(
        f"SELECT seq FROM checkpoints WHERE mission_id = :id AND {LIVE}"
        " ORDER BY seq DESC LIMIT 1 OFFSET :others",
        id=mission_id,
        others=terms.keep - 1,
    )
    if oldest_kept is None:  # there are fewer than that
        return []
    # The two differ while the newest one's file cannot be written.
    needed = {_newest(tx, mission_id), newest_with_file(tx, POLICIES["checkpoint"], mission_id)}
    doomed = [
        row
        for row in rows
        if row["seq"] < oldest_kept
        and row["id"] not in needed
        and _is_older(ctx, row["timestamp"], terms.days)
    ]
    if any(_unused(row) for row in doomed) and detect(tx, ctx, mission_id).candidates:
        return [row for row in doomed if not _unused(row)]
    return doomed


def _is_older(ctx: Context, timestamp: str, days: int) -> bool:
    """Whether a moment is more than so many days ago; 0 days ask for no age at all."""
    return days == 0 or timestamp < ctx.at(-days * DAY_MS)


def _unused(row: Row) -> bool:
    return row["consumed_at"] is None and not row["undo"]


def _doomed_of_finished(tx: Tx, ctx: Context, mission: Row, rows: list[Row]) -> list[Row]:
    """Of a finished mission only the final one stays, so many days from the mission's end."""
    final = _final(tx, mission)
    days = ctx.config.retention.completed_days
    ended = mission["completed_at"] or ""
    return [
        row
        for row in rows
        if row["id"] != final or _is_older(ctx, max(row["timestamp"], ended), days)
    ]


def _final(tx: Tx, mission: Row) -> str | None:
    """Return the checkpoint that closed a mission, else its newest one."""
    closing = None
    if mission["status"] == "completed":
        closing = _newest(tx, mission["id"], " AND trigger_details = :details", details=COMPLETED)
    return closing or _newest(tx, mission["id"])


def _newest(tx: Tx, mission_id: str, also: str = "", **params: str) -> str | None:
    """Return the newest checkpoint that is no undo checkpoint."""
    found: str | None = tx.value(
        f"SELECT id FROM checkpoints WHERE mission_id = :mission AND {LIVE} AND undo = 0{also}"
        " ORDER BY seq DESC LIMIT 1",
        mission=mission_id,
        **params,
    )
    return found


@handler
def mark(tx: Tx, request: PruneMark, ctx: Context) -> Marked:
    """Mark candidates deleted; what was used, deleted or needed since they were found stays."""
    marked: list[PrunedCheckpoint] = []
    for _, candidates in groupby(request.candidates, key=lambda candidate: candidate.mission_id):
        rows = [row for each in candidates if (row := _live(tx, each.id)) is not None]
        for row in _doomed(tx, ctx, request.terms, rows) if rows else ():
            mark_deleted(tx, ctx, "checkpoint", row["id"])
            marked.append(_pruned(row))
    return Marked(checkpoints=marked)


def _live(tx: Tx, checkpoint_id: str) -> Row | None:
    return tx.one(
        f"SELECT {_LOOKED_AT} FROM checkpoints WHERE id = :id AND {LIVE}", id=checkpoint_id
    )


@handler
def done(tx: Tx, request: PruneDone, ctx: Context) -> Done:
    """Say once, for all its pieces, what a pruning deleted."""
    emit(tx, ctx, CheckpointsPruned(deleted=request.deleted, freed_bytes=request.freed_bytes))
    return Done(done=True)
