"""Event types: name, sentence, tone, activity, and what a live view reads again after one.

Plain data, which commands load as well. What ``data`` holds of a type that the daemon writes is in
``events``, with its meaning; of what harnesses report both stand here.
"""

from typing import Literal, NamedTuple

Part = Literal["status", "missions", "sorties", "agents", "locks", "mail", "checkpoints", "events"]

# Whatever an agent does ends a silence, and may prolong what it holds.
AGENTS: tuple[Part, ...] = ("status", "agents", "locks")
ALL: tuple[Part, ...] = (*AGENTS, "missions", "sorties", "mail", "checkpoints")
_AGAIN = ("{sentence} ({count} times)",)


class EventType(NamedTuple):
    """One type of event.

    ``sentence`` is what is told of one, then what is added where its fields are there. ``who`` is
    the agent that did it, else the operator; ``title`` stands in quotes. ``repeated`` is told of
    several in a row that are alike, also in the field ``alike``. It is ``shown`` always, only
    ``live`` where a story leaves it out, or in the ``log`` alone, as another event or a silence
    says it better.
    """

    name: str
    sentence: tuple[str, ...]
    tone: Literal["", "green", "yellow", "red"] = ""
    # Something an agent or a person did. What the daemon says by itself never is, or it would keep
    # a silent mission looking alive.
    activity: bool = True
    shown: Literal["always", "live", "log"] = "always"
    repeated: tuple[str, ...] = ()
    alike: str = ""
    refreshes: tuple[Part, ...] | None = None
    # Of what harnesses report: what fleetd reads of it, and what it means.
    fields: tuple[str, ...] = ()
    meaning: str = ""


_MISSIONS = (
    EventType("mission_created", ("{who} created the mission", " {title}")),
    EventType("mission_started", ("{who} started the mission",)),
    EventType("mission_updated", ("{who} changed the mission", ": {fields}")),
    EventType(
        "mission_completed",
        ("The mission is completed", ", and merged into {merged_into}"),
        "green",
    ),
    EventType("mission_failed", ("The mission was given up", ": {reason}"), "red"),
    EventType("mission_cancelled", ("The mission was {ending}",), "yellow"),
    EventType("mission_reopened", ("The mission goes on: its session is back",), activity=False),
    EventType("mission_changed", ("Work elsewhere changed the mission",), activity=False),
    EventType("mission_deleted", ("A mission was deleted", ", with {sorties}"), activity=False),
)
_SORTIES = (
    EventType(
        "sortie_created",
        ("{who} added the sortie {title}",),
        repeated=("{who} added {count} sorties: {titles}",),
    ),
    EventType("sortie_assigned", ("{title} was given to {assigned_to}",)),
    EventType("sortie_started", ("{who} began {title}",)),
    EventType(
        "sortie_progressed",
        ("{who} is at {percent}% of {title}", ": {notes}"),
        repeated=(
            '{who} went from {before}% to {percent}% of "{title}" in {count} steps',
            ": {notes}",
        ),
        alike="sortie_id",
    ),
    EventType("sortie_blocked", ("{who} is blocked on {title}", ": {reason}"), "yellow"),
    EventType("sortie_unblocked", ("{who} can go on with {title}",)),
    EventType("sortie_completed", ("{who} completed {title}",), "green"),
    EventType("sortie_failed", ("{who} gave up {title}", ": {reason}"), "red"),
    EventType("sortie_reopened", ("{who} has {title} to do again",)),
    EventType("sortie_updated", ("{who} changed {title}", ": {fields}"), shown="live"),
    EventType("sortie_removed", ("{who} removed the sortie {title}",)),
    EventType("sortie_moved", ("{title} goes on here, from {from_mission}",), activity=False),
    EventType(
        "sortie_restored",
        ("The recovery set {title} to {status}",),
        activity=False,
        repeated=_AGAIN,
    ),
)
_AGENTS = (
    EventType("agent_registered", ("{who} joined", " as {role}", " ({harness})")),
    EventType("agent_noted", ("{who} noted", ": {last_action}"), repeated=_AGAIN),
    EventType("agent_deregistered", ("{who} left", ": {reason}")),
    EventType(
        "error_reported",
        ("{who} met an error", ": {name}", ": {message}"),
        "red",
        repeated=_AGAIN,
        alike="message",
    ),
    EventType(
        "window_compacted", ("The context window of {who} was compacted",), "yellow", activity=False
    ),
    # That an agent was briefed is told by the recovery.
    EventType(
        "window_briefed",
        ("{who} was given a briefing of {characters} characters",),
        activity=False,
        shown="log",
        refreshes=(),
    ),
    EventType(
        "briefing_missed",
        ("{who} was not given its briefing", " ({reason})"),
        activity=False,
        shown="live",
        refreshes=(),
    ),
    EventType(
        "hook_noted",
        ("{who} heard from its harness", ": {what}", ": {message}"),
        activity=False,
        shown="live",
        refreshes=(),
    ),
    EventType(
        "agent_needs",
        ("{who} {need}", ": {text}"),
        "yellow",
        activity=False,
        shown="live",
        refreshes=("status", "agents"),
    ),
    EventType("agent_lost", ("{who} was lost", ": {reason}"), "red", activity=False),
    EventType("agent_returned", ("{who} is back", ": {reason}"), "green", activity=False),
)
_NOTES = (
    EventType("note_added", ("{who} noted", " ({kind})", ": {text}", ", because {because}")),
    EventType("note_recorded", ("A fact was noted of {who}", ": {text}"), activity=False),
    EventType("note_withdrawn", ("{who} withdrew a note", " ({kind})", ": {reason}")),
    EventType("note_pinned", ("{who} pinned a note", " ({kind})"), activity=False),
    EventType("note_unpinned", ("{who} removed the pin of a note", " ({kind})"), activity=False),
)
_LOCKS = (
    EventType(
        "lock_acquired",
        ("{held_by} locked {file}", " ({purpose})"),
        repeated=("{who} locked {files}",),
    ),
    EventType("lock_renewed", ("{held_by} kept the lock on {file}",), shown="live"),
    EventType(
        "lock_released", ("{held_by} released {file}",), repeated=("{who} released {files}",)
    ),
    EventType(
        "lock_force_released",
        ("The lock of {held_by} on {file} was taken away", ": {reason}"),
        "yellow",
    ),
    EventType(
        "lock_expired",
        ("The lock of {held_by} on {file} ran out",),
        "yellow",
        activity=False,
        repeated=_AGAIN,
    ),
    EventType(
        "lock_wait_ended",
        ("{who} waited {waited} for {file}", ", which {waited_for} held"),
        activity=False,
        shown="live",
        refreshes=(),
    ),
    EventType(
        "lock_conflicted",
        ("{wanted_by} did not get {file} back: {held_by} holds it",),
        "red",
        activity=False,
    ),
)
_MESSAGES = (
    EventType(
        "message_sent",
        ("{who} wrote to {to}", ": {subject}"),
        repeated=("{who} wrote {count} messages to {people}",),
    ),
    EventType("message_acked", ("{who} dealt with a message",), repeated=_AGAIN),
    EventType("message_delivered", ("{who} received a message",), activity=False, shown="live"),
    EventType(
        "message_requeued",
        ("A message waits again", " for {to}"),
        "yellow",
        activity=False,
        repeated=_AGAIN,
    ),
    EventType(
        "message_failed",
        ("The message to {to} was refused", ", {error}", ": {subject}"),
        "red",
        activity=False,
    ),
)
_CHECKPOINTS = (
    EventType(
        "fleet_checkpointed",
        ("Checkpoint {checkpoint_id} was taken", " at {progress_percent}%", " ({why})"),
        activity=False,
    ),
    EventType(
        "checkpoint_created", ("Checkpoint {checkpoint_id} is stored",), activity=False, shown="log"
    ),
    EventType(
        "checkpoint_deleted",
        ("Checkpoint {checkpoint_id} was deleted",),
        activity=False,
        shown="live",
    ),
    EventType("checkpoints_pruned", ("Old checkpoints were deleted: {deleted}",), activity=False),
    EventType(
        "backup_failed",
        ("The file of {checkpoint_id} could not be written", ": {error}"),
        "red",
        activity=False,
        shown="live",
        refreshes=(),
    ),
)
_SNAPSHOTS = (
    EventType(
        "snapshot_recorded",
        ("Snapshot {snapshot_id} of {run_id} was recorded", " ({status})"),
        activity=False,
        shown="log",
    ),
    EventType("snapshots_pruned", ("Old snapshots were deleted: {deleted}",), activity=False),
)
_RECOVERIES = (
    EventType(
        "context_compacted",
        ("The mission fell silent", ": nothing was done for {silence}"),
        "yellow",
        activity=False,
        shown="live",
    ),
    EventType(
        "recovery_available",
        ("The mission can be recovered", " from {checkpoint_id}"),
        "yellow",
        activity=False,
    ),
    EventType(
        "fleet_recovered",
        (
            "The mission was recovered from {checkpoint_id}",
            ": {sorties_restored}, {locks_restored}, {messages_requeued}",
            ", {errors}",
        ),
        "green",
        activity=False,
    ),
    EventType("recovery_briefed", ("{someone} was briefed",), activity=False),
    EventType(
        "recovery_confirmed",
        ("{someone} is at work again after the recovery",),
        "green",
        activity=False,
    ),
    EventType(
        "recovery_unconfirmed",
        ("{someone} was briefed and has not been heard of since",),
        "yellow",
        activity=False,
    ),
)
_STORE = (
    EventType("records_forgotten", ("{missions} and {agents} were forgotten",), activity=False),
    EventType("store_restored", ("The database was restored", " ({source})"), activity=False),
    EventType(
        "legacy_imported",
        ("{events} came from an older store",),
        activity=False,
        refreshes=AGENTS,
    ),
)
_REPORTED = (
    EventType(
        "file_modified",
        ("{who} edited {file}",),
        repeated=("{who} edited {files}",),
        fields=("file",),
        meaning="an agent changed a file: it goes into `files_modified`",
    ),
    EventType(
        "command_started",
        ("{who} runs {command}",),
        shown="live",
        fields=("command", "tool", "call_id"),
        meaning="a command is running; it prevents silence for at most an hour",
    ),
    EventType(
        "command_finished",
        ("{who} ran {command}", " ({result})"),
        repeated=("{who} ran {count} commands", ", {failed} failed"),
        fields=("command", "name", "result", "error", "call_id", "duration_ms", "background"),
        meaning="the command ended, or runs on in the `background`; `result` is `PASS` or `FAIL` "
        "if known",
    ),
    EventType(
        "tool_started",
        ("{who} uses {tool}",),
        shown="live",
        fields=("tool", "call_id", "task"),
        meaning="a tool call other than a command is open; it prevents silence for at most an hour",
    ),
    EventType(
        "tool_finished",
        ("{who} used {tool}",),
        repeated=_AGAIN,
        fields=("tool", "call_id", "duration_ms", "file"),
        meaning="the tool call ended; `file` is the file that it read",
    ),
    EventType(
        "tool_failed",
        ("{name} failed for {who}", ": {error}"),
        "red",
        repeated=_AGAIN,
        alike="name",
        fields=("name", "error", "command", "result", "call_id"),
        meaning="the tool call failed",
    ),
    EventType(
        "prompt_submitted",
        ("{who} was given a prompt", ": {prompt}"),
        repeated=_AGAIN,
        fields=("prompt",),
        meaning="a new turn: earlier calls have ended; the prompt goes into the briefing",
    ),
    EventType(
        "agent_answered",
        ("{who} said", ": {message}"),
        repeated=_AGAIN,
        fields=("message",),
        meaning="the agent's last words before it paused",
    ),
    EventType(
        "agent_paused",
        ("{who} waits for its user",),
        shown="live",
        meaning="the turn ended and the agent waits for its user: idle, not silent",
    ),
    EventType("agent_resumed", ("{who} goes on",), shown="live", meaning="the agent continues"),
)
# As docs/events.md has them; what is read again after an event is that of its group, unless it
# says so itself.
GROUPS: dict[str, tuple[tuple[EventType, ...], tuple[Part, ...]]] = {
    "Missions": (_MISSIONS, ("status", "missions", "sorties")),
    "Sorties": (_SORTIES, ("status", "sorties")),
    "Agents": (_AGENTS, AGENTS),
    "Notes": (_NOTES, ("status",)),
    "Locks": (_LOCKS, AGENTS),
    "Messages": (_MESSAGES, ("status", "mail", "agents")),
    "Checkpoints": (_CHECKPOINTS, ("status", "checkpoints")),
    "Snapshots": (_SNAPSHOTS, ()),
    "Silence and recovery": (_RECOVERIES, ALL),
    "The store": (_STORE, ALL),
    "What harnesses report": (_REPORTED, AGENTS),
}
EVENT_TYPES = {
    each.name: each if each.refreshes is not None else each._replace(refreshes=refreshes)
    for types, refreshes in GROUPS.values()
    for each in types
}
# About an agent's work; they arrive through event.append.
REPORTED_ACTIVITY = frozenset(each.name for each in _REPORTED)
# Of any other type, which somebody made up.
_OTHER = EventType("", (), refreshes=AGENTS)


def event_type(name: str) -> EventType:
    """Return what is known of a type; of one that nobody knows, that somebody did something."""
    return EVENT_TYPES.get(name, _OTHER)
