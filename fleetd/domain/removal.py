"""What goes once a checkpoint is marked deleted: its file, then its row; must not mark any.

Nothing here is on the wire; the outbox asks for it, for many checkpoints at a time.
"""

from ..wire.base import Mutation, Query
from ..wire.model import Record
from .bounds import LIVE
from .context import Context
from .registry import handler
from .tx import Tx


class Removal(Record, frozen=True, kw_only=True):
    """Files of one mission that must go, and where latest.json must point afterwards."""

    mission_id: str
    checkpoint_ids: list[str]
    latest_id: str | None


class Removals(Record, frozen=True, kw_only=True):
    """Files that must go, mission by mission."""

    missions: list[Removal]


class RemovalsGet(Query[Removals], frozen=True):
    """Ask where the files of these checkpoints lie; those that are not marked are passed over."""

    checkpoint_ids: list[str]


class Purged(Record, frozen=True, kw_only=True):
    """How many rows went."""

    purged: int


class Purge(Mutation[Purged], frozen=True):
    """Remove the rows of checkpoints that are marked deleted and whose files are gone."""

    checkpoint_ids: list[str]


@handler
def removals(tx: Tx, request: RemovalsGet, ctx: Context) -> Removals:
    """Return the files to remove, grouped so that each directory is opened and synced once."""
    ids: dict[str, list[str]] = {}
    for checkpoint_id in request.checkpoint_ids:
        row = tx.one(
            "SELECT mission_id FROM checkpoints WHERE id = :id AND deleted_at IS NOT NULL",
            id=checkpoint_id,
        )
        if row is not None:
            ids.setdefault(row["mission_id"], []).append(checkpoint_id)
    return Removals(
        missions=[
            Removal(
                mission_id=mission_id,
                checkpoint_ids=going,
                latest_id=newest_with_file(tx, mission_id),
            )
            for mission_id, going in ids.items()
        ]
    )


def newest_with_file(tx: Tx, mission_id: str, coming: str | None = None) -> str | None:
    """Return the checkpoint that latest.json must name: the newest whose file is there.

    ``coming`` is one whose file is just being written. Undo checkpoints are passed over.
    """
    row = tx.one(
        f"SELECT id FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
        " AND undo = 0 AND (backed_up_at IS NOT NULL OR id = :coming) ORDER BY seq DESC LIMIT 1",
        mission=mission_id,
        coming=coming,
    )
    return row["id"] if row else None


@handler
def purge(tx: Tx, request: Purge, ctx: Context) -> Purged:
    """Remove marked rows; one that is not marked stays."""
    gone = [
        tx.one(
            "DELETE FROM checkpoints WHERE id = :id AND deleted_at IS NOT NULL RETURNING id",
            id=checkpoint_id,
        )
        for checkpoint_id in request.checkpoint_ids
    ]
    return Purged(purged=sum(row is not None for row in gone))
