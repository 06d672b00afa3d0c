"""Which mission a directory belongs to; must not change anything."""

import os.path

import msgspec

from ..wire.errors import InvalidState
from ..wire.requests.mission import CurrentMission, MissionCurrent
from .context import Context
from .records import mission_of
from .registry import handler
from .tx import Row, Tx


@handler
def current(tx: Tx, request: MissionCurrent, ctx: Context) -> CurrentMission:
    """Return the mission that a directory belongs to."""
    row = current_row(tx, request.cwd, request.agent_id)
    return CurrentMission(mission=mission_of(row) if row else None)


def current_row(tx: Tx, cwd: str | None, agent_id: str | None = None) -> Row | None:
    """Find the current mission (source: behaviour, Missions and progress).

    The mission in progress of the agent that asks; else the one whose project directory contains
    ``cwd``, the most recently active first; else the only one in progress; else None. What
    somebody created comes before what was made by itself, and what was made by itself is nobody
    else's anywhere but in its directory. Raises InvalidState when several are in progress and none
    is this directory's.
    """
    rows = tx.all(
        "SELECT * FROM missions WHERE status = 'in_progress'"
        " ORDER BY last_activity_seq DESC, created_at DESC"
    )
    rows.sort(key=is_automatic)  # the order among equals stays
    own = agent_id and tx.value("SELECT mission_id FROM agents WHERE id = :id", id=agent_id)
    for row in rows:
        if row["id"] == own:
            return row
    if cwd is not None:
        for row in rows:
            if belongs(row, cwd):
                return row
    rows = [row for row in rows if not is_automatic(row)]
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


def of_directory(tx: Tx, cwd: str | None) -> str | None:
    """Return the mission in progress that somebody created for a directory around ``cwd``."""
    if cwd is None:
        return None
    rows = tx.all(
        "SELECT id, project_dir, metadata_json FROM missions WHERE status = 'in_progress'"
        " AND project_dir IS NOT NULL ORDER BY last_activity_seq DESC"
    )
    there = (row for row in rows if belongs(row, cwd))
    return next((row["id"] for row in there if not is_automatic(row)), None)


def to_join(tx: Tx, cwd: str | None) -> Row | None:
    """Return the open mission that somebody created for a directory, the one at work last first.

    One that was made by itself for another session is no mission to join.
    """
    if cwd is None:
        return None
    rows = tx.all(
        "SELECT * FROM missions WHERE status IN ('pending', 'in_progress')"
        " AND project_dir IS NOT NULL ORDER BY last_activity_seq DESC, created_at DESC"
    )
    there = (row for row in rows if belongs(row, cwd))
    return next((row for row in there if not is_automatic(row)), None)


def session_before(tx: Tx, cwd: str | None) -> Row | None:
    """Return the mission that was closed last with a session in a directory around ``cwd``."""
    if cwd is None:
        return None
    rows = tx.all(
        "SELECT * FROM missions WHERE status IN ('completed', 'cancelled')"
        " AND project_dir IS NOT NULL ORDER BY completed_at DESC, id LIMIT 1000"
    )
    return next((row for row in rows if belongs(row, cwd) and is_automatic(row)), None)


# The metadata of a mission that was made by itself.
AUTOMATIC = '{"automatic":true}'


def is_automatic(mission: Row) -> bool:
    """Whether a mission was made by itself for one session."""
    return msgspec.json.decode(mission["metadata_json"]).get("automatic") is True


def belongs(mission: Row, cwd: str | None) -> bool:
    """Whether a directory is the mission's, or below it."""
    return lies_in(mission["project_dir"], cwd)


def lies_in(place: str | None, cwd: str | None) -> bool:
    """Whether a directory is a place, or below it; a missing one is nowhere."""
    if not place or not cwd:
        return False
    return within(place, os.path.normpath(cwd))


def within(place: str, path: str) -> bool:
    """Whether a path is a place, or below it, by their names as they stand."""
    return path == place or path.startswith(place.rstrip("/") + "/")
