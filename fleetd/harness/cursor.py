"""Cursor's hooks, in the editor and in its command line.

Based on Cursor's reference of hooks. No event follows a compaction, so the event before it counts
as both. Most of its tools have Claude's names and fields.
"""

import json
from typing import Any

from .claude import HANDLERS, IGNORED, compacting_unfollowed, plain_prompt, tool_finished
from .payload import (
    ERROR_CHARS,
    MESSAGE_CHARS,
    VERSION_CHARS,
    Handler,
    ToolCall,
    decoded,
    event_name,
    happenings_of,
    need,
    path,
    text,
    tool_failed,
    tool_started,
    window_used,
)
from .report import (
    Adapter,
    Answer,
    Failed,
    Happenings,
    Paused,
    Payload,
    Report,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    SubagentStarted,
)

# A longer text is dropped whole; Cursor counts as JavaScript does, in units of UTF-16.
CONTEXT_UNITS = 10_000
INJECTING = frozenset(("sessionStart", "beforeSubmitPrompt", "postToolUse"))
# Cursor also runs the hooks in Claude's settings.
_CLAUDES = {
    "SessionStart": "sessionStart",
    "SessionEnd": "sessionEnd",
    "UserPromptSubmit": "beforeSubmitPrompt",
    "PreToolUse": "preToolUse",
    "PostToolUse": "postToolUse",
    "PostToolUseFailure": "postToolUseFailure",
    "PreCompact": "preCompact",
    "Stop": "stop",
    "SubagentStart": "subagentStart",
    "SubagentStop": "subagentStop",
}


class CursorCli(Adapter):
    """The adapter for Cursor."""

    name = "cursor"

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        raw_name = event_name(payload, event)
        named = _CLAUDES.get(raw_name, raw_name)
        cwd = _cwd(payload)
        call = ToolCall(
            _in_claudes_fields(payload, named), cwd, silent=named == "afterShellExecution"
        )
        return Report(
            harness=self.name,
            event=named,
            session_id=need(payload, "parent_conversation_id", "conversation_id", "session_id"),
            happenings=happenings_of(_HANDLERS, named, call),
            subagent=_subagent(payload),
            cwd=cwd,
            transcript_path=path(payload.get("transcript_path"), None),
            injects=named in INJECTING,
            denies=named == "preToolUse" and bool(call.edits),
            version=text(payload, "cursor_version", most=VERSION_CHARS),
        )

    def reply(self, report: Report, answer: Answer) -> str:
        """Return the one JSON object that is honoured; empty wherever it would do harm."""
        if answer.deny is not None and report.denies:
            messages = {"user_message": answer.deny, "agent_message": answer.deny}
            return json.dumps({"permission": "deny", **messages})
        if answer.context and report.injects:
            return json.dumps({"additional_context": _fitting(answer.context)})
        return ""


def _fitting(context: str) -> str:
    """Cut a text to the size that Cursor accepts; the least important is at its end."""
    units = context.encode("utf-16-le", "replace")[: CONTEXT_UNITS * 2]
    return units.decode("utf-16-le", "ignore")


def _cwd(payload: Payload) -> str | None:
    roots = payload.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else None
    return path(payload.get("cwd"), None) or path(first, None)


def _subagent(payload: Payload) -> str | None:
    """Return the agent inside the conversation; it may have a conversation of its own."""
    subagent_id, own = text(payload, "subagent_id"), text(payload, "conversation_id")
    above = text(payload, "parent_conversation_id")
    return subagent_id or (own if above is not None and own != above else None)


def _in_claudes_fields(payload: Payload, named: str) -> Payload:
    """Return a payload in the fields that the readers of Claude's tool calls expect."""
    spelled = dict(payload)
    spelled["duration_ms"] = payload.get("duration")
    spelled["tool_output"] = _output(payload.get("tool_output"))
    if (call_id := text(payload, "tool_use_id")) is not None:
        # Two names of the same call, with a line break between them.
        spelled["tool_use_id"] = call_id.split()[0]
    if "error_message" in payload:
        spelled["error"] = payload["error_message"]
    if named in ("beforeShellExecution", "afterShellExecution"):
        spelled |= {"tool_name": "Shell", "tool_input": {"command": payload.get("command")}}
    elif named == "afterFileEdit":
        spelled |= {"tool_name": "Edit", "tool_input": {"file_path": payload.get("file_path")}}
    return spelled


def _output(output: Any) -> Any:
    """Return the result of a tool, which arrives as JSON in a text."""
    if not isinstance(output, str):
        return output
    return decoded(output)


def _compacting(call: ToolCall) -> Happenings:
    """Report how full the window was, and then that all of it is compacted."""
    used = window_used(call.payload, "context_tokens", "context_window_size")
    return (*used, *compacting_unfollowed(call))


def _stopped(call: ToolCall) -> Happenings:
    if text(call.payload, "status") != "error":
        return (Paused(),)
    return (Failed(message=text(call.payload, "error", most=ERROR_CHARS) or "the turn failed"),)


def _subagent_started(call: ToolCall) -> Happenings:
    kind = text(call.payload, "subagent_type")
    return () if _subagent(call.payload) is None else (SubagentStarted(kind=kind),)


def _subagent_ended(call: ToolCall) -> Happenings:
    answer = text(call.payload, "summary", most=MESSAGE_CHARS)
    return () if _subagent(call.payload) is None else (SubagentEnded(last_message=answer),)


_HANDLERS: dict[str, Handler] = {
    "sessionStart": lambda _: (SessionStarted(source="startup"),),
    "beforeSubmitPrompt": plain_prompt,
    "preToolUse": tool_started,
    "postToolUse": tool_finished,
    "postToolUseFailure": tool_failed,
    "beforeShellExecution": tool_started,
    "afterShellExecution": tool_finished,
    "afterFileEdit": tool_finished,
    "preCompact": _compacting,
    "stop": _stopped,
    "subagentStart": _subagent_started,
    "subagentStop": _subagent_ended,
    "sessionEnd": lambda call: (SessionEnded(reason=text(call.payload, "reason", "final_status")),),
}

# The events of its reference that fleetd does not use.
_IGNORED = frozenset(
    (
        *("beforeMCPExecution", "afterMCPExecution", "beforeReadFile", "beforeTabFileRead"),
        *("afterTabFileEdit", "afterAgentResponse", "afterAgentThought", "workspaceOpen"),
    )
)

adapter = CursorCli()
# It also runs the hooks in Claude's settings.
adapter.known_events = _HANDLERS.keys() | _IGNORED | HANDLERS.keys() | IGNORED
