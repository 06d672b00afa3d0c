"""Progress of a mission: its beginning, its sortie counts and its milestones."""

from collections.abc import Sequence

from ...protocol.events import MissionStarted
from ...protocol.records import SortieState, percent
from ..checkpoints import checkpoints
from ..core.changes import mission_changed
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.tx import Row, Tx

MILESTONES = (25, 50, 75)


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
        fields = {"status": "in_progress", "started_at": ctx.now}
        mission_changed(tx, mission["id"], fields)
        emit(tx, ctx, MissionStarted(), mission_id=mission["id"], agent_id=by)


def reach_milestones(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> None:
    """Take one checkpoint for the highest milestone just passed, in this same transaction."""
    mission = update_sortie_counts(tx, mission_id)
    mark = highest_milestone(percent(mission["completed_sorties"], mission["total_sorties"]))
    if mark <= mission["milestone"]:
        return
    tx.run("UPDATE missions SET milestone = :mark WHERE id = :id", mark=mark, id=mission_id)
    reason = checkpoints.Reason(
        trigger="progress", details=f"Reached {mark}% milestone", created_by=agent_id or "fleetd"
    )
    checkpoints.take(tx, ctx, mission_id, reason)


def highest_milestone(progress: int) -> int:
    """Return the highest milestone that a progress in percent has reached, or 0."""
    return max((mark for mark in MILESTONES if mark <= progress), default=0)


def update_sortie_counts(tx: Tx, mission_id: str) -> Row:
    """Update a mission's sortie counts and return its row."""
    row = tx.one(
        "UPDATE missions SET"
        " total_sorties = (SELECT count(*) FROM sorties WHERE mission_id = :id),"
        " completed_sorties = (SELECT count(*) FROM sorties"
        " WHERE mission_id = :id AND status = 'completed')"
        " WHERE id = :id RETURNING *",
        id=mission_id,
    )
    if row is None:
        raise AssertionError(f"sorties of a mission that is gone: {mission_id}")
    return row


def reset_milestone(tx: Tx, mission_id: str, sorties: Sequence[SortieState]) -> Row:
    """Set a mission's counts and milestone according to its ``sorties``; return its row.

    A recovery calls this: milestones that it took back can be passed again, the others cannot.
    """
    row = find(tx, "mission", mission_id)
    done, total = sum(sortie.status == "completed" for sortie in sorties), len(sorties)
    columns: Row = {
        "total_sorties": total,
        "completed_sorties": done,
        "milestone": highest_milestone(percent(done, total)),
    }
    if columns.items() <= row.items():
        return row
    tx.run(
        "UPDATE missions SET total_sorties = :total_sorties,"
        " completed_sorties = :completed_sorties, milestone = :milestone WHERE id = :id",
        **columns,
        id=mission_id,
    )
    return row | columns
