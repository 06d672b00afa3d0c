"""Automatic missions: begun, closed and reopened for sessions without a request.

A mission that a person created, or ended, is the person's: nothing here touches it.
"""

from ...protocol import endings
from ...protocol.display import clean
from ...protocol.events import MissionCancelled
from ...protocol.requests.mission import MissionCreate
from ..checkpoints import checkpoints
from ..checkpoints.checkpoints import WITH_SESSION
from ..core.context import Context
from ..core.ids import find
from ..core.sql import LIVING
from ..core.tx import Row, Tx
from . import missions
from .milestones import begin_mission
from .selection import is_automatic

TITLE_CHARS = 80
# A prompt can be a whole file; its first line is not searched for beyond this.
_LOOKED_AT = 10_000


def begin(
    tx: Tx, ctx: Context, *, agent_id: str, project_dir: str | None, title: str | None, harness: str
) -> str:
    """Create and start a mission for a session, and return its id.

    ``title`` is the user's first prompt, already without secrets. Without one, or when no prompts
    are kept, the mission is named after its directory.
    """
    place = project_dir if project_dir and project_dir.startswith("/") else None
    first_line = _first_line(title) if title and ctx.config.keep_prompts else ""
    name = clean(place.rstrip("/").rpartition("/")[2]) if place else ""
    unnamed = f"{harness} session in {name}" if name else f"{harness} session"
    request = MissionCreate(first_line or unnamed, project_dir=place)
    mission_id = missions.create_row(tx, ctx, request, agent_id, origin="session")
    begin_mission(tx, ctx, find(tx, "mission", mission_id), agent_id)
    return mission_id


def _first_line(prompt: str) -> str:
    """Return the first line that says something, cut at a word."""
    lines = (clean(line).lstrip("#>*-` ") for line in prompt[:_LOOKED_AT].splitlines())
    line = next((line for line in lines if line), "")
    if len(line) <= TITLE_CHARS:
        return line
    head = line[: TITLE_CHARS - 1]
    whole, _, rest = head.rpartition(" ")
    # One endless word, or a language without spaces, is cut in the middle.
    kept = head if line[TITLE_CHARS - 1] == " " or len(rest) > TITLE_CHARS // 2 else whole
    return kept.rstrip(" ,;:.-") + "…"


def end(tx: Tx, ctx: Context, mission_id: str, reason: str, *, leaving: str | None = None) -> None:
    """Close the mission of a session that has ended, unless another agent lives in it.

    ``leaving`` is the agent whose session it was, if that still counts as living. Never refuses: a
    mission that is a person's, ended or gone stays unchanged.
    """
    row = tx.one("SELECT * FROM missions WHERE id = :id", id=mission_id)
    if row is None or not is_automatic(row) or row["status"] != "in_progress":
        return
    living = tx.value(
        f"SELECT count(*) FROM agents WHERE mission_id = :id AND status IN {LIVING}"
        " AND id <> coalesce(:leaving, '')",
        id=row["id"],
        leaving=leaving,
    )
    if not living:
        close(tx, ctx, row, reason)


def close(tx: Tx, ctx: Context, row: Row, reason: str) -> None:
    """End an automatic mission: completed when nothing is open, else cancelled until it resumes.

    No agent does this, so it is no activity: the resumed session reads what was really done last.
    """
    undone = tx.value(
        "SELECT count(*) FROM sorties WHERE mission_id = :id"
        " AND status NOT IN ('completed', 'failed')",
        id=row["id"],
    )
    if undone:
        left = endings.left_open(undone, row["total_sorties"])
        details = f"{endings.WITH_SESSION} ({reason}), {left}"
        payload = MissionCancelled(reason=details, closed_reason="session")
        missions.close_unfinished(tx, ctx, row["id"], payload)
        # After the end, so that the file does not restore a closed mission as an open one.
        kept = checkpoints.Reason(trigger="manual", details=WITH_SESSION, created_by="fleetd")
        checkpoints.take(tx, ctx, row["id"], kept)
    else:
        missions.close(tx, ctx, row["id"], "session")


def reopen(tx: Tx, ctx: Context, mission_id: str) -> bool:
    """Reopen the mission of a session that is resumed, with everything as it was.

    Returns whether the session can continue in it. False means that it needs a new one: a person
    ended the mission, or it was merged into another one, or it is gone.
    """
    row = tx.one("SELECT * FROM missions WHERE id = :id", id=mission_id)
    return row is not None and missions.reopen(tx, ctx, row, "session")
