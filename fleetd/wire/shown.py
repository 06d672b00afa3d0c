"""How what others sent is shown, to a person or to an agent; must not know methods."""

import unicodedata
from typing import Any

import msgspec

_CHARACTERS = 80


def shown(value: Any) -> str:
    """Return a value as JSON, cut to what fits into a message for a person."""
    if isinstance(value, str):
        value = value[: _CHARACTERS + 1]
    elif isinstance(value, dict | list) and value:
        return "an object" if isinstance(value, dict) else f"an array of {len(value)}"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"


def clean(text: str) -> str:
    """Return text on one line without control, escape or direction-changing characters."""
    return _printable(" ".join(text.split())).strip()


def clean_block(text: str) -> str:
    """Return text without those characters; line breaks and tabs stay."""
    return "\n".join("\t".join(map(_printable, line.split("\t"))) for line in text.splitlines())


def _printable(text: str) -> str:
    if text.isprintable():  # nearly always: then it has none of them
        return text
    return "".join(c for c in text if unicodedata.category(c)[0] != "C")
