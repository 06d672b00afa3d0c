"""Copilot CLI's hooks, in both of its spellings.

Based on GitHub's reference of hooks, and on the behaviour of version 1.0.102. A hook installed
under a name in camel case gets fields in camel case. The name of its event is not among them, but
is a word of the command line. Under Claude's names it gets Claude's spelling.

No event follows a compaction, so the event before it counts as both. The CLI compacts in the
background what was in the window at that event; results of later tools stay.
"""

import json
import re
from datetime import datetime

from .claude import IGNORED, compacting_unfollowed, plain_prompt, session_ended, tool_finished
from .payload import (
    ERROR_CHARS,
    MESSAGE_CHARS,
    WORD_CHARS,
    Handler,
    ToolCall,
    asked_for,
    cut,
    decoded,
    happenings_of,
    need,
    path,
    table,
    text,
    tool_failed,
    tool_started,
    whole,
)
from .report import (
    Adapter,
    Answer,
    Failed,
    Happenings,
    Noted,
    Paused,
    Payload,
    PermissionRequested,
    QuestionAsked,
    Refused,
    Report,
    SessionStarted,
    SubagentEnded,
    SubagentStarted,
    Unfit,
)

# The texts of all hooks together are capped at 10 KB.
CONTEXT_BYTES = 10_000
INJECTING = frozenset(("sessionStart", "userPromptSubmitted", "postToolUse"))
# The reference's names for the result of a tool that was not permitted.
REFUSED = frozenset(("denied", "rejected"))
_CLAUDES = {"UserPromptSubmit": "userPromptSubmitted", "Stop": "agentStop"}
# The event of a payload without a name: the first one whose fields it has.
_SHAPES = (
    (("prompt",), "userPromptSubmitted"),
    (("agentName", "stopReason"), "subagentStop"),
    (("stopReason",), "agentStop"),
    (("trigger",), "preCompact"),
    (("toolName", "toolResult"), "postToolUse"),
    (("toolName", "error"), "postToolUseFailure"),
    (("toolName",), "preToolUse"),
    (("errorContext",), "errorOccurred"),
    (("notification_type",), "notification"),
    (("agentName",), "subagentStart"),
    (("source",), "sessionStart"),
    (("reason",), "sessionEnd"),
)
_SPELLINGS = {
    "session_id": "sessionId",
    "transcript_path": "transcriptPath",
    "tool_name": "toolName",
    "tool_input": "toolArgs",
    "tool_result": "toolResult",
    "stop_reason": "stopReason",
    "agent_name": "agentName",
    "agent_id": "agentId",
    "parent_agent_id": "parentAgentId",
    "error_context": "errorContext",
    "last_assistant_message": "response",
}
_EXIT = re.compile(r"<(?:exited|shellId: \S+ completed) with exit code (-?\d{1,9})>\s*\Z")


class Copilot(Adapter):
    """The adapter for Copilot CLI."""

    name = "copilot"

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        normalized = {_SPELLINGS.get(name, name): value for name, value in payload.items()}
        named = _event(normalized, event)
        cwd = path(normalized.get("cwd"), None)
        call = ToolCall(_in_claudes_fields(normalized), cwd)
        # The events of a subagent have its own id in place of the session's.
        return Report(
            harness=self.name,
            event=named,
            session_id=text(normalized, "parentAgentId") or need(normalized, "sessionId"),
            happenings=happenings_of(_HANDLERS, named, call),
            subagent=_subagent(normalized, named),
            cwd=cwd,
            transcript_path=path(normalized.get("transcriptPath"), None),
            moment=_moment(normalized),
            # Text added to a start is gone in the next process; that of a prompt or a tool stays.
            injects=named in INJECTING and text(normalized, "source") != "resume",
            denies=named == "preToolUse" and bool(call.edits),
        )

    def reply(self, report: Report, answer: Answer) -> str:
        """Return the one JSON object that is honoured; empty wherever it would do harm."""
        if answer.deny is not None and report.denies:
            why = {"permissionDecisionReason": answer.deny}
            return json.dumps({"permissionDecision": "deny", **why})
        if answer.context and report.injects:
            return json.dumps({"additionalContext": _fitting(answer.context)})
        return ""


def _subagent(payload: Payload, event: str) -> str | None:
    """Return the subagent of an event; before 1.0 it has a name and no id."""
    agent_id = text(payload, "agentId")
    return agent_id or (text(payload, "agentName") if event.startswith("subagent") else None)


def _fitting(context: str) -> str:
    """Cut a text to the size that Copilot accepts; the least important is at its end."""
    return context.encode("utf-8", "replace")[:CONTEXT_BYTES].decode("utf-8", "ignore")


def _event(payload: Payload, word: str | None) -> str:
    """Return the event's name: the payload's own, else the command line's, else by the shape."""
    event = text(payload, "hook_event_name") or cut(word or "", WORD_CHARS)
    if event:
        return _CLAUDES.get(event, event[:1].lower() + event[1:])
    if shape := next((name for fields, name in _SHAPES if payload.keys() >= {*fields}), None):
        return shape
    raise Unfit("it names no event and has no known form")


def _moment(payload: Payload) -> str | None:
    """Return the time of an event in ms since 1970, whichever way it is written."""
    written = text(payload, "timestamp")
    if written is None:
        number = whole(payload, "timestamp")
        return None if number is None else str(number)
    try:
        return str(round(datetime.fromisoformat(written).timestamp() * 1_000))
    except (ValueError, OverflowError, OSError):
        return written


def _in_claudes_fields(payload: Payload) -> Payload:
    """Return a payload in the fields that the readers of Claude's tool calls expect."""
    given = payload.get("toolArgs", payload.get("toolInput"))
    if isinstance(given, str) and given.startswith("{"):
        given = decoded(given, given)
    output = _result(payload)
    found = _EXIT.search(output, max(0, len(output) - 200))
    ended: Payload = {"exit_code": int(found[1])} if found else {}
    return {
        **payload,
        "tool_name": payload.get("toolName"),
        "tool_input": given,
        "tool_result": {"output": output[: found.start()] if found else output, **ended},
    }


def _result(payload: Payload) -> str:
    result = table(payload, "toolResult")
    shown = result.get("textResultForLlm", result.get("text_result_for_llm"))
    return shown if isinstance(shown, str) else ""


def _session_started(call: ToolCall) -> Happenings:
    resumed = text(call.payload, "source") == "resume"
    return (SessionStarted(source="resume" if resumed else "startup"),)


def _tool_finished(call: ToolCall) -> Happenings:
    kind = text(table(call.payload, "toolResult"), "resultType", "result_type")
    if kind not in (None, "success"):
        shown = _result(call.payload).strip() or kind
        failed = tool_failed(ToolCall({**call.payload, "error": shown}, call.cwd))
        return (*failed, Refused("permission", asked_for(call))) if kind in REFUSED else failed
    return tool_finished(call)


def _prompted(call: ToolCall) -> Happenings:
    """Report a prompt; that of a subagent comes from the agent above it, not from a person."""
    return () if text(call.payload, "agentId") else plain_prompt(call)


def _paused(call: ToolCall) -> Happenings:
    """Report the end of a turn; another event reports that of a subagent."""
    return () if text(call.payload, "agentId") else (Paused(),)


def _subagent_started(call: ToolCall) -> Happenings:
    kind = text(call.payload, "agentType", "agentName")
    return () if kind is None else (SubagentStarted(kind=kind),)


def _subagent_ended(call: ToolCall) -> Happenings:
    answer = text(call.payload, "response", most=MESSAGE_CHARS)
    known = text(call.payload, "agentId", "agentName")
    return () if known is None else (SubagentEnded(last_message=answer),)


def _error_occurred(call: ToolCall) -> Happenings:
    message = text(table(call.payload, "error"), "message", "name", most=ERROR_CHARS) or "unknown"
    if call.payload.get("recoverable") is True:
        return (Noted(what="error_occurred", message=message),)
    return (Failed(message=message),)


def _notified(call: ToolCall) -> Happenings:
    message = text(call.payload, "message", most=MESSAGE_CHARS)
    kind = text(call.payload, "notification_type") or "notification"
    if kind == "permission_prompt":
        return (PermissionRequested(message=message, reminder=True),)
    if kind == "elicitation_dialog":
        return (QuestionAsked(question=message, reminder=True),)
    return (Noted(what=kind, message=message),)


def _asked(call: ToolCall) -> Happenings:
    """Report a request for permission, which the CLI may grant by itself immediately."""
    return (PermissionRequested(message=asked_for(call), certain=False),)


_HANDLERS: dict[str, Handler] = {
    "sessionStart": _session_started,
    "userPromptSubmitted": _prompted,
    "preToolUse": tool_started,
    "postToolUse": _tool_finished,
    "postToolUseFailure": tool_failed,
    "preCompact": compacting_unfollowed,
    "agentStop": _paused,
    "subagentStart": _subagent_started,
    "subagentStop": _subagent_ended,
    "errorOccurred": _error_occurred,
    "notification": _notified,
    "permissionRequest": _asked,
    "sessionEnd": session_ended,
}

adapter = Copilot()
# It also runs the hooks in Claude's settings, under names of its own.
adapter.known_events = _HANDLERS.keys() | {name[:1].lower() + name[1:] for name in IGNORED}
