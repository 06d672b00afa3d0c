"""Pruning: finds expired checkpoints and snapshots, and marks them, batch by batch.

Finding only reads. The transaction that marks checks the records again, since much may have
happened in between. Every batch is bounded, so that nobody waits long for one.

A mission always keeps its newest ``keep`` checkpoints. While it is unfinished, it keeps the target
of ``latest.json``; while it waits for recovery, an unused one. A run always keeps its latest
``failed`` and its latest ``completed`` snapshot. It keeps the latest 50 others for 14 days.
"""

from collections.abc import Callable, Iterable
from itertools import groupby

from ...protocol.errors import NotFound
from ...protocol.events import SnapshotsPruned
from ...protocol.records import Record
from ...protocol.types import OPEN_MISSION, Noun
from ..artifacts.kinds import KINDS, RecordKind
from ..artifacts.outbox import newest_with_file
from ..checkpoints.checkpoints import COMPLETED
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.registry import frees_space
from ..core.soft_delete import LIVE, mark_deleted
from ..core.sql import LIVING, Batch
from ..core.tx import Row, Tx
from ..liveness.silence import detect


class RetentionPolicy(Record, frozen=True, kw_only=True):
    """The age and the number of records of a noun to keep, and their owner; None for all owners."""

    days: int
    keep: int
    owner_id: str | None


def is_older(ctx: Context, timestamp: str, days: int) -> bool:
    """Whether a time is more than so many days ago; with 0 days, any age counts."""
    return days == 0 or timestamp < ctx.days_ago(days)


def _expired_checkpoints(
    tx: Tx, ctx: Context, policy: RetentionPolicy, rows: list[Row]
) -> Iterable[Row]:
    """Return which checkpoints of one mission are expired."""
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=rows[0]["owner_id"])
    if mission is None:
        return []
    if mission["status"] in OPEN_MISSION:
        return _expired_of_open(tx, ctx, policy, mission["id"], rows)
    return _expired_of_finished(tx, ctx, mission, rows)


def _expired_of_open(
    tx: Tx, ctx: Context, policy: RetentionPolicy, mission_id: str, rows: list[Row]
) -> list[Row]:
    oldest_kept = tx.value(
        f"SELECT seq FROM checkpoints WHERE mission_id = :id AND {LIVE}"
        " ORDER BY seq DESC LIMIT 1 OFFSET :others",
        id=mission_id,
        others=policy.keep - 1,
    )
    if oldest_kept is None:  # there are fewer than that
        return []
    # The two differ while the newest one's file cannot be written.
    needed = {
        _newest_checkpoint(tx, mission_id),
        newest_with_file(tx, KINDS["checkpoint"], mission_id),
    }
    old = [
        row
        for row in rows
        if row["seq"] < oldest_kept
        and row["id"] not in needed
        and is_older(ctx, row["timestamp"], policy.days)
    ]
    if any(_unused(row) for row in old) and detect(tx, ctx, mission_id).candidates:
        return [row for row in old if not _unused(row)]
    return old


def _unused(row: Row) -> bool:
    return row["consumed_at"] is None and not row["undo"]


def _expired_of_finished(tx: Tx, ctx: Context, mission: Row, rows: list[Row]) -> list[Row]:
    """Return all but the final checkpoint, which expires some days after the mission's end."""
    final = _final(tx, mission)
    days = ctx.config.retention.completed_days
    ended = mission["completed_at"] or ""
    return [
        row
        for row in rows
        if row["id"] != final or is_older(ctx, max(row["timestamp"], ended), days)
    ]


def _final(tx: Tx, mission: Row) -> str | None:
    """Return the checkpoint that closed a mission, else its newest one."""
    closing = None
    if mission["status"] == "completed":
        closing = _newest_checkpoint(
            tx, mission["id"], " AND trigger_details = :details", details=COMPLETED
        )
    return closing or _newest_checkpoint(tx, mission["id"])


def _newest_checkpoint(tx: Tx, mission_id: str, also: str = "", **params: str) -> str | None:
    """Return the newest checkpoint that is not an undo checkpoint."""
    found: str | None = tx.value(
        f"SELECT id FROM checkpoints WHERE mission_id = :mission AND {LIVE} AND undo = 0{also}"
        " ORDER BY seq DESC LIMIT 1",
        mission=mission_id,
        **params,
    )
    return found


# The statuses in which a run can end, and to which its recovery context may have to go back.
TERMINAL = ("failed", "completed")


def _expired_snapshots(tx: Tx, ctx: Context, policy: RetentionPolicy, rows: list[Row]) -> list[Row]:
    """Return which snapshots of one run are expired."""
    every = _newest_first(tx, rows[0]["owner_id"])
    kept, latest = _preserved(every), {row["id"] for row in every[: policy.keep]}
    return [
        row
        for row in rows
        if row["id"] not in kept
        and (row["id"] not in latest or is_older(ctx, row["timestamp"], policy.days))
    ]


def drop_surplus(tx: Tx, ctx: Context, run_id: str) -> None:
    """Limit a run's number of snapshots, whatever their age; delete the oldest first."""
    rows = _newest_first(tx, run_id)
    kept = _preserved(rows)
    beyond = rows[ctx.config.retention.snapshots_per_run :]
    # A lowered limit is reached step by step, so that a snapshot does not wait for it.
    going = [row for row in reversed(beyond) if row["id"] not in kept][: ctx.batches.surplus]
    if not going:
        return
    for row in going:
        mark_deleted(tx, ctx, "snapshot", row["id"])
    freed = sum(row["size_bytes"] for row in going)
    emit(tx, ctx, SnapshotsPruned(deleted=len(going), freed_bytes=freed))


def _newest_first(tx: Tx, run_id: str) -> list[Row]:
    """Return the columns of a run's snapshots that retention needs, the newest first."""
    return tx.all(
        f"SELECT id, status, size_bytes FROM snapshots WHERE run_id = :run AND {LIVE}"
        " ORDER BY seq DESC",
        run=run_id,
    )


def _preserved(newest: list[Row]) -> set[str]:
    """Return the snapshots of a run that stay, whatever their number and age."""
    latest = (
        next((row["id"] for row in newest if row["status"] == status), None) for status in TERMINAL
    )
    return {snapshot_id for snapshot_id in latest if snapshot_id}


@frees_space
def drop_empty_runs(tx: Tx, ctx: Context) -> list[str]:
    """Drop some runs without snapshots, and return them; none when there are no more.

    A run whose agent lives stays: it may be recorded again.
    """
    rows = tx.all(
        "DELETE FROM runs WHERE id IN (SELECT r.id FROM runs r"
        " LEFT JOIN agents a ON a.id = r.agent_id"
        f" WHERE (a.id IS NULL OR a.status NOT IN {LIVING})"
        " AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = r.id)"
        " ORDER BY r.id LIMIT :most) RETURNING id",
        most=ctx.batches.rows,
    )
    return sorted(row["id"] for row in rows)


_EXPIRED: dict[Noun, Callable[[Tx, Context, RetentionPolicy, list[Row]], Iterable[Row]]] = {
    "checkpoint": _expired_checkpoints,
    "snapshot": _expired_snapshots,
}


class PruneCursor(Record, frozen=True, kw_only=True):
    """The position of a pruning: owner by owner, the oldest records of each first."""

    owner_id: str = ""
    seq: int = -(2**62)
    record_id: str = ""


class PruneCandidate(Record, frozen=True, kw_only=True):
    """An expired record; ``cause`` says why it was taken."""

    id: str
    owner_id: str
    timestamp: str
    cause: str
    size_bytes: int


def policy(
    tx: Tx, ctx: Context, noun: Noun, owner_id: str | None, days: int | None, keep: int | None
) -> RetentionPolicy:
    """Return the given limits, else the configured ones; raises NotFound for the owner."""
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
    if not tx.exists("SELECT id FROM runs WHERE id = :id", id=given):
        raise NotFound(
            f"Run not found: {given}",
            hint="fleetctl snapshot list shows the runs with snapshots.",
            noun="run",
            id=given,
        )
    return given


def look(
    tx: Tx, ctx: Context, noun: Noun, policy: RetentionPolicy, cursor: PruneCursor
) -> Batch[list[PruneCandidate], PruneCursor]:
    """Return the expired ones of the next records, the oldest of each owner first."""
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
    """Mark candidates deleted, except those that were used, deleted or needed since."""
    marked = list[PruneCandidate]()
    for _, candidates in groupby(found, key=lambda candidate: candidate.owner_id):
        rows = [row for each in candidates if (row := _live_row(tx, noun, each.id)) is not None]
        for row in _EXPIRED[noun](tx, ctx, policy, rows) if rows else ():
            mark_deleted(tx, ctx, noun, row["id"])
            marked.append(_candidate(row))
    return marked


def _live_row(tx: Tx, noun: Noun, record_id: str) -> Row | None:
    kind = KINDS[noun]
    return tx.one(f"SELECT {kind.judged} FROM {kind.table} WHERE id = :id AND {LIVE}", id=record_id)


@frees_space
def announce(tx: Tx, ctx: Context, noun: Noun, deleted: int, freed_bytes: int) -> None:
    """Emit one event about what all batches of a pruning deleted."""
    emit(tx, ctx, KINDS[noun].pruned(deleted=deleted, freed_bytes=freed_bytes))
