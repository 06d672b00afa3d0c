"""The row of a checkpoint written anew from its verified file, and that of its mission."""

from ...protocol.records import Checkpoint
from ...protocol.types import OPEN_MISSION
from ..checkpoints.codec import to_columns
from ..checkpoints.state import State, origin_of
from ..core.context import Context
from ..core.ids import find
from ..core.tx import Row, Tx
from ..locks.leases import raise_tokens


def insert_checkpoint(tx: Tx, ctx: Context, content: Checkpoint) -> tuple[Row, bool]:
    """Write the row of a checkpoint that has none; tokens go on above those of its locks.

    Returns its columns, and whether its mission had to be made: that is to be caught up then.
    """
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=content.mission_id)
    made = mission is None
    mission = mission or _make_mission(tx, ctx, content)
    raise_tokens(tx, max((lock.fencing_token for lock in content.active_locks), default=0))
    columns = to_columns(content)
    beside = {
        "state_digest": _state(content, mission).digest(),
        "backed_up_at": ctx.now,
        "verified_at": ctx.now,
        "machine": ctx.machine,
    }
    tx.insert("checkpoints", columns | beside)
    return columns, made


def _state(content: Checkpoint, mission: Row) -> State:
    """Return the state of the mission that a checkpoint was taken of."""
    status = content.mission.status if content.mission else mission["status"]
    then = mission | {"status": status}
    return State(then, content.sorties, content.active_locks, content.pending_messages)


def _make_mission(tx: Tx, ctx: Context, content: Checkpoint) -> Row:
    """Write the row of a mission from what a checkpoint knows of it; open until it is caught up."""
    known = content.mission
    status = known.status if known and known.status in OPEN_MISSION else "in_progress"
    columns: Row = {
        "id": content.mission_id,
        "title": known.title if known else content.recovery_context.mission_summary or "Recovered",
        "description": known.description if known else None,
        "status": status,
        "priority": known.priority if known else "medium",
        "project_dir": known.project_dir if known else None,
        "created_at": (known and known.created_at) or content.timestamp,
        "updated_at": ctx.now,
        "started_at": (known and known.started_at)
        or (content.timestamp if status == "in_progress" else None),
        "origin": origin_of(known),
        "machine": ctx.machine,
    }
    tx.insert("missions", columns)
    return find(tx, "mission", content.mission_id)
