"""Generic adapter: any payload that names an event and a session somehow.

The payload is translated into Claude's fields and read as Claude's. The adapter never injects or
denies where it is unknown what the harness honours.
"""

import re

import msgspec

from .claude import HANDLERS, Claude
from .payload import WORD_CHARS, cut, text
from .report import Adapter, Answer, Payload, Report, Unfit

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")
_WRAPPING = re.compile(r"</?user_query>")
# The same field under its other names; the first one present counts.
_FIELDS = {
    "hook_event_name": ("event", "event_name", "hook_event"),
    "session_id": ("conversation_id", "thread_id"),
    "cwd": ("working_directory", "workspace_root", "project_dir"),
    "prompt": ("user_prompt", "message"),
    "tool_name": ("tool",),
    "tool_input": ("tool_args", "arguments"),
    "tool_response": ("tool_result", "tool_output"),
}
_EVENTS = {
    "PromptSubmit": "UserPromptSubmit",
    "UserPromptSubmitted": "UserPromptSubmit",
    "BeforeTool": "PreToolUse",
    "AfterTool": "PostToolUse",
    "ToolFailed": "PostToolUseFailure",
    "AgentStop": "Stop",
    "TurnEnd": "Stop",
    "ErrorOccurred": "StopFailure",
}


class Generic(Adapter):
    """A harness known only by its name, whose payloads resemble Claude's.

    ``trusted`` means that a payload in exactly Claude's fields may be answered as Claude's is.
    """

    def __init__(self, name: str, *, trusted: bool = True) -> None:
        self.name = name
        self._foreign = Claude(name, injecting=frozenset(), denying=False, silent_failures=True)
        self._alike = Claude(name) if trusted else self._foreign

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit, even for an event that is unknown."""
        if text(payload, "hook_event_name") in HANDLERS and text(payload, "session_id") is not None:
            return self._alike.read(payload, None)
        converted, vendors = in_claudes_words(payload, event)
        if converted["hook_event_name"] not in HANDLERS:
            why = f"its event {vendors} is not known" if vendors else "it names no event"
            raise Unfit(why, event=vendors or None)
        return msgspec.structs.replace(self._foreign.read(converted, None), event=vendors)

    def reply(self, report: Report, answer: Answer) -> str:
        """Return Claude's reply if the payload was Claude's in every respect, else nothing."""
        return self._alike.reply(report, answer)


def in_claudes_words(payload: Payload, event: str | None) -> tuple[Payload, str]:
    """Return a payload with Claude's names, and the vendor's name of its event."""
    converted = {_snake(name): value for name, value in payload.items()}
    for name, others in _FIELDS.items():
        if converted.get(name) is None:
            converted[name] = next(
                (converted[other] for other in others if converted.get(other)), None
            )
    vendors = text(converted, "hook_event_name") or cut(event or "", WORD_CHARS)
    named = "".join(map(str.capitalize, _BETWEEN_WORDS.split(_snake(vendors))))
    converted["hook_event_name"] = _EVENTS.get(named, named)
    if isinstance(converted["prompt"], str):
        converted["prompt"] = _WRAPPING.sub("", converted["prompt"]).strip()
    return converted, vendors


def _snake(name: str) -> str:
    return _WORD_START.sub("_", name).lower()


grok = Generic("grok", trusted=False)
