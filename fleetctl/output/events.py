"""Every event as a sentence for people; must not print, ask the daemon or know the time.

``fleetd.domain.checkpoints.narrative`` tells an agent what it was doing; this tells who looks on
what happened.
What stands in an event comes from agents and tools: clean it before it reaches a terminal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleetd.protocol import endings
from fleetd.protocol.durations import duration

from .console import path, plural

if TYPE_CHECKING:
    from fleetd.protocol.records import Event

OPERATOR = "The operator"
# What is told of a type: the sentence, then what is added where its fields are there. ``who`` is
# the agent that did it, else the operator; ``title`` stands in quotes.
_TOLD: dict[str, tuple[str, ...]] = {
    "mission_created": ("{who} created the mission", " {title}"),
    "mission_started": ("{who} started the mission",),
    "mission_updated": ("{who} changed the mission", ": {fields}"),
    "mission_completed": ("The mission is completed", ", and merged into {merged_into}"),
    "mission_failed": ("The mission was given up", ": {reason}"),
    "mission_cancelled": ("The mission was {ending}",),
    "mission_reopened": ("The mission goes on: its session is back",),
    "mission_deleted": ("A mission was deleted", ", with {sorties}"),
    "sortie_created": ("{who} added the sortie {title}",),
    "sortie_assigned": ("{title} was given to {assigned_to}",),
    "sortie_started": ("{who} began {title}",),
    "sortie_progressed": ("{who} is at {percent}% of {title}", ": {notes}"),
    "sortie_blocked": ("{who} is blocked on {title}", ": {reason}"),
    "sortie_unblocked": ("{who} can go on with {title}",),
    "sortie_completed": ("{who} completed {title}",),
    "sortie_failed": ("{who} gave up {title}", ": {reason}"),
    "sortie_reopened": ("{who} has {title} to do again",),
    "sortie_updated": ("{who} changed {title}", ": {fields}"),
    "sortie_removed": ("{who} removed the sortie {title}",),
    "sortie_moved": ("{title} goes on here, from {from_mission}",),
    "sortie_restored": ("The recovery set {title} to {status}",),
    "agent_registered": ("{who} joined", " as {role}", " ({harness})"),
    "agent_noted": ("{who} noted", ": {last_action}"),
    "agent_deregistered": ("{who} left", ": {reason}"),
    "agent_lost": ("{who} was lost", ": {reason}"),
    "agent_returned": ("{who} is back", ": {reason}"),
    "error_reported": ("{who} met an error", ": {name}", ": {message}"),
    "window_compacted": ("The context window of {who} was compacted",),
    "hook_noted": ("{who} heard from its harness", ": {what}", ": {message}"),
    "lock_acquired": ("{held_by} locked {file}", " ({purpose})"),
    "lock_renewed": ("{held_by} kept the lock on {file}",),
    "lock_released": ("{held_by} released {file}",),
    "lock_force_released": ("The lock of {held_by} on {file} was taken away", ": {reason}"),
    "lock_expired": ("The lock of {held_by} on {file} ran out",),
    "lock_conflicted": ("{wanted_by} did not get {file} back: {held_by} holds it",),
    "message_sent": ("{who} wrote to {to}", ": {subject}"),
    "message_acked": ("{who} dealt with a message",),
    "message_delivered": ("{who} received a message",),
    "message_requeued": ("A message waits again", " for {to}"),
    "message_failed": ("The message to {to} was refused", ", {error}", ": {subject}"),
    "fleet_checkpointed": (
        "Checkpoint {checkpoint_id} was taken",
        " at {progress_percent}%",
        " ({why})",
    ),
    "checkpoint_created": ("Checkpoint {checkpoint_id} is stored",),
    "checkpoint_deleted": ("Checkpoint {checkpoint_id} was deleted",),
    "checkpoints_pruned": ("Old checkpoints were deleted: {deleted}",),
    "backup_failed": ("The file of {checkpoint_id} could not be written", ": {error}"),
    "snapshot_recorded": ("Snapshot {snapshot_id} of {run_id} was recorded", " ({status})"),
    "snapshots_pruned": ("Old snapshots were deleted: {deleted}",),
    "context_compacted": ("The mission fell silent", ": nothing was done for {silence}"),
    "recovery_available": ("The mission can be recovered", " from {checkpoint_id}"),
    "fleet_recovered": (
        "The mission was recovered from {checkpoint_id}",
        ": {sorties_restored}, {locks_restored}, {messages_requeued}",
        ", {errors}",
    ),
    "recovery_briefed": ("{someone} was briefed",),
    "recovery_confirmed": ("{someone} is at work again after the recovery",),
    "recovery_unconfirmed": ("{someone} was briefed and has not been heard of since",),
    "records_forgotten": ("{missions} and {agents} were forgotten",),
    "store_restored": ("The database was restored", " ({source})"),
    "legacy_imported": ("{events} came from an older store",),
    "file_modified": ("{who} edited {file}",),
    "command_started": ("{who} runs {command}",),
    "command_finished": ("{who} ran {command}", " ({result})"),
    "tool_started": ("{who} uses {tool}",),
    "tool_finished": ("{who} used {tool}",),
    "tool_failed": ("{name} failed for {who}", ": {error}"),
    "prompt_submitted": ("{who} was given a prompt", ": {prompt}"),
    "agent_answered": ("{who} said", ": {message}"),
    "agent_paused": ("{who} waits for its user",),
    "agent_resumed": ("{who} goes on",),
}
# What is told of a note of a harness, by what it is about.
_NOTED: dict[str, tuple[str, ...]] = {
    "permission_request": ("{who} asks for a permission", ": {message}"),
    "permission_prompt": ("{who} waits for a permission", ": {message}"),
}
# Styles by what it means for a mission; what is not named is neither good nor bad.
_TONES = {
    "green": "mission_completed sortie_completed fleet_recovered recovery_confirmed agent_returned",
    "yellow": "sortie_blocked context_compacted recovery_available recovery_unconfirmed"
    " lock_expired lock_force_released mission_cancelled window_compacted message_requeued",
    "red": "mission_failed sortie_failed agent_lost error_reported tool_failed lock_conflicted"
    " message_failed backup_failed",
}
TONES = {name: tone for tone, names in _TONES.items() for name in names.split()}
# Why a checkpoint was taken, by its trigger.
_WHY = {
    "manual": "by hand",
    "progress": "milestone",
    "error": "after an error",
    "compaction": "before a compaction",
}
# Numbers that are told with what they count.
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
# What is so nearly always.
_NOT_WORTH_TELLING = (("errors", 0), ("purpose", "edit"))
_INSTEAD = {"command": "a command", "tool": "a tool", "name": "A tool", "file": "a file"}
_WORDS = 300


def sentence(event: "Event", *, inside: str | None = None) -> str:
    """Return what happened, as a sentence without a full stop: ``spec-1 completed "Login"``.

    Files are named from the directory ``inside`` where they lie in it.
    """
    told = _Told(event, inside)
    pieces = _TOLD.get(event.type)
    if event.type == "hook_noted":
        pieces = _NOTED.get(told["what"], pieces)
    if pieces is None:
        what = event.type.replace("_", " ")
        return f"{event.agent_id}: {what}" if event.agent_id else what.capitalize()
    first, *more = pieces
    return first.format_map(told) + "".join(
        piece.format_map(told) for piece in more if told.has(piece)
    )


def tone(event_type: str) -> str | None:
    """Return the style of an event: ``green`` for done, ``yellow`` and ``red`` for trouble."""
    return TONES.get(event_type)


class _Told(Mapping[str, str]):
    """The fields of an event as they are told; one that is missing is told as ``?``."""

    def __init__(self, event: "Event", inside: str | None) -> None:
        self._event = event
        self._data = event.data if isinstance(event.data, dict) else {}
        self._inside = inside.rstrip("/") + "/" if inside else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def has(self, piece: str) -> bool:
        """Whether every field that a piece of a sentence names is there."""
        names = [part.partition("}")[0] for part in piece.split("{")[1:]]
        return all(self._found(name) for name in names)

    def __getitem__(self, name: str) -> str:
        return self._found(name) or _INSTEAD.get(name, "?")

    def _found(self, name: str) -> str:
        if name in ("who", "someone"):
            return self._event.agent_id or (OPERATOR if name == "who" else "Somebody")
        if name == "silence":
            ms = self._data.get("inactivity_duration_ms")
            return duration(ms) if isinstance(ms, int) else ""
        if name == "ending":
            return self._ending()
        if name == "why":
            return _WHY.get(str(self._data.get("trigger")), "")
        return self._text(name, self._data.get(name))

    def _ending(self) -> str:
        """Return how a mission ended: events of before did not say why, but in their reason."""
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
        if isinstance(value, dict) or (name, value) in _NOT_WORTH_TELLING or value is None:
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


# Files and titles that are named of a run.
NAMED = 3


class Run(NamedTuple):
    """Two events or more of one type and agent; files are named from the directory ``inside``."""

    events: "Sequence[Event]"
    inside: str | None


def _who(run: Run) -> str:
    return run.events[0].agent_id or OPERATOR


def _progress(run: Run) -> str:
    first, last = run.events[0].data, run.events[-1].data
    notes = f": {last['notes']}" if last.get("notes") else ""
    went = f"went from {first.get('percent')}% to {last.get('percent')}%"
    return f'{_who(run)} {went} of "{last.get("title")}" in {len(run.events)} steps{notes}'


def _files(verb: str) -> Callable[[Run], str]:
    def tell(run: Run) -> str:
        base = run.inside.rstrip("/") + "/" if run.inside else ""
        files = list(dict.fromkeys(str(each.data.get("file", "?")) for each in run.events))
        names = [each.removeprefix(base) for each in files]
        if len(names) == 1:
            return f"{_who(run)} {verb} {names[0]} {len(run.events)} times"
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"{_who(run)} {verb} {len(names)} files: {', '.join(names[:NAMED])}{more}"

    return tell


def _commands(run: Run) -> str:
    failed = sum(each.data.get("result") == "FAIL" for each in run.events)
    trouble = f", {failed} failed" if failed else ""
    return f"{_who(run)} ran {len(run.events)} commands{trouble}"


def _sorties(run: Run) -> str:
    titles = ", ".join(f'"{each.data.get("title")}"' for each in run.events[:NAMED])
    more = f" and {len(run.events) - NAMED} more" if len(run.events) > NAMED else ""
    return f"{_who(run)} added {len(run.events)} sorties: {titles}{more}"


def _letters(run: Run) -> str:
    people = dict.fromkeys(str(to) for each in run.events for to in each.data.get("to") or [])
    return f"{_who(run)} wrote {len(run.events)} messages to {', '.join(people)}"


def _again(run: Run) -> str:
    return f"{sentence(run.events[-1], inside=run.inside)} ({len(run.events)} times)"


RUNS: dict[str, Callable[[Run], str]] = {
    "sortie_progressed": _progress,
    "sortie_created": _sorties,
    "sortie_restored": _again,
    "file_modified": _files("edited"),
    "lock_acquired": _files("locked"),
    "lock_released": _files("released"),
    "lock_expired": _again,
    "command_finished": _commands,
    "tool_finished": _again,
    "tool_failed": _again,
    "error_reported": _again,
    "message_sent": _letters,
    "message_acked": _again,
    "message_requeued": _again,
    "agent_answered": _again,
    "prompt_submitted": _again,
    "agent_noted": _again,
}
