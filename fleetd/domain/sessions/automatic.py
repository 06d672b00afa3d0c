"""Missions that sessions get by themselves: begun, closed and opened again without a word."""

from ...wire.requests.mission import MissionCancel, MissionComplete, MissionCreate
from .. import missions
from ..activity import LIVING
from ..context import Context
from ..current import is_automatic
from ..ids import find
from ..milestones import begin_mission
from ..tx import Tx

TITLE_CHARS = 80


def begin(
    tx: Tx, ctx: Context, *, agent_id: str, project_dir: str | None, title: str | None, harness: str
) -> str:
    """Create and start a mission for a session."""
    lines = (title or "").strip().splitlines()
    request = MissionCreate(
        lines[0][:TITLE_CHARS] if lines else f"{harness} session",
        project_dir=project_dir,
        metadata={"automatic": True},
    )
    mission = missions.create(tx, request, ctx)
    begin_mission(tx, ctx, find(tx, "mission", mission.id))
    return mission.id


def end(tx: Tx, ctx: Context, mission_id: str, reason: str) -> None:
    """Close the mission of a session that has ended, unless somebody else works in it."""
    row = find(tx, "mission", mission_id)
    if not is_automatic(row) or row["status"] != "in_progress":
        return
    if tx.one(
        f"SELECT 1 AS there FROM agents WHERE mission_id = :id AND status IN {LIVING}",
        id=mission_id,
    ):
        return
    if row["completed_sorties"] == row["total_sorties"]:
        missions.complete(tx, MissionComplete(mission_id), ctx)
    else:
        missions.cancel(tx, MissionCancel(mission_id, reason), ctx)


def reopen(tx: Tx, ctx: Context, mission_id: str) -> bool:
    """Open the mission of a session again that is resumed; a person's mission stays as it is."""
    row = find(tx, "mission", mission_id)
    if not is_automatic(row):
        return False
    tx.run(
        "UPDATE missions SET status = 'in_progress', completed_at = NULL, updated_at = :now,"
        " active_awake_ms = :awake, silent = 0 WHERE id = :id",
        now=ctx.now,
        awake=ctx.awake_ms,
        id=mission_id,
    )
    return True
