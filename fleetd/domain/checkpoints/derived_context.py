"""Recovery context of a mission or of an agent's part, derived from what the store knows.

``agent_id`` narrows everything to one agent's own part. The ``reader``'s own notes always come
first, in its own words.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ...protocol.display import quote
from ...protocol.records import Event, RecoveryContext, SortieState, WorkNote
from ...protocol.requests.checkpoint import DeclaredContext
from ...protocol.timestamps import to_ms
from ..core.context import Context
from ..core.event_log import NO_DEEDS, data_of, event_of
from ..core.sql import in_sql
from ..core.tx import Row, Tx
from .narrative import Titles, obstacle, sentence, shares, step, waits_in

_RANK = {"in_progress": 0, "blocked": 1, "assigned": 2, "pending": 3}
# The most entries by one other agent that the reader receives in each place.
OF_ONE = 10
_note = msgspec.json.Decoder(WorkNote).decode
# The successor of a lost agent continues from the events of its predecessor.
OWN_EVENTS = (
    "(agent_id = :agent OR agent_id IN (SELECT id FROM agents WHERE succeeded_by = :agent))"
)
_DEED = f"activity = 1 AND type NOT IN {in_sql(NO_DEEDS)}"


def derive(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    *,
    declared: DeclaredContext | None = None,
    errors: Sequence[str] = (),
    agent_id: str | None = None,
    reader: str | None = None,
    titles: Titles | None = None,
    display: Callable[[Event], Event] | None = None,
) -> RecoveryContext:
    """Return the context for continuing a mission, or one agent's part of it.

    ``declared`` comes first and is never overwritten; ``errors`` come first among the blockers.
    ``titles`` are as the reader may see them. Without them all texts keep their wording, for a
    checkpoint, which nobody reads unprocessed. ``display`` returns an event as its reader may see
    it. Without it, the context keeps the words of lock holders, for later readers.
    """
    given, started = declared or DeclaredContext(), mission["started_at"]
    there = _there(tx, mission["id"])
    titles = titles or Titles(reader=None, goal=mission["title"], authors={})
    own = [s for s in sorties if agent_id in (None, s.assigned_to)]
    blocked = [s for s in own if s.status == "blocked"]
    notes = _notes(tx, mission["id"], agent_id, reader) if there["notes"] else {}
    return RecoveryContext(
        last_action=given.last_action
        or _noted_action(notes, agent_id, reader)
        or last_action(tx, mission["id"], own, agent_id, display),
        next_steps=_distinct(
            given.next_steps,
            *(note.next_steps for note in notes.values()),
            plan_steps(own, sorties, titles),
        ),
        blockers=_distinct(
            errors,
            given.blockers,
            *(note.blockers for note in notes.values()),
            # Why sorties are blocked; a limited number per other agent.
            (obstacle(s, titles.of(s)) for s in shares(blocked, titles, OF_ONE)[0]),
            _open_errors(tx, mission["id"], agent_id) if there["errors"] else (),
        ),
        files_modified=_distinct(
            given.files_modified,
            _edited(tx, mission["id"], agent_id) if there["edits"] else (),
            _files_begun(own),
        ),
        mission_summary=given.mission_summary or titles.goal,
        elapsed_time_ms=max(0, ctx.now_ms - to_ms(started)) if started else 0,
        last_activity_at=mission["last_activity_at"] or started or ctx.now,
    )


def _there(tx: Tx, mission_id: str) -> Row:
    """Return which kinds of records a mission has: most have few, and one query tells.

    Records of missions that were merged into it count.
    """
    (row,) = tx.all(
        "SELECT EXISTS (SELECT 1 FROM agents WHERE mission_id = :mission"
        " AND note_json IS NOT NULL) AS notes, EXISTS (SELECT 1 FROM events"
        " WHERE mission_id = :mission AND type = 'error_reported') AS errors,"
        " EXISTS (SELECT 1 FROM events WHERE mission_id = :mission AND type = 'file_modified')"
        " OR EXISTS (SELECT 1 FROM recoveries WHERE mission_id = :mission"
        " AND left_mission_id IS NOT NULL) AS edits",
        mission=mission_id,
    )
    return row


def plan_steps(
    own: Sequence[SortieState], sorties: Sequence[SortieState], titles: Titles
) -> list[str]:
    """Return the open sorties as next steps, those in progress first; limited per other agent.

    ``sorties`` are all of the mission, including those that the open ones wait for.
    """
    waits = waits_in(sorties)
    open_ones = sorted((s for s in own if s.status in _RANK), key=lambda s: _RANK[s.status])
    kept, more = shares(open_ones, titles, OF_ONE)
    left = (f"{n} more sorties that {author} made" for author, n in more.items())
    return [*(step(s, titles, waits.get(s.id, ())) for s in kept), *left]


def _distinct(*parts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(entry for part in parts for entry in part if entry))


def _notes(
    tx: Tx, mission_id: str, agent_id: str | None, reader: str | None
) -> dict[str, WorkNote]:
    """Return the notes of the mission's agents: the reader's own first, then the latest seen."""
    rows = tx.all(
        "SELECT id, succeeded_by, note_json FROM agents WHERE mission_id = :mission"
        " AND note_json IS NOT NULL AND status <> 'gone' ORDER BY last_seen_at DESC, id",
        mission=mission_id,
    )
    rows.sort(key=lambda row: row["id"] != reader)
    return {
        row["id"]: _attributed(row["id"], reader, _note(row["note_json"]))
        for row in rows
        if agent_id in (None, row["id"], row["succeeded_by"])
    }


def _attributed(author: str, reader: str | None, note: WorkNote) -> WorkNote:
    """Return a note for its reader: the reader's own words unchanged, others' in quotes."""
    if author == reader:
        return note
    return WorkNote(
        last_action=f"{author}: {quote(note.last_action)}" if note.last_action else None,
        next_steps=[f"{author}: {quote(text)}" for text in note.next_steps[:OF_ONE]],
        blockers=[f"{author}: {quote(text)}" for text in note.blockers[:OF_ONE]],
    )


def is_noted_by(author: str | None, line: str) -> bool:
    """Return whether a line of somebody's context quotes an agent's note."""
    return author is not None and line.startswith(f"{author}: “")


def _noted_action(
    notes: dict[str, WorkNote], agent_id: str | None, reader: str | None
) -> str | None:
    """Return the last action in the reader's own words, None where its note has none.

    With ``agent_id``, a note of that agent or of an agent whose work it took over also counts.
    """
    note = notes.get(reader) if reader else None
    if note is None and agent_id:
        note = next(iter(notes.values()), None)
    return note.last_action if note else None


def own_note(tx: Tx, mission_id: str, agent_id: str | None) -> WorkNote:
    """Return the note of an agent of a mission, an empty note if it has none."""
    notes = _notes(tx, mission_id, agent_id, agent_id) if agent_id else {}
    return notes.get(agent_id or "") or WorkNote()


def last_action(
    tx: Tx,
    mission_id: str,
    own: Sequence[SortieState],
    agent_id: str | None,
    display: Callable[[Event], Event] | None = None,
) -> str:
    """Return one sentence about the newest action."""
    row = (
        _own_action(tx, mission_id, agent_id)
        if agent_id
        else tx.one(
            # The last action itself, or an older one if the log no longer holds it.
            f"SELECT * FROM events WHERE mission_id = :mission AND {_DEED}"
            " AND seq <= (SELECT last_deed_seq FROM missions WHERE id = :mission)"
            " ORDER BY seq DESC LIMIT 1",
            mission=mission_id,
        )
    )
    if row is not None:
        event = event_of(row)
        return sentence(display(event) if display else event)
    return next((s.progress_notes for s in own if s.progress_notes), None) or "Nothing recorded yet"


def _own_action(tx: Tx, mission_id: str, agent_id: str) -> Row | None:
    """Return the newest action of an agent, or of those whose work it took over."""
    rows = tx.all("SELECT id FROM agents WHERE succeeded_by = :agent", agent=agent_id)
    found = [
        tx.one(
            "SELECT * FROM events WHERE mission_id = :mission AND agent_id = :agent"
            f" AND {_DEED} ORDER BY seq DESC LIMIT 1",
            agent=name,
            mission=place,
        )
        for name in (agent_id, *(row["id"] for row in rows))
        for place in merged_places(tx, mission_id)
    ]
    return max(filter(None, found), key=lambda row: int(row["seq"]), default=None)


def merged_places(tx: Tx, mission_id: str) -> list[str]:
    """Return the ids of a mission and of the missions that were merged into it."""
    rows = tx.all(
        "SELECT r.left_mission_id AS id FROM recoveries r"
        " JOIN missions m ON m.id = r.left_mission_id AND m.closed_reason = 'merged'"
        " WHERE r.mission_id = :mission AND r.left_mission_id IS NOT NULL"
        " AND r.left_mission_id <> :mission",
        mission=mission_id,
    )
    return [mission_id, *sorted({row["id"] for row in rows})]


def newest(tx: Tx, mission_id: str, kind: str, agent_id: str | None, most: int) -> list[Row]:
    """Return the newest events of a type: everybody's, or one agent's and its predecessors'.

    They come newest first. Events from before a session moved here from another mission count:
    its agent continues from them.
    """
    mine = f" AND {OWN_EVENTS}" if agent_id else ""
    found: list[Row] = []
    for place in merged_places(tx, mission_id):
        found += tx.all(
            "SELECT seq, agent_id, data_json, timestamp FROM events WHERE mission_id = :mission"
            f" AND type = :type{mine} ORDER BY seq DESC LIMIT :most",
            mission=place,
            type=kind,
            most=most,
            **({"agent": agent_id} if agent_id else {}),
        )
    found.sort(key=lambda row: int(row["seq"]), reverse=True)
    return found[:most]


def _open_errors(tx: Tx, mission_id: str, agent_id: str | None) -> list[str]:
    """Return the errors after which their agent made no progress, newest first."""
    mine = f" AND {OWN_EVENTS}" if agent_id else ""
    rows = tx.all(
        f"SELECT e.data_json FROM events e WHERE e.mission_id = :mission{mine}"
        " AND e.type = 'error_reported' AND NOT EXISTS (SELECT 1 FROM events later"
        " WHERE later.mission_id = e.mission_id AND later.seq > e.seq"
        " AND later.agent_id = e.agent_id"
        " AND later.type IN ('sortie_progressed', 'sortie_completed', 'sortie_started'))"
        " ORDER BY e.seq DESC LIMIT 10",
        mission=mission_id,
        **({"agent": agent_id} if agent_id else {}),
    )
    return [f"Error: {data_of(row).get('message', '')}" for row in rows]


def _edited(tx: Tx, mission_id: str, agent_id: str | None) -> list[str]:
    """Return the files that were edited, newest first."""
    rows = newest(tx, mission_id, "file_modified", agent_id, 1000)
    edited = (data_of(row).get("file") for row in rows)
    return [file for file in edited if isinstance(file, str)]


def _files_begun(own: Sequence[SortieState]) -> list[str]:
    """Return the files of started sorties, those changed last first."""
    begun = sorted((s for s in own if s.started_at), key=lambda s: s.updated_at, reverse=True)
    return [file for s in begun for file in s.files]
