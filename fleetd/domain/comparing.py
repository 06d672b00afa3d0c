"""Which checkpoints have rows, by names alone; must not read a row where an index will do.

Nothing here is on the wire; comparing rows with files asks for it.
"""

from ..wire.base import Query
from ..wire.model import CHECKPOINT_VERSION, Record
from .bounds import LIVE
from .context import Context
from .registry import handler
from .tx import Tx


class Missions(Record, frozen=True, kw_only=True):
    """Missions that have checkpoints."""

    ids: list[str]


class CheckpointedMissions(Query[Missions], frozen=True):
    """Ask which missions have rows of checkpoints."""


class RowNames(Record, frozen=True, kw_only=True):
    """The checkpoints of a mission that have a row.

    ``rows`` are all of them, ``filed`` those that must have a file, ``live`` those that are not
    deleted, ``old`` those of an older version; ``newest`` is what ``latest.json`` should name.
    """

    mission_id: str
    rows: frozenset[str]
    filed: frozenset[str]
    live: frozenset[str]
    old: list[str]
    newest: str | None


class Names(Record, frozen=True, kw_only=True):
    """The names of several missions."""

    missions: list[RowNames]


class NamesGet(Query[Names], frozen=True):
    """Ask for the names of some missions' checkpoints."""

    mission_ids: list[str]


class Newest(Record, frozen=True, kw_only=True):
    """The newest checkpoint that has a file, if any has."""

    checkpoint_id: str | None


class NewestFiled(Query[Newest], frozen=True):
    """Ask which of the checkpoints with a file is the newest that ``latest.json`` may name."""

    mission_id: str
    files: frozenset[str]


@handler
def checkpointed(tx: Tx, request: CheckpointedMissions, ctx: Context) -> Missions:
    """Return the missions that have checkpoints."""
    rows = tx.all("SELECT DISTINCT mission_id FROM checkpoints")
    return Missions(ids=[row["mission_id"] for row in rows])


@handler
def names(tx: Tx, request: NamesGet, ctx: Context) -> Names:
    """Return the names of some missions' checkpoints."""
    return Names(missions=[_names_of(tx, mission_id) for mission_id in request.mission_ids])


def _names_of(tx: Tx, mission_id: str) -> RowNames:
    rows = tx.all("SELECT id, version FROM checkpoints WHERE mission_id = :id", id=mission_id)
    # Read from the index of what is still to be done, which is nearly always empty.
    owed = tx.all(
        "SELECT id, deleted_at FROM checkpoints WHERE mission_id = :id"
        " AND (backed_up_at IS NULL OR deleted_at IS NOT NULL)",
        id=mission_id,
    )
    newest = tx.one(
        f"SELECT id FROM checkpoints WHERE mission_id = :id AND {LIVE} AND undo = 0"
        " ORDER BY seq DESC LIMIT 1",
        id=mission_id,
    )
    every = frozenset(row["id"] for row in rows)
    live = every - {row["id"] for row in owed if row["deleted_at"] is not None}
    return RowNames(
        mission_id=mission_id,
        rows=every,
        filed=every - {row["id"] for row in owed},
        live=live,
        old=[r["id"] for r in rows if r["version"] != CHECKPOINT_VERSION and r["id"] in live],
        newest=newest["id"] if newest else None,
    )


@handler
def newest_filed(tx: Tx, request: NewestFiled, ctx: Context) -> Newest:
    """Return the newest checkpoint that is no undo checkpoint and has a file."""
    rows = tx.all(
        f"SELECT id FROM checkpoints WHERE mission_id = :id AND {LIVE} AND undo = 0"
        " ORDER BY seq DESC",
        id=request.mission_id,
    )
    found = (row["id"] for row in rows if row["id"] in request.files)
    return Newest(checkpoint_id=next(found, None))
