"""Invisible characters, and how they are kept from misleading who reads.

Standard library only, as commands need it when they start. In a text they are dropped; in a path
they are written as escapes: without them it would be the name of another file.
"""

import re
from functools import cache

# Unicode's Default_Ignorable_Code_Point, as a set of a regular expression.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)


@cache
def _invisible() -> re.Pattern[str]:
    # Made when it is needed first: nearly every text that a command prints is ASCII.
    return re.compile(f"[{INVISIBLE}]")


def dropped(text: str) -> str:
    """Return text without characters that nobody sees."""
    return text if text.isascii() else _invisible().sub("", text)


def escaped(text: str) -> str:
    r"""Return text with all that does not print, or that nobody sees, as escapes: ``\u200b``."""
    if text.isprintable() and (text.isascii() or not _invisible().search(text)):
        return text
    return "".join(
        char if char.isprintable() and not _invisible().match(char) else _escape(char)
        for char in text
    )


def escaped_in_json(text: str) -> str:
    """Return JSON in which those characters are escapes, which say the same."""
    return text if text.isascii() else _invisible().sub(_json_escape, text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))
