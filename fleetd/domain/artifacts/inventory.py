"""Inventory of rows, by names alone: no row is read where an index will do."""

import msgspec

from ...protocol.types import Noun
from ..core.context import Context
from ..core.counters import What, tally
from ..core.soft_delete import UNSETTLED
from ..core.tx import Tx
from .kinds import KINDS, RecordKind
from .latest import newest_kept_here


class RowNames(msgspec.Struct, frozen=True, kw_only=True):
    """The records of an owner that have a row.

    ``rows`` are all of them, ``live`` those that are not deleted, ``elsewhere`` those whose files
    another machine keeps. Of this machine's, ``filed`` are those that must have a file, ``old``
    those of an older version; ``newest`` is what ``latest.json`` should be.
    """

    owner_id: str
    rows: frozenset[str]
    filed: frozenset[str]
    live: frozenset[str]
    elsewhere: frozenset[str]
    old: list[str]
    newest: str | None


def owners(tx: Tx, ctx: Context, noun: Noun) -> list[str]:
    """Return the missions that have checkpoints, or the runs that have snapshots."""
    kind = KINDS[noun]
    rows = tx.all(f"SELECT DISTINCT {kind.owner} AS id FROM {kind.table}")
    return [row["id"] for row in rows]


def number_of(tx: Tx, ctx: Context, noun: Noun) -> int:
    """Return how many records of a noun there are."""
    what: What = "checkpoints" if noun == "checkpoint" else "snapshots"
    return tally(tx, what)


def names(tx: Tx, ctx: Context, noun: Noun, owner_ids: list[str]) -> list[RowNames]:
    """Return the names of some owners' records."""
    kind = KINDS[noun]
    unsettled = _unsettled(tx, kind)
    return [_names_of(tx, ctx, kind, each, unsettled.get(each, {})) for each in owner_ids]


def _unsettled(tx: Tx, kind: RecordKind) -> dict[str, dict[str, bool]]:
    """Return what is still to be done, by owner: for each record whether it is deleted.

    Read from an index that is nearly always empty; asked for one owner, SQLite would read rows.
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
    named = {f"id_{n}": each for n, each in enumerate(mission_ids)}
    marks = ", ".join(f":{name}" for name in named)
    known = tx.value(f"SELECT count(*) AS known FROM missions WHERE id IN ({marks})", **named)
    missing: int = len(named) - known
    return missing
