"""Deleting on request: a checkpoint, a finished mission with all that belongs to it."""

from ..wire.errors import InvalidState, Storage
from ..wire.events import CheckpointDeleted, MissionDeleted
from ..wire.requests.checkpoint import CheckpointDelete
from ..wire.requests.mission import Deleted, MissionDelete
from ..wire.types import OPEN_MISSION
from . import bounds, checkpoints, leases
from .context import Context
from .erasing import free_locks
from .events import emit
from .ids import find
from .registry import handler
from .tx import Tx


@handler
def delete_checkpoint(tx: Tx, request: CheckpointDelete, ctx: Context) -> Deleted:
    """Mark a checkpoint deleted; its file and then its row go after COMMIT."""
    row = checkpoints.find_row(tx, request.checkpoint_id)
    bounds.mark_deleted(tx, ctx, row["id"])
    emit(tx, ctx, CheckpointDeleted(checkpoint_id=row["id"]), mission_id=row["mission_id"])
    return Deleted(deleted=True)


@handler
def delete_mission(tx: Tx, request: MissionDelete, ctx: Context) -> Deleted:
    """Delete a finished mission with its sorties, mail, events, recoveries and checkpoints.

    Its checkpoints must have been deleted before, files first, so that none comes back.
    """
    row = find(tx, "mission", request.mission_id)
    if row["status"] in OPEN_MISSION:
        raise InvalidState(
            f"Mission {row['id']} is {row['status']}; only a finished mission can be deleted.",
            hint=f"End it first, such as with: fleetctl mission cancel {row['id']} --reason …",
            status=row["status"],
        )
    left = tx.one("SELECT id FROM checkpoints WHERE mission_id = :id", id=row["id"])
    if left is not None:
        raise Storage(
            f"The file of checkpoint {left['id']} could not be removed; the mission stays.",
            hint="The log says why; remove the cause and delete the mission again.",
            checkpoint_id=left["id"],
        )
    tx.run("UPDATE lock_waits SET mission_id = NULL WHERE mission_id = :id", id=row["id"])
    freed = free_locks(tx, "mission_id = :id", {"id": row["id"]})
    tx.run("DELETE FROM events WHERE mission_id = :id", id=row["id"])
    tx.run("DELETE FROM cursors WHERE stream = 'mission:' || :id", id=row["id"])
    # Sorties, mail, recoveries and episodes hang on the mission's row and go with it.
    tx.run("DELETE FROM missions WHERE id = :id", id=row["id"])
    emit(tx, ctx, MissionDeleted(sorties=row["total_sorties"]))
    for path in freed:
        leases.serve(tx, ctx, path)
    return Deleted(deleted=True)
