"""Antigravity's hooks: no event names, doubly encoded arguments; nothing that it would honour.

A payload is put into Claude's words and read as Claude's.
"""

from typing import Any

import msgspec

from .claude import Claude
from .payload import text, whole
from .report import Adapter, Payload, Report, Unfit

# Its payloads do not name their event; each is known by the field that only it has.
_MARKS = {
    "toolCall": "PreToolUse",
    "invocationNum": "PreInvocation",
    "terminationReason": "Stop",
    "stepIdx": "PostToolUse",
}
_EVENTS = frozenset(_MARKS.values()) | {"PostInvocation"}
_ARGUMENTS = {"CommandLine": "command", "TargetFile": "file_path"}


class Antigravity(Adapter):
    """Google's Antigravity CLI, which honours no text and writes its transcript after the hooks."""

    name = "antigravity"

    def __init__(self) -> None:
        self._reader = Claude(self.name, injecting=frozenset(), denying=False)

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        named = next((told for mark, told in _MARKS.items() if mark in payload), None)
        if named is None:
            if event is None or event not in _EVENTS:
                raise Unfit(f"it has none of {', '.join(_MARKS)}")
            named = event
        told = _in_claudes_words(payload, named)
        return msgspec.structs.replace(self._reader.read(told, None), event=named)


def _in_claudes_words(payload: Payload, event: str) -> Payload:
    error, step = text(payload, "error"), whole(payload, "stepIdx")
    if error and event in ("PostToolUse", "Stop"):
        event = {"PostToolUse": "PostToolUseFailure", "Stop": "StopFailure"}[event]
    roots = payload.get("workspacePaths")
    call = payload.get("toolCall")
    told: Payload = {
        "hook_event_name": event,
        "session_id": payload.get("conversationId"),
        "cwd": roots[0] if isinstance(roots, list) and roots else None,
        "transcript_path": payload.get("transcriptPath"),
        "error": payload.get("error"),
        # A call is named by its step, at its start and at its end.
        "tool_use_id": None if step is None else str(step),
    }
    if isinstance(call, dict):
        told["tool_name"] = call.get("name")
        told["tool_input"] = _arguments(call.get("args"))
    return told


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
