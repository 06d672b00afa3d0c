"""Deleting on request: a checkpoint, a finished mission with all that belongs to it."""

from ...protocol.errors import InvalidState
from ...protocol.events import CheckpointDeleted, MissionDeleted
from ...protocol.requests.checkpoint import CheckpointDelete
from ...protocol.requests.mission import Deleted
from ...protocol.types import OPEN_MISSION
from ..artifacts import soft_delete
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.registry import frees_space
from ..core.tx import Row, Tx
from ..locks import leases
from . import tombstones
from .erase import free_locks


@frees_space
def delete_checkpoint(tx: Tx, ctx: Context, request: CheckpointDelete) -> Deleted:
    """Mark a checkpoint deleted; its file and then its row go after COMMIT."""
    row = soft_delete.find_live(tx, "checkpoint", request.checkpoint_id)
    soft_delete.mark_deleted(tx, ctx, "checkpoint", row["id"])
    emit(tx, ctx, CheckpointDeleted(checkpoint_id=row["id"]), mission_id=row["mission_id"])
    return Deleted(deleted=True)


def find_finished(tx: Tx, mission_id: str) -> Row:
    """Return the row of a mission that may be deleted; raises NotFound or InvalidState."""
    row = find(tx, "mission", mission_id)
    if row["status"] in OPEN_MISSION:
        raise InvalidState(
            f"Mission {row['id']} is {row['status']}; only a finished mission can be deleted.",
            hint=f"End it first, such as with: fleetctl mission cancel {row['id']} --reason …",
            status=row["status"],
        )
    return row


def delete_mission(tx: Tx, ctx: Context, mission_id: str) -> None:
    """Delete a finished mission with its sorties, mail, events, recoveries and checkpoints.

    The files of its checkpoints must have gone before, so that none brings it back.
    """
    row = find_finished(tx, mission_id)
    tx.run("UPDATE lock_waits SET mission_id = NULL WHERE mission_id = :id", id=row["id"])
    freed = free_locks(tx, "mission_id = :id", {"id": row["id"]})
    tx.run("DELETE FROM events WHERE mission_id = :id", id=row["id"])
    tx.run("DELETE FROM cursors WHERE stream = 'mission:' || :id", id=row["id"])
    if _kept_elsewhere(tx, ctx, row["id"]):
        tombstones.note(tx, "mission", row["id"], None)
    # Sorties, mail, recoveries, checkpoints and episodes hang on the mission's row and go with it.
    tx.run("DELETE FROM missions WHERE id = :id", id=row["id"])
    emit(tx, ctx, MissionDeleted(sorties=row["total_sorties"]))
    for path in freed:
        leases.serve(tx, ctx, path)


def _kept_elsewhere(tx: Tx, ctx: Context, mission_id: str) -> bool:
    """Whether another machine still has a file of a mission, which would bring it back."""
    found = tx.one(
        "SELECT 1 AS there FROM checkpoints WHERE mission_id = :id AND machine <> :machine LIMIT 1",
        id=mission_id,
        machine=ctx.machine,
    )
    return found is not None
