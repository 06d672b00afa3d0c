"""Report of a hook: the vocabulary that all adapters share.

An adapter turns a vendor's payload into a Report; the rules in ``domain/sessions`` never see a
payload. Texts are cut here to their stored length, because a tool's input can be a whole file.
"""

from collections.abc import Set
from typing import Any, Literal

import msgspec

from ..protocol.types import Path, RunningKind

Source = Literal["startup", "resume", "clear", "compact"]
PlanStatus = Literal["pending", "in_progress", "completed", "dropped"]
Payload = dict[str, Any]


class Unfit(Exception):
    """A payload fits no known shape of its harness; the text says what is missing.

    ``event`` is the vendor's name of the event, where only the event is unknown.
    """

    def __init__(self, reason: str, *, event: str | None = None) -> None:
        super().__init__(reason)
        self.event = event


class Happening(msgspec.Struct, frozen=True, tag=True):
    """One thing that a hook reports."""


class SessionStarted(Happening, frozen=True):
    """A window opens: a new one, a resumed one, a cleared one, or one after a compaction."""

    source: Source


class PromptSubmitted(Happening, frozen=True):
    """The user sent a prompt; text that the harness or fleetd put into it is removed."""

    prompt: str


class ToolStarted(Happening, frozen=True):
    """A tool call begins; ``edits`` are the files it is about to change.

    ``task`` is what a subagent is to do, for a call that starts one.
    """

    tool: str
    call_id: str | None = None
    command: str | None = None
    edits: tuple[Path, ...] = ()
    task: str | None = None


class ToolFinished(Happening, frozen=True):
    """A tool call is over; ``passed`` is None where the harness does not report the outcome.

    ``command`` is set for shell commands only, ``edited`` for files that were changed, ``read`` for
    the file that a tool read. A command in the ``background`` keeps running.
    """

    tool: str
    call_id: str | None = None
    command: str | None = None
    edited: tuple[Path, ...] = ()
    passed: bool | None = None
    error: str | None = None
    duration_ms: int | None = None
    background: bool = False
    read: Path | None = None


class PlanItem(msgspec.Struct, frozen=True):
    """One step of a harness's own plan; ``id`` is the harness's name for it, where it has one."""

    text: str
    status: PlanStatus
    id: str | None = None


class PlanLink(msgspec.Struct, frozen=True):
    """The step ``item`` of a plan waits for the step ``on``, or no longer does; both are ids."""

    item: str
    on: str
    ends: bool = False


class Planned(Happening, frozen=True):
    """The plan changed: ``whole`` lists replace the plan, others change the items they name.

    In a partial list an empty ``text`` leaves the text unchanged. ``shared`` means that a session
    and its subagents share this plan. ``links`` are changes in what waits for what.
    """

    items: tuple[PlanItem, ...]
    whole: bool
    shared: bool = False
    links: tuple[PlanLink, ...] = ()


class Compacting(Happening, frozen=True):
    """The window is about to be compacted; not ``certain`` where the harness may skip that."""

    trigger: str = "auto"
    certain: bool = True


class Compacted(Happening, frozen=True):
    """The window was compacted; ``summary`` is what the harness kept of it, if it reports that."""

    summary: str | None = None


class WindowUsed(Happening, frozen=True):
    """How full the context window is: ``tokens`` of the ``size`` that fit, both counted in tokens.

    ``tokens`` are those of the last request to the model and of its answer. ``size`` is None where
    the harness does not report it.
    """

    tokens: int
    size: int | None = None


class Paused(Happening, frozen=True):
    """The turn is over and the agent waits for its user; ``last_message`` is its answer.

    A ``reminder`` comes a while later, mostly about an end that is known. ``interrupted`` means
    that the user broke the turn off.
    """

    last_message: str | None = None
    reminder: bool = False
    interrupted: bool = False


class DirectoryChanged(Happening, frozen=True):
    """The agent works in another directory from now on: the one of the report."""


class SubagentStarted(Happening, frozen=True):
    """The subagent that the report names begins."""

    kind: str | None = None


class SubagentEnded(Happening, frozen=True):
    """The subagent that the report names has given its answer."""

    last_message: str | None = None


class Failed(Happening, frozen=True):
    """The turn broke off: an error of the model's service or of the harness itself.

    ``shown_message`` is the sentence that the harness showed to its user, where there is one.
    ``limited`` means that the user's limit is reached; ``reset_at`` is when the limit ends, where
    the harness reports that (ISO 8601 UTC).
    """

    message: str
    limited: bool = False
    reset_at: str | None = None
    shown_message: str | None = None


class Noted(Happening, frozen=True):
    """Something worth a line in the log and nothing more, such as a notification."""

    what: str
    message: str | None = None


class PermissionRequested(Happening, frozen=True):
    """The agent waits until its user permits a tool call; ``message`` says which.

    A ``reminder`` is a notification to the user. It may be about a known request of the session's
    own agent or of a subagent. A request is not ``certain`` where the harness reports the same for
    calls that it permits by itself immediately. ``beside`` is as in QuestionAsked.
    """

    message: str | None = None
    reminder: bool = False
    certain: bool = True
    beside: bool = False


class QuestionAsked(Happening, frozen=True):
    """The agent asks its user something and waits for the answer.

    A ``reminder`` is a notification to the user, mostly about a question that is known. ``beside``
    means that the hook runs while the user is asked, after the hook that began the call: the answer
    may be reported before.
    """

    question: str | None = None
    reminder: bool = False
    beside: bool = False


class QuestionAnswered(Happening, frozen=True):
    """The user has answered a question; the call that asked it continues."""


class PlanProposed(Happening, frozen=True):
    """The agent waits until its user approves a plan; ``plan`` is the beginning of it.

    ``reminder`` and ``beside`` are as in QuestionAsked.
    """

    plan: str | None = None
    reminder: bool = False
    beside: bool = False


class Refused(Happening, frozen=True):
    """A person, or a rule of theirs, refused a permission or a plan, as the harness reports.

    ``about`` is the tool call or the plan. ``maybe_repeated`` means that it may have been reported
    before.
    """

    what: Literal["permission", "plan"]
    about: str | None = None
    reason: str | None = None
    maybe_repeated: bool = False


class CommitReverted(Happening, frozen=True):
    """Git reported that it reverted a commit, or with ``again`` that it applied it again."""

    subject: str
    again: bool = False


class RunningItem(msgspec.Struct, frozen=True):
    """Something that runs for the agent; ``id`` is the harness's name for it.

    ``task`` is what it is to do, ``output`` the file for its output.
    """

    id: str
    kind: RunningKind
    task: str | None = None
    output: str | None = None


class WorkRuns(Happening, frozen=True):
    """Work runs beside the turn; of ``whole`` kinds, ``items`` names all that runs."""

    items: tuple[RunningItem, ...]
    whole: tuple[RunningKind, ...] = ()


class WorkEnded(Happening, frozen=True):
    """Work that ran beside the turn is over; ``id`` names it."""

    id: str


class SessionEnded(Happening, frozen=True):
    """The session is closed."""

    reason: str | None = None


AnyHappening = (
    SessionStarted
    | PromptSubmitted
    | ToolStarted
    | ToolFinished
    | Planned
    | Compacting
    | Compacted
    | WindowUsed
    | Paused
    | DirectoryChanged
    | SubagentStarted
    | SubagentEnded
    | Failed
    | Noted
    | PermissionRequested
    | QuestionAsked
    | QuestionAnswered
    | PlanProposed
    | Refused
    | CommitReverted
    | WorkRuns
    | WorkEnded
    | SessionEnded
)
Happenings = tuple[AnyHappening, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one payload.

    ``harness`` is the true sender, ``event`` the vendor's name of the event. ``subagent`` names
    the agent inside the session that this is about. ``previous_session_id`` is set where a
    compaction makes a new session. ``moment`` is the vendor's timestamp, which distinguishes two
    equal events. ``injects`` means that text in the reply to this event reaches the model,
    ``denies`` that the reply can refuse the tool call, ``looks_back`` that the tail of the
    transcript is worth reading, ``seeks_compaction`` that it is to be searched for a compaction.
    ``request_opening`` is the first text of a request to the model that is about to be sent. Text
    in the reply is put after it, in this one request only. Such a report contains nothing else, and
    nothing is recorded; ``request_opening`` is empty where the reply can hold nothing. ``version``
    is the harness's, where it is reported. ``subagent_transcript_path`` is a subagent's own
    transcript.
    """

    harness: str
    event: str
    session_id: str
    happenings: Happenings
    subagent: str | None = None
    previous_session_id: str | None = None
    cwd: Path | None = None
    transcript_path: Path | None = None
    subagent_transcript_path: Path | None = None
    moment: str | None = None
    injects: bool = False
    denies: bool = False
    looks_back: bool = False
    seeks_compaction: bool = False
    request_opening: str | None = None
    version: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the daemon: text for the model, or why a tool call is refused."""

    context: str | None = None
    deny: str | None = None


class Adapter:
    """One harness: a module-level object of each adapter's module."""

    name: str
    """As in ``fleetctl hooks install <name>``."""
    known_events: Set[str] | None = None
    """The events that it uses or knowingly ignores; None where it refuses all others."""
    known_fields: Set[str] | None = None
    """The top-level fields of its payloads, whatever the event; None where no list is complete."""
    versions_in_transcripts = False
    """Whether transcripts contain the version, so that it is worth looking there."""
    in_process = False
    """Whether it reports by itself, not by a child process: then the client is the agent."""

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; ``event`` is given where the payload does not name it.

        Raises Unfit.
        """
        raise NotImplementedError

    def reply(self, report: Report, answer: Answer) -> str:
        """Return exactly what this harness honours on stdout; empty for silence."""
        return ""

    def look_back(self, tail: str) -> Happenings:
        """Return what a transcript's tail reports beyond the events; its first line may be cut."""
        return ()

    def version_in(self, head: str, tail: str) -> str | None:
        """Return the harness's version by the two ends of a transcript; lines in them may be cut.

        None where transcripts do not contain it.
        """
        return None
