"""Claude Code's hooks, and those of Qwen Code, Droid and Kimi Code that are shaped like them.

Handlers that other adapters share are public: tools, the end, a compaction that no event follows.

Based on the types of Claude Code 2.1.330; docs/hooks.md has the use of each of its events.
"""

import contextlib
import json
import re

import msgspec
from msgspec.structs import replace

from ..protocol.timestamps import iso
from ..protocol.types import RunningKind
from .payload import (
    ERROR_CHARS,
    MESSAGE_CHARS,
    PROMPT_CHARS,
    VERSION_CHARS,
    Handler,
    ToolCall,
    asked_for,
    cut,
    event_name,
    finished,
    happenings_of,
    need,
    path,
    planned,
    reverted,
    task,
    text,
    tool_failed,
    tool_started,
    waits_for_user,
    window_used,
)
from .report import (
    Adapter,
    Answer,
    Compacted,
    Compacting,
    DirectoryChanged,
    Failed,
    Happenings,
    Noted,
    Paused,
    Payload,
    PermissionRequested,
    PromptSubmitted,
    QuestionAnswered,
    QuestionAsked,
    Refused,
    Report,
    RunningItem,
    SessionEnded,
    SessionStarted,
    Source,
    SubagentEnded,
    SubagentStarted,
    WorkEnded,
    WorkRuns,
)

_SOURCES: dict[str, Source] = {"resume": "resume", "clear": "clear", "compact": "compact"}
# Prompts that a person wrote; the others are timers, messages of other agents, and the like.
_BY_A_PERSON = frozenset((None, "user", "sdk"))
_PUT_IN = re.compile(r"\s*<(system-reminder|task-notification|local-command-caveat)>")
_ANALYSIS = re.compile(r"<analysis>.*?(</analysis>|\Z)", re.DOTALL)
_SUMMARY = re.compile(r"</?summary>")
_TASK_KINDS: dict[str, RunningKind] = {"shell": "shell", "subagent": "subagent"}
# How much of a list of running work is read.
RUNNING = 250
# How many lines of a transcript are searched for the version.
LINES = 50
_LIMITED = re.compile(r"rate_limit|usage limit|limit reached|quota|billing", re.IGNORECASE)
# When the limit ends, in seconds since 1970, as Claude Code appends it to its message.
_RESET = re.compile(r"limit[^|\n]{0,200}\|(\d{10})\b", re.IGNORECASE)
# Where additionalContext reaches the model. Elsewhere it has no effect, or keeps the turn going.
INJECTING = frozenset(
    ("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "SubagentStart")
)


def _session_started(call: ToolCall) -> Happenings:
    """Report a start, and how full the window of a resumed session is where that is known.

    The model's name tells the size of its window only by the suffix ``[1m]``.
    """
    started = SessionStarted(source=_SOURCES.get(text(call.payload, "source") or "", "startup"))
    million = (text(call.payload, "model") or "").endswith("[1m]")
    payload = {**call.payload, "size": 1_000_000 if million else None}
    return (started, *window_used(payload, "context_tokens", "size"))


def _prompted(call: ToolCall) -> Happenings:
    prompt = _prompt(call.payload)
    written = _written(prompt)
    if text(call.payload, "source") in _BY_A_PERSON and written:
        return (PromptSubmitted(prompt=cut(written, PROMPT_CHARS)),)
    return (Noted(what="machine_prompt", message=cut(prompt, MESSAGE_CHARS) or None),)


def _written(prompt: str) -> str:
    """Return a prompt without the blocks that the harness put before it."""
    start = 0
    while (opening := _PUT_IN.match(prompt, start)) is not None:
        closing = f"</{opening[1]}>"
        end = prompt.find(closing, opening.end())
        if end < 0:
            break
        start = end + len(closing)
    return prompt[start:].strip()


def _prompt(payload: Payload) -> str:
    """Return a prompt's text; Kimi sends a list of parts."""
    prompt = payload.get("prompt")
    if isinstance(prompt, str):
        return prompt
    parts = prompt if isinstance(prompt, list) else []
    texts = (text(each, "text", most=PROMPT_CHARS) for each in parts if isinstance(each, dict))
    return "\n".join(filter(None, texts))


def tool_finished(call: ToolCall) -> Happenings:
    """Report that a tool call is over, and what it planned or left running."""
    return (finished(call), *planned(call), *reverted(call), *_backgrounded(call))


def _backgrounded(call: ToolCall) -> Happenings:
    subagent_id = text(call.result, "agentId") if call.result.get("isAsync") is True else None
    named = text(call.result, "backgroundTaskId") or subagent_id
    if named is None:
        return ()
    description = call.command or text(call.given, "description", most=MESSAGE_CHARS)
    output = path(call.result.get("outputFile"), call.cwd)
    kind: RunningKind = "subagent" if subagent_id else "shell" if call.command else "task"
    return (WorkRuns(items=(RunningItem(named, kind, description, output),)),)


def _running(payload: Payload) -> Happenings:
    """Return what runs beside the ending turn; nothing for a CLI that does not list it."""
    tasks, crons = payload.get("background_tasks"), payload.get("session_crons")
    if not isinstance(tasks, list):
        return ()
    items = [_task(each) for each in tasks[:RUNNING] if isinstance(each, dict)]
    if isinstance(crons, list):
        items += [_cron(each) for each in crons[:RUNNING] if isinstance(each, dict)]
    known = tuple(each for each in items if each is not None)
    return (WorkRuns(items=known, whole=("shell", "subagent", "task", "schedule")),)


def _task(entry: Payload) -> RunningItem | None:
    named = text(entry, "id")
    kind = _TASK_KINDS.get(text(entry, "type") or "", "task")
    words = text(entry, "description", "command", "agent_type", "tool", "name", most=MESSAGE_CHARS)
    return None if named is None else RunningItem(named, kind, words)


def _cron(entry: Payload) -> RunningItem | None:
    named, when = text(entry, "id"), text(entry, "schedule")
    words = text(entry, "prompt", most=MESSAGE_CHARS)
    shown = ": ".join(filter(None, (when, words)))
    return None if named is None else RunningItem(named, "schedule", shown or None)


def _stopped(call: ToolCall) -> Happenings:
    return (*_running(call.payload), Paused(last_message=_answer(call.payload)))


def _interrupted(call: ToolCall) -> Happenings:
    return (*_running(call.payload), Paused(last_message=_answer(call.payload), interrupted=True))


def _teammate(payload: Payload) -> Happenings:
    """Return the sign of life of a teammate that an event names: it works on something."""
    named = text(payload, "teammate_name")
    subject = text(payload, "task_subject", most=MESSAGE_CHARS)
    return () if named is None else (WorkRuns(items=(RunningItem(named, "teammate", subject),)),)


def _teammate_idle(call: ToolCall) -> Happenings:
    """Report that a teammate has done its task; no event reports that it leaves."""
    named = text(call.payload, "teammate_name")
    noted = Noted(what="teammate_idle", message=named)
    return (noted,) if named is None else (noted, WorkEnded(named))


def _compacting(call: ToolCall) -> Happenings:
    return (Compacting(trigger=text(call.payload, "trigger") or "auto"),)


def compacting_unfollowed(call: ToolCall) -> Happenings:
    """Report a compaction by its only event: no other reports that it is done."""
    return (*_compacting(call), Compacted())


def plain_prompt(call: ToolCall) -> Happenings:
    """Report a prompt that arrives as the person wrote it."""
    prompt = text(call.payload, "prompt", most=PROMPT_CHARS)
    return (Noted(what="empty_prompt"),) if prompt is None else (PromptSubmitted(prompt=prompt),)


def _compacted(call: ToolCall) -> Happenings:
    summary = call.payload.get("compact_summary")
    if not isinstance(summary, str):
        return (Compacted(),)
    kept = _SUMMARY.sub("", _ANALYSIS.sub("", summary)).strip()
    return (Compacted(summary=cut(kept, PROMPT_CHARS) or None),)


def _subagent_started(call: ToolCall) -> Happenings:
    kind = text(call.payload, "agent_type", "agent_name")
    return () if subagent(call.payload) is None else (SubagentStarted(kind=kind),)


def _subagent_ended(call: ToolCall) -> Happenings:
    answer = SubagentEnded(last_message=_answer(call.payload))
    return () if subagent(call.payload) is None else (answer,)


def _failed(call: ToolCall) -> Happenings:
    # The first field is what the CLI showed to its user.
    sentences = ("last_assistant_message", "error_details", "error_message")
    shown = text(call.payload, *sentences, most=ERROR_CHARS)
    parts = (
        text(call.payload, "error", "error_type", most=ERROR_CHARS),
        text(call.payload, *sentences[1:], most=ERROR_CHARS) or shown,
    )
    message = cut(": ".join(filter(None, parts)), ERROR_CHARS) or "unknown"
    reset = _RESET.search(message) or _RESET.search(shown or "")
    stamp = f"|{reset[1]}" if reset else ""
    return (
        Failed(
            message=message.replace(stamp, ""),
            shown_message=shown.replace(stamp, "") if shown else None,
            limited=_LIMITED.search(message) is not None,
            reset_at=iso(int(reset[1]) * 1_000) if reset else None,
        ),
    )


def _notified(call: ToolCall) -> Happenings:
    message = text(call.payload, "message", "body", most=MESSAGE_CHARS)
    kind = text(call.payload, "notification_type")
    # Older builds do not name the kind.
    if kind == "idle_prompt" or (kind is None and "waiting for your input" in (message or "")):
        return (Paused(reminder=True),)
    if kind in ("elicitation_dialog", "agent_needs_input"):
        return (QuestionAsked(question=message, reminder=True),)
    if kind == "permission_prompt" or (kind is None and "your permission" in (message or "")):
        return (PermissionRequested(message=message, reminder=True),)
    return (Noted(what=kind or "notification", message=message),)


def _asked(call: ToolCall) -> Happenings:
    """Report a request for permission; a tool that asks its user needs an answer instead."""
    if asked := waits_for_user(call):
        return tuple(replace(each, beside=True) for each in asked)
    return (PermissionRequested(message=asked_for(call), beside=True),)


def _elicited(call: ToolCall) -> Happenings:
    return (QuestionAsked(question=text(call.payload, "message", most=MESSAGE_CHARS)),)


def _denied(call: ToolCall) -> Happenings:
    why = text(call.payload, "reason", most=MESSAGE_CHARS)
    message = f"{call.tool}: {why}" if why else call.tool
    noted = Noted(what="permission_denied", message=cut(message, MESSAGE_CHARS))
    return (noted, Refused("permission", asked_for(call), why))


def session_ended(call: ToolCall) -> Happenings:
    """Report that the session is over."""
    return (SessionEnded(reason=text(call.payload, "reason")),)


HANDLERS: dict[str, Handler] = {
    "SessionStart": _session_started,
    "UserPromptSubmit": _prompted,
    "PreToolUse": tool_started,
    "Elicitation": _elicited,
    "ElicitationResult": lambda _: (QuestionAnswered(),),
    "PostToolUse": tool_finished,
    "PostToolUseFailure": tool_failed,
    "PreCompact": _compacting,
    "PostCompact": _compacted,
    "Stop": _stopped,
    "Interrupt": _interrupted,
    "StopFailure": _failed,
    "SubagentStart": _subagent_started,
    "SubagentStop": _subagent_ended,
    "TaskCreated": lambda call: (*task(call.payload, "pending"), *_teammate(call.payload)),
    "TaskCompleted": lambda call: (*task(call.payload, "completed"), *_teammate(call.payload)),
    "Notification": _notified,
    "PermissionRequest": _asked,
    "PermissionDenied": _denied,
    "TeammateIdle": _teammate_idle,
    "CwdChanged": lambda _: (DirectoryChanged(),),
    "SessionEnd": session_ended,
}


def _answer(payload: Payload) -> str | None:
    return text(payload, "last_assistant_message", most=MESSAGE_CHARS)


def subagent(payload: Payload) -> str | None:
    """Return the agent inside the session that this is about.

    An empty type is the fork that writes a compaction's summary, which counts as no agent.
    """
    return None if payload.get("agent_type") == "" else text(payload, "agent_id")


# The events of 2.1.330 that fleetd does not use.
IGNORED = frozenset(
    (
        *("ConfigChange", "DirectoryAdded", "FileChanged"),
        *("InstructionsLoaded", "MessageDisplay", "PostModelSwitch", "PostToolBatch"),
        *("PreModelSwitch", "Setup", "UserPromptExpansion", "WorktreeCreate", "WorktreeRemove"),
    )
)
# The top-level fields of all payloads of 2.1.330, and of those of earlier builds.
_FIELDS = frozenset(
    (
        *("action", "agent_id", "agent_transcript_path", "agent_type", "background_tasks"),
        *("body", "command_args", "command_name", "command_source", "compact_summary", "content"),
        *("context_tokens", "custom_instructions", "cwd", "delta", "directory", "duration_ms"),
        *("effort", "elicitation_id", "error", "error_details", "estimated_cache_write_usd"),
        *("event", "expansion_type", "file_path", "final", "globs"),
        *("hook_event_name", "index", "is_interrupt", "last_assistant_message", "load_reason"),
        *("mcp_server", "mcp_server_name", "memory_type", "message", "message_id", "mode"),
        *("model", "name", "new_cwd", "notification_type", "old_cwd", "parent_file_path"),
        *("permission_mode", "permission_suggestions", "prompt", "prompt_cache_likely_expired"),
        *("prompt_id", "reason", "requested_schema", "seconds_since_last_response"),
        *("session_crons", "session_id", "session_title", "source", "stop_hook_active"),
        *("task_description", "task_id", "task_subject", "team_name", "teammate_name", "title"),
        *("tool_calls", "tool_input", "tool_name", "tool_response", "tool_use_id"),
        *("transcript_path", "trigger", "trigger_file_path", "turn_id", "url", "worktree_path"),
    )
)


class _Line(msgspec.Struct):
    """The part of a transcript's line that every kind of line has."""

    version: str


_line = msgspec.json.Decoder(_Line).decode


class Claude(Adapter):
    """A harness whose hooks have the shape of Claude Code's.

    ``injecting`` are its events whose reply reaches the model, ``channel`` is the reply's field for
    that. ``denying`` means that it can refuse an edit, ``silent_failures`` that it has no event for
    a failed tool.
    """

    def __init__(
        self,
        name: str,
        *,
        injecting: frozenset[str] = INJECTING,
        channel: str = "additionalContext",
        denying: bool = True,
        silent_failures: bool = False,
    ) -> None:
        self.name = name
        self._injecting = injecting
        self._channel = channel
        self._denying = denying
        self._silent_failures = silent_failures
        self.known_events = HANDLERS.keys() | IGNORED
        # CLIs with hooks of the same shape have fields of their own.
        self.known_fields = _FIELDS if name == "claude" else None
        self.versions_in_transcripts = name == "claude"

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        named = event_name(payload, event)
        cwd = path(payload.get("cwd"), None)
        if named == "CwdChanged":
            cwd = path(payload.get("new_cwd"), None) or cwd
        call = ToolCall(payload, cwd, self._silent_failures)
        return Report(
            harness=self.name,
            event=named,
            session_id=need(payload, "session_id"),
            happenings=happenings_of(HANDLERS, named, call),
            subagent=subagent(payload),
            previous_session_id=text(payload, "previous_session_id"),
            cwd=cwd,
            transcript_path=path(payload.get("transcript_path"), None),
            subagent_transcript_path=path(payload.get("agent_transcript_path"), None),
            moment=text(payload, "timestamp"),
            injects=named in self._injecting,
            denies=self._denying and named == "PreToolUse" and bool(call.edits),
        )

    def reply(self, report: Report, answer: Answer) -> str:
        """Return the one JSON object that is honoured; empty wherever it would do harm."""
        if answer.deny is not None and report.denies:
            return _output(
                report.event, permissionDecision="deny", permissionDecisionReason=answer.deny
            )
        if answer.context and report.injects:
            return _output(report.event, **{self._channel: answer.context})
        return ""

    def version_in(self, head: str, tail: str) -> str | None:
        """Return the version that wrote the last lines of a transcript."""
        for line in reversed(tail.splitlines()[-LINES:]):
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                return text({"version": _line(line).version}, "version", most=VERSION_CHARS)
        return None


def _output(event: str, **fields: str) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **fields}})


adapter = Claude("claude")
qwen = Claude("qwen")
droid = Claude(
    "droid",
    injecting=frozenset(("SessionStart", "UserPromptSubmit", "PostToolUse")),
    silent_failures=True,
)
kimi = Claude("kimi", injecting=frozenset(("UserPromptSubmit",)), channel="message")
