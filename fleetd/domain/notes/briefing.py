"""Notes in a briefing: one line each, pinned ones first, every word of others in quotes."""

from typing import NamedTuple

from ...protocol.display import path, quote, short
from ..core.tx import Row, Tx
from .notes import standing

# Pinned notes get more characters than others.
PINNED_CHARS, NOTE_CHARS, BECAUSE_CHARS = 600, 300, 200
# The limit of notes of one other agent: it cannot fill a briefing.
OF_ONE = 10
_ORDER = ("constraint", "decision", "ruled-out", "finding")
_WORDS = {
    "constraint": "Constraint set",
    "decision": "Decided",
    "ruled-out": "Ruled out",
    "finding": "Found",
}


class NoteLines(NamedTuple):
    """The lines of a briefing, of which the first ``pinned`` are notes that a person pinned.

    ``left_out`` is how many more notes are in force.
    """

    lines: list[str]
    pinned: int
    left_out: int


def note_lines(tx: Tx, mission_id: str, reader: str | None, longest: int) -> NoteLines:
    """Return the notes of a mission for one reader: pinned, then by kind, each newest first.

    No text of a note is longer than ``longest`` characters.
    """
    rows = standing(tx, mission_id)[::-1]
    pinned = [row for row in rows if row["pinned_at"] is not None]
    others = [row for row in rows if row["pinned_at"] is None]
    kept = _shares(others, reader)
    kept.sort(key=lambda row: _ORDER.index(row["kind"]))
    lines = [_line(row, reader, longest) for row in (*pinned, *kept)]
    return NoteLines(lines, len(pinned), len(others) - len(kept))


def _shares(rows: list[Row], reader: str | None) -> list[Row]:
    """Return the notes to list; of each other agent only the newest."""
    counts: dict[str | None, int] = {}
    kept = []
    for row in rows:
        author = row["agent_id"] if row["origin"] == "agent" else None
        counts[author] = counts.get(author, 0) + 1
        if author in (None, reader) or counts[author] <= OF_ONE:
            kept.append(row)
    return kept


def _line(row: Row, reader: str | None, longest: int) -> str:
    pinned, beside = row["pinned_at"] is not None, min(BECAUSE_CHARS, longest)
    because = f", because {quote(row['because'], beside)}" if row["because"] else ""
    file = f" [{_file(row, reader, beside)}]" if row["path"] else ""
    most = min(PINNED_CHARS if pinned else NOTE_CHARS, longest)
    return f"- {_head(row, reader, pinned)}: {_text(row, most)}{because}{file}"


def _file(row: Row, reader: str | None, most: int) -> str:
    """Return the file of a note; a path from another agent can be a whole sentence."""
    foreign = row["origin"] == "agent" and row["agent_id"] != reader
    wordy = len(row["path"].split()) > 1
    return quote(row["path"], most) if foreign and wordy else path(row["path"], most)


def _text(row: Row, most: int) -> str:
    """Return the text of a note; a fact has what somebody said in quotes already."""
    return short(row["text"], most) if row["origin"] == "fact" else quote(row["text"], most)


def _head(row: Row, reader: str | None, pinned: bool) -> str:
    """Return the author of a note, and its kind."""
    if row["origin"] == "fact":
        session = (
            "your session" if row["agent_id"] == reader else f"the session of {row['agent_id']}"
        )
        return f"Pinned by your user, recorded in {session}" if pinned else f"Recorded in {session}"
    label = _WORDS[row["kind"]]
    by = "your user"
    if row["origin"] == "agent":
        by = "you" if row["agent_id"] == reader else str(row["agent_id"])
    if not pinned:
        return f"{label} by {by}"
    kind = row["kind"].replace("-", " ")
    return f"Pinned by your user ({kind})" + (f", noted by {by}" if by != "your user" else "")
