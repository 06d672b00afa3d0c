"""Documents: the searchable parts of events, messages and notes.

An event without content has no document, such as a heartbeat, a renewed lease or a delivery. The
row of a message or a note has its own document, so the event about it has none either.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

from ...protocol.event_types import EVENT_TYPES
from ...protocol.patterns import SearchKind
from .words import NAMES_CHARS, name_of, names_in, words_of

# The field of an event that names a file.
FILE = "file"
# The searched fields of each type of event, in the order of its document's texts.
FIELDS: dict[str, tuple[str, ...]] = {
    "mission_created": ("title",),
    "mission_failed": ("reason",),
    "mission_cancelled": ("reason",),
    "sortie_created": ("title",),
    "sortie_updated": ("title",),
    "sortie_blocked": ("title", "reason"),
    "sortie_completed": ("title",),
    "sortie_failed": ("title", "reason"),
    "agent_noted": ("last_action", "next_steps", "blockers"),
    "agent_lost": ("reason",),
    "agent_needs": ("text",),
    "error_reported": ("name", "message"),
    "window_compacted": ("summary",),
    "hook_noted": ("message",),
    "note_withdrawn": ("reason",),
    "lock_force_released": (FILE, "reason"),
    "lock_conflicted": (FILE,),
    "message_failed": ("subject", "error"),
    "backup_failed": ("error",),
    "file_modified": (FILE,),
    "command_finished": ("command", "error"),
    "tool_failed": ("name", "error"),
    "prompt_submitted": ("prompt",),
    "agent_answered": ("message",),
}
# These have content only if the field beside the title is set.
NOTED: dict[str, str] = {"sortie_progressed": "notes"}
KINDS: dict[str, SearchKind] = {
    "prompt_submitted": "prompt",
    "agent_answered": "answer",
    "command_finished": "command",
    "file_modified": "file",
}
_NAME_FIELDS = ("tool", "call_id", "happened_at")


class Document(msgspec.Struct, frozen=True):
    """One searchable record: ``texts`` are what it says, ``files`` the files that it names."""

    kind: SearchKind
    texts: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return everything that it says, as a person reads it."""
        return "\n".join([*self.texts, *self.files])

    @property
    def words(self) -> str:
        """Return its words in their order, a space between them."""
        return " ".join(word for text in (*self.texts, *self.files) for word in words_of(text))

    @property
    def names(self) -> str:
        """Return its paths and identifiers, each once, a line break between them."""
        kept, left = dict[str, None](), NAMES_CHARS
        for name in chain(map(name_of, self.files), *map(names_in, self.texts)):
            if name not in kept:
                left -= len(name) + 1
                if left < 0:
                    break
                kept[name] = None
        return "\n".join(kept)


def of_event(kind: str, data: Mapping[str, Any]) -> Document | None:
    """Return the document of an event; None for one that says nothing new."""
    if kind == "agent_needs" and data.get("needs") in ("finished", "background"):
        return None  # its text is the answer, which has an event of its own
    if kind == "mission_created" and data.get("origin") == "session":
        return None  # its title is the prompt, which has one too
    fields = FIELDS.get(kind)
    if fields is None:
        if kind in NOTED:
            fields = ("title", NOTED[kind]) if data.get(NOTED[kind]) else ()
        elif kind in EVENT_TYPES:
            fields = ()
        else:  # a type that a client made up
            fields = tuple(name for name in data if name not in _NAME_FIELDS)
    files = tuple(_texts(data[FILE])) if FILE in fields and FILE in data else ()
    texts = [
        text for name in fields if name != FILE and name in data for text in _texts(data[name])
    ]
    if not texts and not files:
        return None
    return Document(KINDS.get(kind, "event"), tuple(texts), files)


def of_message(row: Mapping[str, Any]) -> Document:
    """Return the document of a message."""
    return Document("mail", tuple(filter(None, (row["subject"], row["body"]))))


def of_note(row: Mapping[str, Any]) -> Document:
    """Return the document of a note; a fact has neither a reason nor a path."""
    files = tuple(filter(None, (row.get("path"),)))
    return Document("note", tuple(filter(None, (row["text"], row.get("because")))), files)


def _texts(value: Any) -> Iterable[str]:
    """Yield the texts of a value, however deep they are nested."""
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
