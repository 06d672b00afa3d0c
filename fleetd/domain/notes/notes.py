"""Notes: added, listed, pinned by a person, withdrawn with a reason; never edited.

A note belongs to a mission, and all its agents read it. When the mission is merged into another
one, the note moves along.
"""

import os

from ...protocol.errors import InvalidParams, InvalidState, LimitExceeded
from ...protocol.events import NoteAdded, NotePinned, NoteUnpinned, NoteWithdrawn
from ...protocol.records import Event, Note
from ...protocol.requests.note import NoteAdd, NoteGet, NoteList, NotePage, NotePin, NoteWithdraw
from ...protocol.types import NOTE_CHARS, OPEN_MISSION
from ..agents.mailbox import mail_reader
from ..core.changes import NOTE_CHANGES, note_changed
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find, fresh_id
from ..core.mappers import ended_as, note_of
from ..core.registry import method
from ..core.sql import Where
from ..core.tx import Row, Tx
from ..liveness.process_identity import who_asks
from ..search import index as search_index

# Each checkpoint of a mission contains all notes in force, so agents may add only this many.
STANDING = 200
_LIST = "fleetctl note list"


def add(tx: Tx, ctx: Context, request: NoteAdd) -> Note:
    """Add a note to an open mission; return an identical note in force unchanged."""
    by = who_asks(tx, ctx, request.agent_id)
    mission = _mission(tx, ctx, request, by)
    note: Row = {
        "kind": request.kind,
        "text": _required_text("text", request.text),
        "because": (request.because or "").strip() or None,
        "path": _place(mission, request.path, request.cwd),
        "origin": "person" if by is None else "agent",
        "agent_id": by,
    }
    if (same := _standing_alike(tx, mission["id"], note)) is not None:
        return note_of(same)
    if mission["status"] not in OPEN_MISSION:
        raise InvalidState(
            f"Mission {mission['id']} is {ended_as(mission)} and accepts no more notes.",
            hint="Add the note to the mission in which the work goes on.",
            status=mission["status"],
        )
    if by is not None and count_standing(tx, mission["id"]) >= STANDING:
        raise LimitExceeded(
            f"Mission {mission['id']} has {STANDING} notes; agents can add no more.",
            hint="Withdraw those that hold no longer: fleetctl note withdraw ID --reason ...",
            limit=STANDING,
        )
    note_id = fresh_id(tx, ctx, "note")
    payload = NoteAdded(
        note_id=note_id, kind=request.kind, text=note["text"], because=note["because"]
    )
    place: Row = {"mission_id": mission["id"], "agent_id": by}
    note_changed(tx, mission["id"], note_id, {})
    event = emit(tx, ctx, payload, **place, activity=by is not None)
    return note_of(insert(tx, ctx, event, note | {"id": note_id}))


def insert(tx: Tx, ctx: Context, event: Event, note: Row) -> Row:
    """Write the row of a new note; its ``event`` says in which mission, and where in the log."""
    place = {"seq": event.seq, "mission_id": event.mission_id, "created_at": ctx.now}
    row: Row = note | place
    tx.insert("notes", row)
    search_index.add_note(tx, row)
    return row


def count_standing(tx: Tx, mission_id: str) -> int:
    """Return how many notes of a mission are in force."""
    found: int = tx.value(
        "SELECT count(*) FROM notes WHERE mission_id = :mission AND withdrawn_at IS NULL",
        mission=mission_id,
    )
    return found


_FATE = ("pinned_at", "withdrawn_at", "withdrawn_by", "withdrawn_reason")


def standing(tx: Tx, mission_id: str) -> list[Row]:
    """Return the notes of a mission that are in force, oldest first."""
    return tx.all(
        "SELECT * FROM notes WHERE mission_id = :mission AND withdrawn_at IS NULL ORDER BY seq, id",
        mission=mission_id,
    )


def _mission(tx: Tx, ctx: Context, request: NoteAdd, by: str | None) -> Row:
    """Return the mission of a note: the given one, else that of the place, else the author's."""
    mission_id = request.mission_id or ctx.facts.mission_id
    if mission_id is None and by is not None:
        mission_id = tx.value("SELECT mission_id FROM agents WHERE id = :id", id=by)
    if mission_id is None:
        raise InvalidParams(
            "Neither mission_id nor cwd names a mission.",
            hint="Give mission_id, or the cwd of a project with a mission in progress.",
            field="mission_id",
        )
    return find(tx, "mission", mission_id)


def _required_text(field: str, text: str) -> str:
    """Return a text without surrounding white space; raises InvalidParams if nothing is left."""
    if not (stripped := text.strip()):
        raise InvalidParams(
            f"{field} is empty; it takes 1 to {NOTE_CHARS:,} characters.",
            hint="Say it in a sentence or two.",
            field=field,
        )
    return stripped


def _place(mission: Row, path: str | None, cwd: str | None) -> str | None:
    """Return the path of a note's file, relative to the mission's directory if it is in it."""
    if path is None:
        return None
    whole = os.path.normpath(f"{cwd}/{path}" if cwd and not path.startswith("/") else path)
    root = mission["project_dir"]
    return whole.removeprefix(f"{root.rstrip('/')}/") if root else whole


def _standing_alike(tx: Tx, mission_id: str, note: Row) -> Row | None:
    """Return an identical note in force by the same author."""
    names = ("kind", "text", "because", "path", "origin", "agent_id")
    alike = (
        row for row in standing(tx, mission_id) if all(row[name] == note[name] for name in names)
    )
    return next(alike, None)


@method(NoteGet)
def get(tx: Tx, ctx: Context, request: NoteGet) -> Note:
    """Return a note, also one that was withdrawn."""
    return note_of(find(tx, "note", request.note_id))


@method(NoteList)
def list_notes(tx: Tx, ctx: Context, request: NoteList) -> NotePage:
    """Return notes in the order in which they were added, or backwards."""
    beyond, order = ("<", "DESC") if request.newest else (">", "ASC")
    where = Where()
    if request.mission_id:
        where.equal(mission_id=find(tx, "mission", request.mission_id)["id"])
    where.equal(kind=request.kind, agent_id=request.agent_id)
    if not request.withdrawn:
        where.add("withdrawn_at IS NULL")
    if request.after:
        last = find(tx, "note", request.after)
        behind = f"seq {beyond}= :seq AND (seq {beyond} :seq OR id {beyond} :after)"
        where.add(behind, seq=last["seq"], after=last["id"])
    rows = tx.all(
        f"SELECT * FROM notes WHERE {where} ORDER BY seq {order}, id {order} LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return NotePage(notes=[note_of(row) for row in rows])


def withdraw(tx: Tx, ctx: Context, request: NoteWithdraw) -> Note:
    """Withdraw a note with a reason; an agent may withdraw its own or its predecessors' notes."""
    row, by = _standing_note(tx, request.note_id), who_asks(tx, ctx, request.agent_id)
    if by is not None:
        _refuse_others(tx, row, by)
    return note_of(mark_withdrawn(tx, ctx, row, _required_text("reason", request.reason), by))


def mark_withdrawn(tx: Tx, ctx: Context, row: Row, reason: str, by: str | None) -> Row:
    """Mark a note as withdrawn, and emit an event; return its row."""
    tx.run(
        "UPDATE notes SET withdrawn_at = :now, withdrawn_by = :by, withdrawn_reason = :reason"
        " WHERE id = :id",
        now=ctx.now,
        by=by,
        reason=reason,
        id=row["id"],
    )
    fields = {"withdrawn_at": ctx.now, "withdrawn_by": by, "withdrawn_reason": reason}
    note_changed(tx, row["mission_id"], row["id"], fields)
    # Events of others do not repeat an author's words, because they outlast the author's events.
    payload = NoteWithdrawn(note_id=row["id"], kind=row["kind"], reason=reason)
    mission_id = row["mission_id"]
    emit(tx, ctx, payload, mission_id=mission_id, agent_id=by, activity=by is not None)
    return find(tx, "note", row["id"])


def _standing_note(tx: Tx, note_id: str) -> Row:
    row = find(tx, "note", note_id)
    if row["withdrawn_at"] is not None:
        reason = row["withdrawn_reason"]
        raise InvalidState(
            f"Note {row['id']} was withdrawn at {row['withdrawn_at']}: {reason}",
            hint="Add a new note if it holds again.",
            withdrawn_at=row["withdrawn_at"],
        )
    return row


def _refuse_others(tx: Tx, row: Row, by: str) -> None:
    """Raise InvalidState for a note that is not the agent's to withdraw."""
    own = row["origin"] == "agent" and by in (row["agent_id"], mail_reader(tx, row["agent_id"]))
    if own and row["pinned_at"] is None:
        return
    owner = {"person": "a person's", "fact": "a recorded fact"}.get(row["origin"])
    why = "pinned by a person" if own else owner or f"{row['agent_id']}'s"
    raise InvalidState(
        f"Note {row['id']} is {why}; {by} cannot withdraw it.",
        hint="Ask your user to withdraw it, or add a note that says what you know.",
        note_id=row["id"],
    )


def pin(tx: Tx, ctx: Context, request: NotePin) -> Note:
    """Pin a note, or remove its pin; only a person can. Twice is the same as once."""
    by = who_asks(tx, ctx, request.agent_id)
    if by is not None:
        raise InvalidState(
            f"Only a person can pin a note; {by} is an agent.",
            hint="Ask your user to run fleetctl note pin in their own terminal.",
            agent_id=by,
        )
    row = _standing_note(tx, request.note_id)
    if (row["pinned_at"] is not None) == request.pinned:
        return note_of(row)
    pinned_at = ctx.now if request.pinned else None
    tx.run("UPDATE notes SET pinned_at = :at WHERE id = :id", at=pinned_at, id=row["id"])
    note_changed(tx, row["mission_id"], row["id"], {"pinned_at": pinned_at})
    payload_type = NotePinned if request.pinned else NoteUnpinned
    payload = payload_type(note_id=row["id"], kind=row["kind"])
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    return note_of(find(tx, "note", row["id"]))


def move(tx: Tx, source: str, target: str) -> None:
    """Move a mission's notes to the mission into which it is merged."""
    rows = tx.all(
        "UPDATE notes SET mission_id = :target, came_from = :source WHERE mission_id = :source"
        " RETURNING *",
        source=source,
        target=target,
    )
    _keep_moved(tx, rows, source, target)


def move_back(tx: Tx, source: str, target: str) -> None:
    """Move back the notes of a mission that goes on by itself again."""
    rows = tx.all(
        "UPDATE notes SET mission_id = :target, came_from = NULL"
        " WHERE mission_id = :source AND came_from = :target RETURNING *",
        source=source,
        target=target,
    )
    _keep_moved(tx, rows, source, target)


def _keep_moved(tx: Tx, rows: list[Row], source: str, target: str) -> None:
    for row in rows:
        note_changed(tx, source, row["id"], None)
        note_changed(tx, target, row["id"], {name: row[name] for name in NOTE_CHANGES})


def bring_back(tx: Tx, mission_id: str, kept: list[Note]) -> int:
    """Restore the notes of a checkpoint that the store has lost; return how many.

    What the checkpoint knows of a pin or a withdrawal counts where the row knows less.
    """
    there = {
        row["id"]: row
        for row in tx.all("SELECT * FROM notes WHERE mission_id = :id", id=mission_id)
    }
    lost = 0
    for note in kept:
        row = there.get(note.id)
        if row is None:
            lost += _insert_lost(tx, mission_id, note)
        elif row["withdrawn_at"] is None:
            tx.run(
                "UPDATE notes SET pinned_at = :pinned, withdrawn_at = :at, withdrawn_by = :by,"
                " withdrawn_reason = :reason WHERE id = :id",
                pinned=note.pinned_at,
                at=note.withdrawn_at,
                by=note.withdrawn_by,
                reason=note.withdrawn_reason,
                id=note.id,
            )
            note_changed(tx, mission_id, note.id, {name: getattr(note, name) for name in _FATE})
    return lost


def _insert_lost(tx: Tx, mission_id: str, note: Note) -> bool:
    """Write the row of a lost note; a note that moved to another mission still has one."""
    if tx.exists("SELECT 1 AS there FROM notes WHERE id = :id", id=note.id):
        return False
    columns = {name: getattr(note, name) for name in Note.__struct_fields__}
    row: Row = columns | {"mission_id": mission_id}
    tx.insert("notes", row)
    note_changed(tx, mission_id, note.id, {name: columns[name] for name in NOTE_CHANGES})
    search_index.add_note(tx, row)
    return True
