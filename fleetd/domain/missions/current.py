"""Missions of a directory: its own, those an agent joins or inherits, those of its project."""

import os.path

from ...host.file_system import within
from ...protocol.types import OPEN_MISSION
from ..core.context import Context
from ..core.sql import inside_of, named_params
from ..core.tx import Row, Tx


def of_directory(tx: Tx, ctx: Context, cwd: str | None) -> str | None:
    """Return the mission in progress that somebody created for a directory around ``cwd``.

    Where there is none, the one that another machine has in progress for the same project.
    """
    there = created(around(tx, ctx, cwd, ["in_progress"])) or of_project(tx, ctx)
    return next((row["id"] for row in there), None)


def to_join(tx: Tx, ctx: Context, cwd: str | None) -> Row | None:
    """Return the open mission that somebody created for a directory: as for who asks for the
    current one, one that was started comes before those that wait; the one at work last first.

    One that was made by itself for another session is no mission to join. Where there is none, it
    is the one that another machine has in progress for the same project.
    """
    there = created(around(tx, ctx, cwd, [*OPEN_MISSION])) or of_project(tx, ctx)
    return min(there, key=lambda row: row["status"] != "in_progress", default=None)


def inherited(tx: Tx, agent_id: str | None) -> Row | None:
    """Return the open mission in which an agent took work over that it has not begun on.

    It may not have been there yet: then it goes there when it comes. ``role`` is that of the agent
    whose work it was.
    """
    return tx.one(
        "SELECT m.id, lost.role FROM recoveries r JOIN missions m ON m.id = r.mission_id"
        " JOIN agents lost ON lost.id = r.taken_over_from AND lost.succeeded_by = r.agent_id"
        " WHERE r.agent_id = :agent AND r.state <> 'resumed' AND r.state <> 'pending'"
        " AND m.status IN ('pending', 'in_progress') ORDER BY r.seq DESC LIMIT 1",
        agent=agent_id,
    )


def session_before(tx: Tx, ctx: Context, cwd: str | None) -> Row | None:
    """Return the mission that was closed last with a session in a directory around ``cwd``.

    One that was merged into another mission holds nothing that its session would go on with.
    """
    there = filter(is_automatic, around(tx, ctx, cwd, ["completed", "cancelled"]))
    closed = [row for row in there if row["closed_reason"] != "merged"]
    return max(closed, key=lambda row: row["completed_at"] or "", default=None)


def created(missions: list[Row]) -> list[Row]:
    """Return those that somebody created."""
    return [row for row in missions if not is_automatic(row)]


def around(tx: Tx, ctx: Context, cwd: str | None, states: list[str]) -> list[Row]:
    """Return this machine's missions of the directories around a path, the most recently active
    first.

    Asked for by the names of those directories: however many other missions there are.
    """
    if not cwd:
        return []
    places = places_around(cwd)
    return tx.all(
        "SELECT * FROM missions WHERE machine = :machine"
        f" AND project_dir IN ({inside_of('place', places)})"
        f" AND status IN ({inside_of('status', states)})"
        " ORDER BY last_activity_seq DESC, created_at DESC",
        machine=ctx.machine,
        **named_params("place", places),
        **named_params("status", states),
    )


def of_project(tx: Tx, ctx: Context) -> list[Row]:
    """Return the mission in progress that somebody created for the same project, on any machine.

    Of several none: which is meant would be a guess.
    """
    places = ctx.facts.places
    if not places:
        return []
    rows = tx.all(
        f"SELECT * FROM missions WHERE project IN ({inside_of('place', places)})"
        " AND status = 'in_progress'",
        **named_params("place", places),
    )
    found = created(rows)
    return found if len(found) == 1 else []


def places_around(cwd: str) -> list[str]:
    """Return a directory and every one that it lies in, by their names as they stand."""
    found = [os.path.normpath(cwd)]
    while above := found[-1].rpartition("/")[0]:
        found.append(above)
    return [*found, "/"]


def is_automatic(mission: Row) -> bool:
    """Whether a mission was made by itself for one session."""
    return bool(mission["origin"] == "session")


def belongs(ctx: Context, mission: Row, cwd: str | None) -> bool:
    """Whether a directory of this machine is the mission's, or below it; or of its project."""
    if mission["project"] is not None and mission["project"] in ctx.facts.places:
        return True
    return mission["machine"] == ctx.machine and lies_in(mission["project_dir"], cwd)


def lies_in(place: str | None, cwd: str | None) -> bool:
    """Whether a directory is a place, or below it; a missing one is nowhere."""
    if not place or not cwd:
        return False
    return within(place, os.path.normpath(cwd))
