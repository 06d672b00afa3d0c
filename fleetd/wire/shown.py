"""How a value that a client sent is shown to a person; must not know methods."""

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
