"""Antigravity's hooks: no event names, doubly encoded arguments, text before a request.

A payload is translated into Claude's fields and read as Claude's. No event reports a prompt or a
compaction: the first request of a turn counts as its prompt.
"""

import json
from typing import Any

import msgspec

from .claude import Claude
from .payload import text, whole
from .report import Adapter, Answer, Payload, PromptSubmitted, Report, Unfit

# Its payloads do not name their event; each has a field that no other has.
_MARKS = {
    "toolCall": "PreToolUse",
    "invocationNum": "PreInvocation",
    "terminationReason": "Stop",
    "stepIdx": "PostToolUse",
}
_EVENTS = frozenset(_MARKS.values()) | {"PostInvocation"}
_ARGUMENTS = {"CommandLine": "command", "TargetFile": "file_path"}


class Antigravity(Adapter):
    """Google's Antigravity CLI, which writes its transcript after the hooks."""

    name = "antigravity"

    def __init__(self) -> None:
        self._reader = Claude(self.name, injecting=frozenset(), denying=False)

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        named = event if event in _EVENTS else None
        named = named or next((name for mark, name in _MARKS.items() if mark in payload), None)
        if named is None:
            raise Unfit(f"it has none of {', '.join(_MARKS)}")
        report = self._reader.read(_in_claudes_words(payload, named), None)
        if named != "PreInvocation":
            return msgspec.structs.replace(report, event=named)
        begins = whole(payload, "invocationNum") == 0
        happenings = (PromptSubmitted(prompt=""),) if begins else ()
        return msgspec.structs.replace(report, event=named, happenings=happenings, injects=True)

    def reply(self, report: Report, answer: Answer) -> str:
        """Return a step to inject, empty for nothing; the launcher makes an object of it.

        Only text before a request is safe: a malformed answer ends the turn or denies a tool.
        """
        if answer.context and report.injects:
            return json.dumps({"injectSteps": [{"ephemeralMessage": answer.context}]})
        return ""


def _in_claudes_words(payload: Payload, event: str) -> Payload:
    error, step = text(payload, "error"), whole(payload, "stepIdx")
    if error and event in ("PostToolUse", "Stop"):
        event = {"PostToolUse": "PostToolUseFailure", "Stop": "StopFailure"}[event]
    roots = payload.get("workspacePaths")
    call = payload.get("toolCall")
    converted: Payload = {
        "hook_event_name": event,
        "session_id": payload.get("conversationId"),
        "cwd": roots[0] if isinstance(roots, list) and roots else None,
        "transcript_path": payload.get("transcriptPath"),
        "error": payload.get("error"),
        # The id of a call is its step, at its start and at its end.
        "tool_use_id": None if step is None else str(step),
    }
    if isinstance(call, dict):
        converted["tool_name"] = call.get("name")
        converted["tool_input"] = _arguments(call.get("args"))
    return converted


def _arguments(given: Any) -> Payload:
    if not isinstance(given, dict):
        return {}
    return {_ARGUMENTS.get(str(name), str(name)): _decoded(each) for name, each in given.items()}


def _decoded(value: Any) -> Any:
    """Return a text without the second pair of quotes that some builds put around it."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value


adapter = Antigravity()
