"""Text widths: how many columns text takes, cut and wrapped to a width.

Some characters take two columns (CJK, emoji), some none (accents that combine, joiners). Where
terminals disagree, the larger width counts: a line may be too short, but never wraps.
"""

from itertools import accumulate

ELLIPSIS = "…"
_EMOJI_STYLE = "\ufe0f"
_JOINERS = "\u200d"


def width(text: str) -> int:
    """Return how many columns a line of text takes at most."""
    return len(text) if text.isascii() else sum(_widths(text))


def _widths(text: str) -> list[int]:
    # Imported here: nearly all that commands print is ASCII.
    from unicodedata import category, east_asian_width

    found = []
    for char in text:
        if char == _EMOJI_STYLE:  # the character before becomes a picture
            found.append(1)
        elif category(char) in ("Mn", "Me", "Cf") or "\u1160" <= char <= "\u11ff":
            found.append(0)
        elif east_asian_width(char) in "WF" or "\U0001f1e6" <= char <= "\U0001f1ff":
            found.append(2)
        else:
            found.append(1)
    return found


def padded(text: str, columns: int) -> str:
    """Return text padded with spaces to this many columns."""
    return text + " " * (columns - width(text))


def cut(text: str, columns: int) -> str:
    """Return text that takes at most this many columns; what was cut ends in an ellipsis."""
    if width(text) <= columns:
        return text
    if columns < 1:
        return ""
    return _start(text, columns - 1).rstrip() + ELLIPSIS


def cut_middle(text: str, columns: int) -> str:
    """Return text cut in the middle: of a path, the end says most and the start comes next."""
    if width(text) <= columns:
        return text
    if columns < 4:
        return cut(text, columns)
    start = (columns - 1) // 3
    end = _start(text[::-1], columns - 1 - start)[::-1]
    return _start(text, start) + ELLIPSIS + end


def wrapped(
    text: str, columns: int, most: int | None = None, *, whole_words: bool = False
) -> list[str]:
    """Return text as lines of at most this many columns, broken between words if possible.

    There are at most ``most`` lines; the last one is cut then. With ``whole_words`` a word that is
    longer, such as a path to be copied, stays in one piece and makes its line longer.
    """
    lines: list[str] = []
    rest = text.strip()
    while width(rest) > columns and (most is None or len(lines) < most - 1):
        head = _start(rest, columns + 1)
        if at_word := head[: head.rindex(" ")] if " " in head.strip() else "":
            head = at_word
        elif whole_words:
            head = rest.partition(" ")[0]
        else:
            head = _start(rest, columns) or rest[:1]
        lines.append(head.rstrip())
        rest = rest[len(head) :].lstrip()
    return [*lines, rest if most is None else cut(rest, columns)] if rest or not lines else lines


def _start(text: str, columns: int) -> str:
    """Return as much of the start of text as fits."""
    if text.isascii():
        return text[:columns]
    fits = sum(1 for total in accumulate(_widths(text)) if total <= columns)
    return text[:fits].rstrip(_JOINERS)
