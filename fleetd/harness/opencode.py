"""OpenCode's events, as our plugin reports them.

Based on the types of @opencode-ai/plugin 1.18 and of @opencode/plugin 2.0. The payloads come from
``fleetctl/plugins/opencode.js``: ``{event, session_id, parent_id?, cwd, ...}``. The event has
OpenCode's name for it, and the fields are as OpenCode gives them, cut where they are long. The
reply is a JSON object for the plugin: ``context`` to put into the messages, ``deny`` to refuse a
tool call.
"""

import json
import re

from .payload import (
    ERROR_CHARS,
    MESSAGE_CHARS,
    PROMPT_CHARS,
    Handler,
    ToolCall,
    asked_for,
    cut,
    finished,
    happenings_of,
    listed,
    need,
    path,
    reverted,
    table,
    text,
    tool_failed,
    tool_started,
    whole,
    window_used,
)
from .report import (
    Adapter,
    Answer,
    Compacted,
    Compacting,
    Failed,
    Happenings,
    Noted,
    Paused,
    Payload,
    PermissionRequested,
    PromptSubmitted,
    QuestionAsked,
    Refused,
    Report,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    SubagentStarted,
)

# How many patterns of a permission are named.
PATTERNS = 5
# OpenCode's text for the output of a command that printed nothing.
NO_OUTPUT = "(no output)"
# OpenCode's text where the user, or a rule of theirs, refused a tool call.
_REFUSED_BY_USER = re.compile(
    r"The user (?:rejected permission to use|has specified a rule which prevents you from using)"
    r" this specific tool call(?: with the following feedback: (.*))?",
    re.DOTALL,
)


class OpenCode(Adapter):
    """The adapter for OpenCode."""

    name = "opencode"
    # Its plugin runs in OpenCode itself.
    in_process = True

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        named = need(payload, "event")
        own, above = need(payload, "session_id"), text(payload, "parent_id")
        cwd = path(payload.get("cwd"), None)
        call = ToolCall(_in_claudes_fields(payload), cwd)
        return Report(
            harness=self.name,
            event=named,
            # A subagent has a session of its own, below the one that it works for.
            session_id=above or own,
            happenings=_with_window(named, happenings_of(_HANDLERS, named, call), payload),
            subagent=own if above and above != own else None,
            cwd=cwd,
            moment=text(payload, "message_id"),
            injects=_injects(payload, named),
            denies=named == "tool.execute.before" and bool(call.edits),
        )

    def reply(self, report: Report, answer: Answer) -> str:
        """Return what the plugin reads; empty for silence."""
        if answer.deny is not None and report.denies:
            return json.dumps({"deny": answer.deny})
        if answer.context and report.injects:
            return json.dumps({"context": answer.context})
        return ""


def _with_window(named: str, happenings: Happenings, payload: Payload) -> Happenings:
    """Add what the plugin knows of the window to what an event reports.

    It is the state before the event, except for a compaction, which the plugin reports later.
    """
    used = window_used(table(payload, "window"), "tokens", "size")
    return (*happenings, *used) if named == "session.compacted" else (*used, *happenings)


def _injects(payload: Payload, named: str) -> bool:
    if named == "session.compacted":
        return payload.get("asks") is True
    return named == "chat.message" or (named == "session.compacting" and _only_then(payload))


def _only_then(payload: Payload) -> bool:
    """Return whether this OpenCode accepts text only in the summary, not in the messages."""
    return payload.get("transforms") is False


def _in_claudes_fields(payload: Payload) -> Payload:
    """Return a payload in the fields that the readers of Claude's tool calls expect."""
    metadata, time = table(payload, "metadata"), table(payload, "time")
    begun, ended = whole(time, "start"), whole(time, "end")
    printed = metadata.get("output")
    output = None if printed == NO_OUTPUT else printed
    return {
        **payload,
        "tool_name": payload.get("tool"),
        "tool_input": payload.get("args"),
        "tool_use_id": payload.get("call_id"),
        "tool_output": {"exit_code": metadata.get("exit"), "output": output},
        "duration_ms": None if begun is None or ended is None else max(0, ended - begun),
    }


def _session_started(call: ToolCall) -> Happenings:
    if text(call.payload, "parent_id") is not None:
        return (SubagentStarted(kind=text(call.payload, "agent", "title")),)
    return (SessionStarted(source="startup"),)


def _prompted(call: ToolCall) -> Happenings:
    """Report a prompt; the first one of a session that this OpenCode did not open resumes it."""
    if text(call.payload, "parent_id") is not None:
        return ()  # from the agent above it, no person's words
    prompt = text(call.payload, "prompt", most=PROMPT_CHARS)
    happening = Noted(what="empty_prompt") if prompt is None else PromptSubmitted(prompt=prompt)
    resumed = call.payload.get("resumed") is True
    return (SessionStarted(source="resume"), happening) if resumed else (happening,)


def _compacting(call: ToolCall) -> Happenings:
    return (Compacting(), Compacted()) if _only_then(call.payload) else (Compacting(),)


def _paused(call: ToolCall) -> Happenings:
    answer = text(call.payload, "last_message", most=MESSAGE_CHARS)
    if text(call.payload, "parent_id") is not None:
        return (SubagentEnded(last_message=answer),)
    return (Paused(last_message=answer),)


def _tool_failed(call: ToolCall) -> Happenings:
    """Report that a tool failed, which OpenCode also does where the user or a rule refused it."""
    found = _REFUSED_BY_USER.match(text(call.payload, "error", most=ERROR_CHARS) or "")
    if found is None:
        return tool_failed(call)
    reason = cut(found[1] or "", MESSAGE_CHARS).strip() or None
    return (*tool_failed(call), Refused("permission", asked_for(call), reason))


def _failed(call: ToolCall) -> Happenings:
    error = table(call.payload, "error")
    kind = text(error, "name")
    message = text(table(error, "data"), "message", most=ERROR_CHARS) or kind or "unknown"
    if kind == "MessageAbortedError":
        return (Noted(what="interrupted", message=message),)
    return (Failed(message=message),)


def _asked(call: ToolCall) -> Happenings:
    """Report a request for permission: what is to be done, and to which files or commands."""
    patterns = call.payload.get("patterns")
    about = (
        [each for each in patterns if isinstance(each, str)] if isinstance(patterns, list) else []
    )
    what = text(call.payload, "permission", "title") or "a tool"
    message = f"{what}: {', '.join(about[:PATTERNS])}" if about else what
    return (PermissionRequested(message=cut(message, MESSAGE_CHARS)),)


def _questioned(call: ToolCall) -> Happenings:
    questions = call.payload.get("questions")
    first = questions[0] if isinstance(questions, list) and questions else {}
    source = first if isinstance(first, dict) else {}
    return (QuestionAsked(question=text(source, "question", "header", most=MESSAGE_CHARS)),)


_HANDLERS: dict[str, Handler] = {
    "permission.asked": _asked,
    "question.asked": _questioned,
    "session.created": _session_started,
    "chat.message": _prompted,
    "tool.execute.before": tool_started,
    "tool.execute.after": lambda call: (finished(call), *reverted(call)),
    "tool.failed": _tool_failed,
    "todo.updated": lambda call: listed(call.payload.get("todos")),
    "session.compacting": _compacting,
    "session.compacted": lambda call: (
        Compacted(summary=text(call.payload, "summary", most=PROMPT_CHARS)),
    ),
    "session.idle": _paused,
    "session.error": _failed,
    "session.deleted": lambda _: (SessionEnded(reason="deleted"),),
    "session.closed": lambda _: (SessionEnded(reason="OpenCode closed"),),
}

adapter = OpenCode()
adapter.known_events = _HANDLERS.keys()
