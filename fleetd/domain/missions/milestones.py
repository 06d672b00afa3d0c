"""When a mission begins and which milestones it passes, in the transaction that changes it."""

from ...protocol.events import MissionStarted
from ...protocol.records import percent
from ..checkpoints import checkpoints
from ..core.context import Context
from ..core.event_log import emit
from ..core.tx import Row, Tx
from .progress import passed, recount


def begin_mission(tx: Tx, ctx: Context, mission: Row, by: str | None = None) -> None:
    """Put a pending mission in progress; work on a sortie begins its mission too.

    Otherwise a fleet that works on a pending mission would never be noticed when it falls silent.
    ``by`` is the agent that the event names.
    """
    if mission["status"] == "pending":
        tx.run(
            "UPDATE missions SET status = 'in_progress', started_at = :now, updated_at = :now"
            " WHERE id = :id",
            now=ctx.now,
            id=mission["id"],
        )
        emit(tx, ctx, MissionStarted(), mission_id=mission["id"], agent_id=by)


def reach_milestones(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> None:
    """Take one checkpoint for the highest milestone just passed, in this same transaction."""
    mission = recount(tx, mission_id)
    progress = percent(mission["completed_sorties"], mission["total_sorties"])
    mark = passed(progress)
    if mark <= mission["milestone"]:
        return
    tx.run("UPDATE missions SET milestone = :mark WHERE id = :id", mark=mark, id=mission_id)
    reason = checkpoints.Reason(
        trigger="progress", details=f"Reached {mark}% milestone", created_by=agent_id or "fleetd"
    )
    checkpoints.take(tx, ctx, mission_id, reason)
