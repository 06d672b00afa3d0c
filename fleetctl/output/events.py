"""Events as sentences for people, one by one or several together.

``fleetd.domain.checkpoints.narrative`` tells an agent what it was doing. This module tells people
what happened, in the words of ``fleetd.protocol.event_types``. The text in an event comes from
agents and tools: clean it before it reaches a terminal.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetd.protocol import endings
from fleetd.protocol.display import duration
from fleetd.protocol.event_types import event_type

from .console import path, plural

if TYPE_CHECKING:
    from fleetd.protocol.records import Event

OPERATOR = "The operator"
# The sentences for a harness's notes, by their subject.
_NOTED: dict[str, tuple[str, ...]] = {
    "permission_request": ("{who} asks for a permission", ": {message}"),
    "permission_prompt": ("{who} waits for a permission", ": {message}"),
}
# The words for what an agent needs.
_NEEDS = {
    "permission": "needs a permission",
    "question": "asks a question",
    "plan_approval": "wants its plan approved",
    "finished": "has finished its turn",
    "background": "has work running in the background",
    "limit": "reached a limit",
    "failed": "broke off its turn",
    "lost": "needs a successor",
    "none": "waits no longer",
}
# Why a checkpoint was taken, by its trigger.
_WHY = {
    "manual": "by hand",
    "progress": "milestone",
    "error": "after an error",
    "compaction": "before a compaction",
}
# Numbers that are shown with what they count.
_COUNTED = {
    "sorties": "sortie",
    "missions": "mission",
    "agents": "agent",
    "events": "event",
    "errors": "problem",
    "sorties_restored": "sortie",
    "locks_restored": "lock",
    "messages_requeued": "message",
}
# Values that are nearly always the same.
_OMITTED_VALUES = (("errors", 0), ("purpose", "edit"))
_INSTEAD = {"command": "a command", "tool": "a tool", "name": "A tool", "file": "a file"}
_WORDS = 300
# How many files and titles a sentence about several events names.
NAMED = 3


def sentence(event: "Event", *, inside: str | None = None) -> str:
    """Return what happened, as a sentence without a full stop: ``spec-1 completed "Login"``.

    Files inside the directory ``inside`` are named relative to it.
    """
    fields = _EventFields(event, inside)
    pieces = event_type(event.type).sentence
    if event.type == "hook_noted":
        pieces = _NOTED.get(fields["what"], pieces)
    if not pieces:
        what = event.type.replace("_", " ")
        return f"{event.agent_id}: {what}" if event.agent_id else what.capitalize()
    return _filled_in(pieces, fields)


def _filled_in(pieces: tuple[str, ...], fields: "_EventFields | _RunFields") -> str:
    """Return the pieces of a sentence, the first one and those whose fields are there."""
    first, *more = pieces
    return first.format_map(fields) + "".join(
        piece.format_map(fields)
        for piece in more
        if all(fields.lookup(part.partition("}")[0]) for part in piece.split("{")[1:])
    )


def tone(name: str) -> str | None:
    """Return the style of an event: ``green`` for done, ``yellow`` and ``red`` for trouble."""
    return event_type(name).tone or None


class _EventFields:
    """The fields of an event for a sentence; a missing one is ``?``."""

    def __init__(self, event: "Event", inside: str | None) -> None:
        self._event = event
        self._data = event.data if isinstance(event.data, dict) else {}
        self._inside = inside.rstrip("/") + "/" if inside else None

    def __getitem__(self, name: str) -> str:
        return self.lookup(name) or _INSTEAD.get(name, "?")

    def lookup(self, name: str) -> str:
        """Return a field for a sentence, empty when it is not there."""
        if name in ("who", "someone"):
            return self._event.agent_id or (OPERATOR if name == "who" else "Somebody")
        if name == "silence":
            ms = self._data.get("inactivity_duration_ms")
            return duration(ms) if isinstance(ms, int) else ""
        if name == "waited":
            ms = self._data.get("waited_ms")
            return duration(ms) if isinstance(ms, int) else ""
        if name == "need":
            return _NEEDS.get(str(self._data.get("needs")), "waits")
        if name == "ending":
            return self._ending()
        if name == "why":
            return _WHY.get(str(self._data.get("trigger")), "")
        return self._text(name, self._data.get(name))

    def _ending(self) -> str:
        """Return how a mission ended; older events give the cause only in their reason."""
        reason = self._text("reason", self._data.get("reason"))
        before = "session" if reason.startswith(endings.WITH_SESSION) else "person"
        match self._data.get("closed_reason", before):
            case "merged":
                return endings.merged(self._text("merged_into", self._data.get("merged_into")))
            case "session":
                return reason[:1].lower() + reason[1:] or endings.WITH_SESSION.lower()
            case _:
                return f"called off: {reason}" if reason else "called off"

    def _text(self, name: str, value: object) -> str:
        if isinstance(value, list):
            return ", ".join(map(str, value))
        if isinstance(value, dict) or (name, value) in _OMITTED_VALUES or value is None:
            return ""
        if name in _COUNTED:
            return plural(value, _COUNTED[name]) if isinstance(value, int) else ""
        text = " ".join(str(value).split()) if name != "file" else path(str(value))
        if name == "file" and self._inside and text.startswith(self._inside):
            text = text[len(self._inside) :]
        if len(text) > _WORDS:
            text = text[: _WORDS - 1].rstrip() + "…"
        if name == "title" and text:
            return f'"{text}"'
        return text.replace("_", " ") if name == "status" else text


def summarize(events: "Sequence[Event]", inside: str | None) -> str:
    """Return several events of one type and agent as one sentence."""
    return _filled_in(event_type(events[0].type).repeated, _RunFields(events, inside))


class _RunFields:
    """The fields of several events of one type, for one sentence about all."""

    def __init__(self, events: "Sequence[Event]", inside: str | None) -> None:
        self._events = events
        self._inside = inside

    def __getitem__(self, name: str) -> str:
        return str(self.lookup(name))

    def lookup(self, name: str) -> object:
        """Return a field of all events, else that of the last one."""
        events = self._events
        match name:
            case "who":
                return events[0].agent_id or OPERATOR
            case "count":
                return len(events)
            case "sentence":
                return sentence(events[-1], inside=self._inside)
            case "before":
                return events[0].data.get("percent")
            case "failed":
                return sum(each.data.get("result") == "FAIL" for each in events)
            case "people":
                people = (str(to) for each in events for to in each.data.get("to") or [])
                return ", ".join(dict.fromkeys(people))
            case "titles":
                return _named([f'"{each.data.get("title")}"' for each in events])
            case "files":
                return self._files()
        return events[-1].data.get(name)

    def _files(self) -> str:
        base = self._inside.rstrip("/") + "/" if self._inside else ""
        files = dict.fromkeys(str(each.data.get("file", "?")) for each in self._events)
        names = [each.removeprefix(base) for each in files]
        if len(names) == 1:
            return f"{names[0]} {len(self._events)} times"
        return f"{len(names)} files: {_named(names)}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
