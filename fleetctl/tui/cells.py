"""Text in the cells of a terminal: widths, cutting, short durations, the sign of every status.

A terminal, the drawing library and a user's font must agree on how wide a text is. Known
disagreements (joined emoji, flags, skin tones) are shown by their simpler parts.
"""

import re
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

from ..output import console

# A span is a text and the name of its style; a line is a row of spans.
Span = tuple[str, str]
Line = list[Span]

ELLIPSIS = "…"
# Flags are pairs of regional letters; plain letters have the same width everywhere.
_SIMPLER: dict[int, str | None] = {0x1F1E6 + n: chr(0x41 + n) for n in range(26)}
_SIMPLER |= dict.fromkeys(range(0x1F3FB, 0x1F400))


def shown(text: object) -> str:
    """Return text fit for one line: without cursor movements and characters of unclear width."""
    simple = console.clean(str(text)).translate(_SIMPLER)
    if simple.isascii():
        return simple
    return "".join(char for char in simple if unicodedata.category(char) not in ("Cf", "Cs", "Co"))


def width(text: str) -> int:
    """Return how many columns a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, columns: int) -> str:
    """Return the beginning of a text that fits, with an ellipsis when it is cut."""
    if width(text) <= columns:
        return text
    return _beginning(text, columns - 1).rstrip() + ELLIPSIS if columns > 0 else ""


def cut_front(text: str, columns: int) -> str:
    """Return the end of a text that fits, for example of a path."""
    if width(text) <= columns:
        return text
    return ELLIPSIS + _beginning(text[::-1], columns - 1)[::-1] if columns > 0 else ""


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Return text that takes exactly so many columns; ``right`` aligns it to the right."""
    text = cut(text, columns)
    room = " " * (columns - width(text))
    return room + text if right else text + room


def fitted(line: Iterable[Span], columns: int) -> Line:
    """Return a line that takes exactly so many columns."""
    found: Line = []
    left = columns
    for text, style in line:
        if left <= 0:
            break
        part = cut(text, left)
        left -= width(part)
        found.append((part, style))
    if left > 0:
        found.append((" " * left, ""))
    return found


def plain(line: Iterable[Span]) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


def wrapped(text: str, columns: int) -> list[str]:
    """Return a text as lines that fit, broken between words where there are any.

    Continuation lines are indented to the text, or to the part after two spaces.
    """
    text = text.rstrip()
    if width(text) <= columns:
        return [text]
    indent = " " * min(_text_begins(text), columns // 2)
    found, line, begun = [], "", False
    for word in re.findall(r"\s*\S+", text):
        if begun and width(line + word) > columns:
            found.append(line)
            line, word = indent, word.lstrip()
        while width(line + word) > columns:
            part = _beginning(word, columns - width(line)) or word[:1]
            found.append(line + part)
            line, word = indent, word[len(part) :]
        line, begun = line + word, True
    return [*found, line]


def _text_begins(text: str) -> int:
    """Return the column where the text after a bullet or two spaces begins."""
    found = re.match(r"\s*(?:[-+~] |\S+(?: \S+)*?\s{2,})?", text)
    return width(found[0]) if found else 0


def _beginning(text: str, columns: int) -> str:
    used = 0
    for at, char in enumerate(text):
        used += width(char)
        if used > columns:
            return text[:at]
    return text


# Durations are shorter here than in ``times``, and change as rarely as possible: every change is
# sent to the terminal, maybe over a slow connection.
MINUTE, HOUR, DAY = 60, 3_600, 86_400


def span(ms: int) -> str:
    """Return a duration in one unit: ``20 s``, ``4 min``, ``2 h``, ``3 d``."""
    seconds = max(ms, 0) // 1000
    if seconds < MINUTE:
        return f"{seconds // 10 * 10} s" if seconds >= 10 else "now"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    if seconds < 2 * DAY:
        return f"{seconds // HOUR} h"
    return f"{seconds // DAY} d"


def silence(ms: int, *, silent: bool = True) -> str:
    """Return the time without activity: ``active now``, ``silent 4 min``, ``4 min ago``."""
    duration = span(ms)
    if duration == "now":
        return "active now"
    return f"silent {duration}" if silent else f"{duration} ago"


def ago(ms: int) -> str:
    """Return how long ago something was: ``now``, ``4 min ago``."""
    duration = span(ms)
    return duration if duration == "now" else f"{duration} ago"


def left(ms: int) -> str:
    """Return how long a lease still runs."""
    if ms <= 0:
        return "ran out"
    return "10 s" if ms < 10_000 else span(ms)


def seconds(ms: int) -> str:
    """Return a duration in seconds below a minute, else in a larger unit."""
    return f"{max(ms, 0) // 1000} s" if ms < MINUTE * 1000 else span(ms)


# Signs carry the whole meaning, so that colours add no information.
_SIGNS = {
    "waits": ("▲", "warn"),
    "in_progress": ("●", "good"),
    "pending": ("○", "dim"),
    "assigned": ("○", ""),
    "blocked": ("■", "warn"),
    "completed": ("✓", "good"),
    "failed": ("✗", "bad"),
    "cancelled": ("-", "dim"),
    "closed": ("○", "dim"),
    "merged": ("-", "dim"),
    "ended": ("✓", "dim"),
    "active": ("●", "good"),
    "waiting": ("◐", "warn"),
    "idle": ("○", "dim"),
    "lost": ("✗", "bad"),
    "gone": ("-", "dim"),
    "queued": ("◌", "warn"),
    "delivered": ("◑", ""),
    "acked": ("✓", "dim"),
}
_UNKNOWN = ("·", "dim")


def sign_of(status: str) -> str:
    """Return the sign of a status."""
    return _SIGNS.get(status, _UNKNOWN)[0]


def style_of(status: str) -> str:
    """Return the style of a status."""
    return _SIGNS.get(status, _UNKNOWN)[1]


def mark(status: str) -> Line:
    """Return the sign of a status in its style, with a space after it."""
    return [(sign_of(status) + " ", style_of(status))]


def bar(percent: int, columns: int, style: str) -> Line:
    """Return a progress bar, which is readable without colours, too."""
    full = max(0, min(columns, (percent * columns + 50) // 100))
    # Any progress shows at least one cell, and only 100% fills the bar.
    full = max(full, 1) if percent > 0 else full
    full = min(full, columns - 1) if percent < 100 else full
    return [("━" * full, style), ("─" * (columns - full), "dim")]
