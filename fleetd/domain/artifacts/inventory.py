"""Inventory: which records have a row and a file, which machine keeps it, which to verify next.

It works on names alone: no row is read where an index is enough.
"""

import msgspec

from ...protocol.types import Noun
from ..core.context import Context
from ..core.counters import What, tally
from ..core.soft_delete import KEPT_HERE, LIVE, UNSETTLED
from ..core.sql import Batch, inside_of, named_params
from ..core.tx import Row, Tx
from .kinds import KINDS, RecordKind
from .outbox import newest_kept_here


class RowNames(msgspec.Struct, frozen=True, kw_only=True):
    """The records of an owner that have a row.

    ``rows`` are all of them, ``live`` those that are not deleted, ``elsewhere`` those whose files
    another machine keeps. Among this machine's records, ``filed`` must have a file and ``old`` have
    an older version; ``newest`` is what ``latest.json`` should be.
    """

    owner_id: str
    rows: frozenset[str]
    filed: frozenset[str]
    live: frozenset[str]
    elsewhere: frozenset[str]
    old: list[str]
    newest: str | None


def owners(tx: Tx, ctx: Context, noun: Noun, after: str) -> Batch[list[str], str]:
    """Return the next missions that have checkpoints, or runs that have snapshots, by their ids."""
    kind = KINDS[noun]
    rows = tx.tuples(
        f"SELECT DISTINCT {kind.owner} FROM {kind.table} WHERE {kind.owner} > :after"
        f" ORDER BY {kind.owner} LIMIT :limit",
        after=after,
        limit=ctx.batches.rows,
    )
    found = [owner_id for (owner_id,) in rows]
    return Batch(found, found[-1] if len(found) == ctx.batches.rows else None)


def count_records(tx: Tx, ctx: Context, noun: Noun) -> int:
    """Return how many records of a noun there are."""
    what: What = "checkpoints" if noun == "checkpoint" else "snapshots"
    return tally(tx, what)


def names(tx: Tx, ctx: Context, noun: Noun, owner_ids: list[str]) -> list[RowNames]:
    """Return the names of some owners' records."""
    kind = KINDS[noun]
    unsettled = _unsettled(tx, kind)
    return [_names_of(tx, ctx, kind, each, unsettled.get(each, {})) for each in owner_ids]


def _unsettled(tx: Tx, kind: RecordKind) -> dict[str, dict[str, bool]]:
    """Return the records still to be settled, by owner, each with whether it is deleted.

    This reads an index that is nearly always empty. For a single owner, SQLite would read rows.
    """
    rows = tx.all(
        f"SELECT id, {kind.owner} AS owner, deleted_at FROM {kind.table} WHERE {UNSETTLED}"
    )
    found: dict[str, dict[str, bool]] = {}
    for row in rows:
        found.setdefault(row["owner"], {})[row["id"]] = row["deleted_at"] is not None
    return found


def _names_of(
    tx: Tx, ctx: Context, kind: RecordKind, owner_id: str, unsettled: dict[str, bool]
) -> RowNames:
    rows = tx.all(
        f"SELECT id, version, machine FROM {kind.table} WHERE {kind.owner} = :owner",
        owner=owner_id,
    )
    every = frozenset(row["id"] for row in rows)
    elsewhere = frozenset(row["id"] for row in rows if not ctx.is_here(row))
    live = every - {record_id for record_id, deleted in unsettled.items() if deleted}
    ours = live - elsewhere
    return RowNames(
        owner_id=owner_id,
        rows=every,
        filed=every - elsewhere - unsettled.keys(),
        live=live,
        elsewhere=elsewhere,
        old=[r["id"] for r in rows if r["version"] != kind.version and r["id"] in ours],
        newest=newest_kept_here(tx, kind, owner_id, elsewhere),
    )


def unknown_missions(tx: Tx, ctx: Context, mission_ids: list[str]) -> int:
    """Return how many of some missions have no row."""
    known: int = tx.value(
        f"SELECT count(*) FROM missions WHERE id IN ({inside_of('i', mission_ids)})",
        **named_params("i", mission_ids),
    )
    return len(mission_ids) - known


def keeper(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> str | None:
    """Return the label of the other machine that keeps a record's file; None for this one.

    It is also None for a record without a row, whose file no machine keeps.
    """
    row = tx.one(
        "SELECT r.machine AS id, m.name AS name"
        f" FROM {KINDS[noun].table} r LEFT JOIN machines m ON m.id = r.machine"
        " WHERE r.id = :id",
        id=record_id,
    )
    if row is None or row["id"] == ctx.machine:
        return None
    return machine_label(row["id"], row["name"])


def adopt(tx: Tx, ctx: Context, noun: Noun, record_ids: list[str]) -> int:
    """Take over records whose files are on this machine and whose own machine is gone.

    A machine that lost its id counts as a new one, and has the files of the old one. Records among
    them that are marked deleted are then removed as usual. Returns the number of records.
    """
    table = KINDS[noun].table
    rows = tx.all(
        f"UPDATE {table} SET machine = :machine WHERE id IN ({inside_of('i', record_ids)})"
        f" AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.id = {table}.machine"
        " AND m.status = 'here') RETURNING id",
        machine=ctx.machine,
        **named_params("i", record_ids),
    )
    return len(rows)


def machine_label(machine_id: str, name: str | None) -> str:
    """Return the label of a machine: its computer's name, and the id that distinguishes it.

    A machine that the store no longer knows has only its id.
    """
    if name and name.endswith(f"({machine_id})"):  # it has a namesake
        return name
    return f"{name} ({machine_id})" if name else machine_id or "another machine"


AHEAD_MS = 3_600_000


class UnverifiedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A record with a file on this machine, and its owner."""

    id: str
    owner_id: str


def unverified(tx: Tx, ctx: Context, noun: Noun, before: str, most: int) -> list[UnverifiedFile]:
    """Return files that were last verified, or written, before a moment, the oldest first.

    They are read from an index of exactly these files.
    """
    rows = _filed(tx, ctx, noun, "verified_at < :limit", before, most)
    if len(rows) < most:  # noted by a clock that was ahead: the real time is unknown
        rows += _filed(tx, ctx, noun, "verified_at > :limit", ctx.at(AHEAD_MS), most - len(rows))
    return [UnverifiedFile(id=row["id"], owner_id=row["owner"]) for row in rows]


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
    """Move records to the end of the queue, whatever the result of their verification."""
    tx.run(
        f"UPDATE {KINDS[noun].table} SET verified_at = :now"
        f" WHERE id IN ({inside_of('i', record_ids)})",
        now=ctx.now,
        **named_params("i", record_ids),
    )


PullCursor = tuple[int, str]
"""Position in the log and id of the last checkpoint that was looked at."""
NEWEST: PullCursor = (2**62, "")


def batch(
    tx: Tx, ctx: Context, mission_id: str, cursor: PullCursor
) -> Batch[dict[str, bool], PullCursor]:
    """Return the next of a mission's checkpoints, newest first, without reading the content.

    Each comes with whether ``latest.json`` may be it.
    """
    rows = tx.all(
        f"SELECT id, seq, undo FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
        " AND (seq, id) < (:seq, :id) ORDER BY seq DESC, id DESC LIMIT :most",
        mission=mission_id,
        seq=cursor[0],
        id=cursor[1],
        most=ctx.batches.pulled,
    )
    following = (rows[-1]["seq"], rows[-1]["id"]) if len(rows) == ctx.batches.pulled else None
    return Batch({row["id"]: not row["undo"] for row in rows}, following)


def content(tx: Tx, ctx: Context, checkpoint_id: str) -> bytes | None:
    """Return the content of a checkpoint's file as its own machine writes it, once verified.

    None when the checkpoint was deleted. Raises Corrupt for a damaged row.
    """
    row = tx.one(f"SELECT * FROM checkpoints WHERE id = :id AND {LIVE}", id=checkpoint_id)
    return KINDS["checkpoint"].file_of(row) if row else None
