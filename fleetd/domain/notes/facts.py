"""Facts of sessions as notes: a plan or a permission that was refused, a commit that was reverted.

Each fact is what a hook or Git reported explicitly. Nothing is derived from the prose of an agent
or a person.
"""

from ...protocol.display import quote
from ...protocol.events import NoteRecorded
from ..core.changes import note_changed
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import fresh_id
from ..core.tx import Row, Tx
from .notes import insert, mark_withdrawn

# The limit of one mission. Beyond it the oldest is withdrawn, unless a person pinned it.
FACTS = 50
ABOUT_CHARS = 200
_OF_MISSION = "FROM notes WHERE mission_id = :mission AND withdrawn_at IS NULL AND origin = 'fact'"


def plan_refused(about: str | None, reason: str | None) -> str:
    """Return the fact that a person did not approve a plan."""
    return _fact("The user did not approve the plan", about, reason)


def permission_denied(about: str | None, reason: str | None) -> str:
    """Return the fact that an agent was denied a permission."""
    return _fact("Permission denied", about, reason)


def commit_reverted(subject: str) -> str:
    """Return the fact that a commit was reverted."""
    return _fact("Commit reverted", subject, None)


def _fact(what: str, about: str | None, reason: str | None) -> str:
    named = f"{what}: {quote(about, ABOUT_CHARS)}" if about else what
    return f"{named}, with the reason {quote(reason, ABOUT_CHARS)}" if reason else named


def record(
    tx: Tx, ctx: Context, mission_id: str, agent_id: str, text: str, *, again: bool = False
) -> None:
    """Note a fact of an agent's session as ruled out, unless the same fact is in force.

    ``again`` says that it may have been reported before: then a withdrawn note counts as well.
    """
    withdrawn = "" if again else " AND withdrawn_at IS NULL"
    if tx.exists(
        "SELECT 1 AS known FROM notes WHERE mission_id = :mission AND origin = 'fact'"
        f" AND agent_id = :agent AND text = :text{withdrawn}",
        mission=mission_id,
        agent=agent_id,
        text=text,
    ):
        return
    _make_room(tx, ctx, mission_id)
    note_id = fresh_id(tx, ctx, "note")
    payload = NoteRecorded(note_id=note_id, kind="ruled-out", text=text)
    note_changed(tx, mission_id, note_id, {})
    event = emit(tx, ctx, payload, mission_id=mission_id, agent_id=agent_id)
    note: Row = {"id": note_id, "kind": "ruled-out", "text": text}
    insert(tx, ctx, event, note | {"origin": "fact", "agent_id": agent_id})


def _make_room(tx: Tx, ctx: Context, mission_id: str) -> None:
    """Withdraw the oldest fact that nobody pinned, if the limit is reached."""
    if tx.value(f"SELECT count(*) {_OF_MISSION}", mission=mission_id) < FACTS:
        return
    oldest = tx.one(
        f"SELECT * {_OF_MISSION} AND pinned_at IS NULL ORDER BY seq, id LIMIT 1",
        mission=mission_id,
    )
    if oldest is not None:
        mark_withdrawn(tx, ctx, oldest, f"{FACTS} newer facts stand", None)


def end(tx: Tx, ctx: Context, mission_id: str, text: str, reason: str) -> None:
    """Withdraw a fact that no longer holds, whichever session reported it."""
    for row in tx.all(f"SELECT * {_OF_MISSION} AND text = :text", mission=mission_id, text=text):
        mark_withdrawn(tx, ctx, row, reason, None)
