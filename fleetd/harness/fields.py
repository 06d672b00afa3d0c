"""Reads fields of payloads whose shapes vendors change.

A field of the wrong type counts as absent: a hook must never fail for what it can do without.
"""

import os.path
import re
from typing import Any

from .report import Payload, Unfit, WindowUsed

COMMAND_CHARS = 2_000
ERROR_CHARS = 2_000
MESSAGE_CHARS = 4_000
PROMPT_CHARS = 60_000
PATH_CHARS = 4_096
WORD_CHARS = 200
# No window is larger, whatever a payload says.
MOST_TOKENS = 1_000_000_000

# Half a character of two, as JSON and JavaScript can write it: nothing can be kept that has one.
_HALF = re.compile(r"[\ud800-\udfff]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def text(payload: Payload, *names: str, most: int = WORD_CHARS) -> str | None:
    """Return the first of these fields that is a text with something in it, cut to ``most``."""
    for name in names:
        value = payload.get(name)
        if isinstance(value, str) and (found := cut(value, most)).strip():
            return found
    return None


def need(payload: Payload, *names: str) -> str:
    """Return a field that the payload cannot do without; raises Unfit."""
    value = text(payload, *names)
    if value is None:
        raise Unfit(f"it has no {' or '.join(names)}")
    return value


def event_name(payload: Payload, given: str | None) -> str:
    """Return the name of the event, the payload's own or else the one ``given``; raises Unfit."""
    named = text(payload, "hook_event_name") or cut(given or "", WORD_CHARS)
    return named or need(payload, "hook_event_name")


def table(payload: Payload, name: str) -> Payload:
    """Return a field that is an object, an empty one where it is not."""
    value = payload.get(name)
    return value if isinstance(value, dict) else {}


def whole(payload: Payload, name: str) -> int | None:
    """Return a field that is a number of at least 0, rounded."""
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return round(value)


def window_used(source: Payload, tokens: str, size: str) -> tuple[WindowUsed, ...]:
    """Return how full a window is by the fields of these names, empty where they say nothing."""
    used, room = (whole(source, name) for name in (tokens, size))
    if used is None or used > MOST_TOKENS:
        return ()
    known = room is not None and 0 < room <= MOST_TOKENS
    return (WindowUsed(tokens=used, size=room if known else None),)


def path(given: Any, cwd: str | None) -> str | None:
    """Return a file's path made absolute against ``cwd``; None for what is no usable path."""
    if not isinstance(given, str) or not given.strip() or len(given) > PATH_CHARS:
        return None
    if "\0" in given or _HALF.search(given):
        return None
    if given.startswith("/"):
        return os.path.normpath(given)
    return os.path.normpath(f"{cwd}/{given}") if cwd and cwd.startswith("/") else None


def cut(value: str, most: int) -> str:
    """Return a text of at most ``most`` characters, without control characters."""
    clean = _UNPRINTABLE.sub("", value[:most])
    return clean if len(value) <= most else clean[: most - 1] + "…"
