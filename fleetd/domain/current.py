"""Which mission a directory belongs to; must not change anything."""

import os.path

from ..wire.errors import InvalidState
from ..wire.requests.mission import CurrentMission, MissionCurrent
from ..wire.types import OPEN_MISSION
from .context import Context
from .records import mission_of
from .registry import handler
from .tx import Row, Tx


@handler
def current(tx: Tx, request: MissionCurrent, ctx: Context) -> CurrentMission:
    """Return the mission that a directory belongs to."""
    row = current_row(tx, ctx, request.cwd, request.agent_id)
    if row is None:
        return CurrentMission(mission=None)
    return CurrentMission(mission=mission_of(row), belongs=belongs(ctx, row, request.cwd))


def current_row(tx: Tx, ctx: Context, cwd: str | None, agent_id: str | None = None) -> Row | None:
    """Find the current mission (source: behaviour, Missions and progress).

    The mission in progress of the agent that asks; else the one whose project directory contains
    ``cwd``, the most recently active first; else the one that another machine has in progress for
    the same project; else the only one in progress; else None. What somebody created comes before
    what was made by itself, and what was made by itself is nobody else's anywhere but in its
    directory. Raises InvalidState when several are in progress and none is this directory's.
    """
    own = agent_id and tx.one(
        "SELECT m.* FROM agents a JOIN missions m ON m.id = a.mission_id"
        " WHERE a.id = :id AND m.status = 'in_progress'",
        id=agent_id,
    )
    if own:
        return own
    there = _around(tx, ctx, cwd, ["in_progress"]) or _elsewhere(tx, ctx)
    if there:
        return min(there, key=is_automatic)  # the order among equals stays
    rows = tx.all(
        "SELECT * FROM missions WHERE status = 'in_progress'"
        " ORDER BY last_activity_seq DESC, created_at DESC"
    )
    rows = _created(rows)
    if len(rows) > 1:
        raise InvalidState(
            f"{len(rows)} missions are in progress and none belongs to this directory: "
            + ", ".join(f"{row['id']} ({row['title']})" for row in rows[:5])
            + (", ..." if len(rows) > 5 else "")
            + ".",
            hint="Use --mission <id> to specify.",
            candidates=[{"id": row["id"], "title": row["title"]} for row in rows[:20]],
        )
    return rows[0] if rows else None


def of_directory(tx: Tx, ctx: Context, cwd: str | None) -> str | None:
    """Return the mission in progress that somebody created for a directory around ``cwd``.

    Where there is none, the one that another machine has in progress for the same project.
    """
    there = _created(_around(tx, ctx, cwd, ["in_progress"])) or _elsewhere(tx, ctx)
    return next((row["id"] for row in there), None)


def to_join(tx: Tx, ctx: Context, cwd: str | None) -> Row | None:
    """Return the open mission that somebody created for a directory: as for who asks for the
    current one, one that was started comes before those that wait; the one at work last first.

    One that was made by itself for another session is no mission to join. Where there is none, it
    is the one that another machine has in progress for the same project.
    """
    there = _created(_around(tx, ctx, cwd, [*OPEN_MISSION])) or _elsewhere(tx, ctx)
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
    """Return the mission that was closed last with a session in a directory around ``cwd``."""
    there = filter(is_automatic, _around(tx, ctx, cwd, ["completed", "cancelled"]))
    return max(there, key=lambda row: row["completed_at"] or "", default=None)


def _created(missions: list[Row]) -> list[Row]:
    """Return those that somebody created."""
    return [row for row in missions if not is_automatic(row)]


def _around(tx: Tx, ctx: Context, cwd: str | None, states: list[str]) -> list[Row]:
    """Return this machine's missions of the directories around a path, the most recently active
    first.

    Asked for by the names of those directories: however many other missions there are.
    """
    if not cwd:
        return []
    places = {f"place{n}": place for n, place in enumerate(_and_above(os.path.normpath(cwd)))}
    which = {f"status{n}": status for n, status in enumerate(states)}
    return tx.all(
        f"SELECT * FROM missions WHERE machine = :machine AND project_dir IN ({_named(places)})"
        f" AND status IN ({_named(which)}) ORDER BY last_activity_seq DESC, created_at DESC",
        machine=ctx.machine,
        **places,
        **which,
    )


def _elsewhere(tx: Tx, ctx: Context) -> list[Row]:
    """Return the mission in progress that somebody created for the same project, on any machine.

    Of several none: which is meant would be a guess.
    """
    if not ctx.facts.places:
        return []
    places = {f"place{n}": place for n, place in enumerate(ctx.facts.places)}
    found = _created(
        tx.all(
            f"SELECT * FROM missions WHERE project IN ({_named(places)})"
            " AND status = 'in_progress'",
            **places,
        )
    )
    return found if len(found) == 1 else []


def _named(params: dict[str, str]) -> str:
    return ", ".join(f":{name}" for name in params)


def _and_above(path: str) -> list[str]:
    """Return a path and every directory that it lies in, by their names as they stand."""
    found = [path]
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


def within(place: str, path: str) -> bool:
    """Whether a path is a place, or below it, by their names as they stand."""
    return path == place or path.startswith(place.rstrip("/") + "/")
