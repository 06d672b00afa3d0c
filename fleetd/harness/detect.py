"""Detection: which harness really sent a payload.

Cursor, Grok and Copilot also run Claude's hook settings, and nearly every CLI sets
``CLAUDE_PROJECT_DIR``. So the payload's shape is checked first, then the variables that a harness
sets for its hooks alone, and the name in the settings file last.
"""

import re
from collections.abc import Callable, Mapping

from . import antigravity, claude, codex, copilot, cursor, gemini, generic, opencode
from .report import Adapter, Payload, Unfit

ADAPTERS: Mapping[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        claude.adapter,
        claude.qwen,
        claude.droid,
        claude.kimi,
        codex.adapter,
        copilot.adapter,
        cursor.adapter,
        gemini.adapter,
        opencode.adapter,
        generic.grok,
        antigravity.adapter,
    )
}

Mark = tuple[str, Callable[[Payload], bool]]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_GEMINIS = re.compile(r"(Before|After)(Agent|Tool|Model|ToolSelection)|PreCompress")
_CURSORS = re.compile(r"[a-z]+([A-Z][a-z]*)+")
_SNAKE = re.compile(r"[a-z]+(_[a-z]+)*")
# Where each keeps its transcripts: a place to which no other harness writes.
_PLACES = {
    "codex": r"/\.codex/sessions/|/rollout-[^/]+\.jsonl$",
    "copilot": r"/\.copilot/",
    "cursor": r"/\.cursor/",
    "droid": r"/\.factory/",
    "gemini": r"/\.gemini/",
    "grok": r"/\.grok/",
    "kimi": r"/\.kimi(-code)?/",
    "qwen": r"/\.qwen/",
    "claude": r"/projects/[^/]+/[^/]+\.jsonl$",
}


def _has(*names: str) -> Callable[[Payload], bool]:
    return lambda payload: all(name in payload for name in names)


def _event(pattern: re.Pattern[str], name: str = "hook_event_name") -> Callable[[Payload], bool]:
    return lambda payload: pattern.fullmatch(_word(payload, name)) is not None


def _kept_in(place: str) -> Callable[[Payload], bool]:
    pattern = re.compile(place)
    return lambda payload: pattern.search(_word(payload, "transcript_path")) is not None


def _word(payload: Payload, name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) else ""


# The first mark that matches names the sender.
MARKS: tuple[Mark, ...] = (
    ("cursor", _has("cursor_version")),
    ("cursor", _has("conversation_id", "generation_id")),
    ("antigravity", _has("conversationId", "workspacePaths")),
    ("grok", _event(_SNAKE, "hookEventName")),
    ("copilot", lambda payload: "sessionId" in payload and "hook_event_name" not in payload),
    ("kimi", lambda payload: _word(payload, "client_type").startswith("kimi")),
    ("gemini", _event(_GEMINIS)),
    ("cursor", _event(_CURSORS)),
    *((name, _kept_in(place)) for name, place in _PLACES.items()),
    ("codex", _has("turn_id", "hook_event_name")),
    ("droid", _has("previous_session_id", "hook_event_name")),
)

# Variables set for hooks; Qwen sets Gemini's beside its own. A shell that such a harness runs may
# pass one on to another agent, so the payload's own marks come first.
ENVIRONMENT: Mapping[str, str] = {
    "GROK_HOOK_EVENT": "grok",
    "CURSOR_VERSION": "cursor",
    "QWEN_PROJECT_DIR": "qwen",
    "FACTORY_PROJECT_DIR": "droid",
    "GEMINI_SESSION_ID": "gemini",
    "COPILOT_CLI": "copilot",
}

# Only OpenCode runs our plugin, which makes the payload.
OURS = frozenset({"opencode"})


def recognise(argument: str, payload: Payload, env: Mapping[str, str]) -> Adapter:
    """Return the adapter of the harness that sent a payload.

    ``argument`` is the name in the settings file that made the call, ``env`` the variables that the
    hook client passes on. Raises Unfit for a payload that fits no harness.
    """
    if argument in OURS:
        return _named(argument)
    for name, holds in MARKS:
        if holds(payload):
            return _named(name)
    # Under Claude's names Copilot sends Claude's fields, and the time, which Claude does not send.
    if argument == "claude" and "timestamp" in payload and "transcript_path" not in payload:
        return _named("copilot")
    for variable, name in ENVIRONMENT.items():
        if env.get(variable):
            return _named(name)
    return _named(argument)


def _named(name: str) -> Adapter:
    known = ADAPTERS.get(name)
    if known is not None:
        return known
    if not _NAME.fullmatch(name):
        raise Unfit("no known harness sent it")
    return generic.Generic(name)
