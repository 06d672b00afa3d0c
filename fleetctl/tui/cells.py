"""Text in the columns of a terminal; must not know what the text is about.

A terminal, the library that draws and a person's font must agree on how wide a text is. What they
are known to disagree on (joined emoji, flags, tints of skin) is shown by its simpler parts.
"""

import re
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

from ..output import console

# A text and the name of its style; a line is what stands side by side.
Span = tuple[str, str]
Line = list[Span]

ELLIPSIS = "…"
# Flags are pairs of letters; by themselves everybody shows those as letters.
_SIMPLER: dict[int, str | None] = {0x1F1E6 + n: chr(0x41 + n) for n in range(26)}
_SIMPLER |= dict.fromkeys(range(0x1F3FB, 0x1F400))


def shown(text: object) -> str:
    """Return text fit for one line: nothing in it moves a cursor or has a width in dispute."""
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
    if columns <= 0:
        return ""
    kept, used = [], 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + ELLIPSIS


def cut_front(text: str, columns: int) -> str:
    """Return the end of a text that fits, as of a path whose end tells most."""
    if width(text) <= columns:
        return text
    if columns <= 0:
        return ""
    kept, used = [], 0
    for char in reversed(text):
        used += width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return ELLIPSIS + "".join(reversed(kept))


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Return text that takes exactly so many columns; ``right`` puts it to the right."""
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

    What goes on on the next line begins below the text, or below what stands behind two spaces.
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
            part = _beginning(word, columns - width(line))
            found.append(line + part)
            line, word = indent, word[len(part) :]
        line, begun = line + word, True
    return [*found, line]


def _text_begins(text: str) -> int:
    """Return the column of the last thing that stands behind two spaces or a bullet."""
    found = re.match(r"\s*(?:[-+~] |\S+(?: \S+)*?\s{2,})?", text)
    return width(found[0]) if found else 0


def _beginning(word: str, columns: int) -> str:
    used = 0
    for at, char in enumerate(word):
        used += width(char)
        if used > columns:
            return word[: max(at, 1)]
    return word
