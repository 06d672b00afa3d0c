"""Display: text from others made fit to be shown to a person or an agent, and durations.

Commands need it when they start, so modules that take long to load are imported where they are
used. Characters that nobody sees are dropped from a text; in a path they are written as escapes:
without them it would be the name of another file.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Any

# Unicode's Default_Ignorable_Code_Point, as a set of a regular expression.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)


def _invisible() -> re.Pattern[str]:
    # Made when it is needed first: nearly every text that a command prints is ASCII.
    global _pattern
    if _pattern is None:
        import re

        _pattern = re.compile(f"[{INVISIBLE}]")
    return _pattern


_pattern: re.Pattern[str] | None = None


def dropped(text: str) -> str:
    """Return text without characters that nobody sees."""
    return text if text.isascii() else _invisible().sub("", text)


def escaped(text: str) -> str:
    r"""Return text with all that does not print, or that nobody sees, as escapes: ``\u200b``."""
    if text.isprintable() and (text.isascii() or not _invisible().search(text)):
        return text
    return "".join(
        char
        if char.isprintable() and not _invisible().match(char)
        else char.encode("unicode_escape").decode()
        for char in text
    )


def shell_word(text: str) -> str:
    """Return text as one word of a command line, as ``$'…'`` where characters would not show."""
    import shlex

    if escaped(text) == text:
        return shlex.quote(text)
    literal = text.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{escaped(literal)}'"


def escaped_in_json(text: str) -> str:
    """Return JSON in which those characters are escapes, which say the same."""
    return text if text.isascii() else _invisible().sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


_CHARACTERS = 80
LINE_CHARS = 300


def shown(value: Any) -> str:
    """Return a value as JSON, cut to what fits into a message for a person."""
    import msgspec

    if isinstance(value, str):
        value = value[: _CHARACTERS + 1]
    elif isinstance(value, dict | list) and value:
        return "an object" if isinstance(value, dict) else f"an array of {len(value)}"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"


def clean(text: str) -> str:
    """Return text on one line without control, escape or direction-changing characters.

    Nor with others that nobody sees.
    """
    return _printable(" ".join(text.split())).strip()


def short(text: str, limit: int = LINE_CHARS) -> str:
    """Return cleaned text of at most ``limit`` characters; what was in quotes stays in quotes."""
    line = clean(text)
    if len(line) <= limit:
        return line
    kept = line[: limit - 1].rstrip()
    if kept.count("“") > kept.count("”"):
        kept = line[: limit - 2].rstrip()
    return kept + ("…”" if kept.count("“") > kept.count("”") else "…")


def short_ends(text: str, limit: int) -> str:
    """Return cleaned text of at most ``limit`` characters, of a longer one both ends."""
    line = clean(text)
    if len(line) <= limit:
        return line
    first = limit // 4
    return f"{line[:first].rstrip()} … {line[first + 3 - limit :].lstrip()}"


def quote(text: str, limit: int = LINE_CHARS) -> str:
    """Return somebody else's words in quotation marks that they cannot close."""
    return "“" + short(text.replace("”", '"').replace("“", '"'), limit) + "”"


def attributed(text: str, author: str | None, reader: str | None, limit: int = LINE_CHARS) -> str:
    """Return an agent's words as a reader may see them: those of others in quotes, with a name.

    One's own are plain, and so are those of nobody in particular: a person's, who speaks for all.
    """
    if author is None or author == reader:
        return short(text, limit)
    return f"{author}: {quote(text, limit)}"


def path(name: str, limit: int = LINE_CHARS) -> str:
    """Return a file's name of at most ``limit`` characters, with escapes for what nobody sees."""
    line = escaped(name)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def verbatim(text: str, limit: int = 2_000) -> str:
    """Return somebody's words line by line as a quotation block below a list item."""
    lines = [kept for line in text.splitlines() if (kept := clean(line))]
    whole = "\n".join(f"  > {line}" for line in lines)
    return whole if len(whole) <= limit else whole[: limit - 1].rstrip() + "…"


def verbatim_end(text: str, limit: int) -> str:
    """Return the end of somebody's words as such a block: whole lines, if they are not too long."""
    lines = [line for each in text.splitlines() if (line := clean(each))]
    end: list[str] = []
    room = limit - len("  > …")
    for line in reversed(lines):
        room -= len(f"\n  > {line}")
        if room < 0:
            break
        end.append(line)
    if lines and not end:
        end = ["…" + lines[-1][-max(limit - len("  > …"), 1) :]]
    elif len(end) < len(lines) and end[-1] != "…":
        end.append("…")
    return "\n".join(f"  > {line}" for line in reversed(end))


def clean_block(text: str) -> str:
    """Return text without those characters; line breaks and tabs stay."""
    return "\n".join("\t".join(map(_printable, line.split("\t"))) for line in text.splitlines())


def _printable(text: str) -> str:
    text = dropped(text)
    if text.isprintable():  # nearly always: then it has none of the others
        return text
    import unicodedata

    return "".join(c for c in text if unicodedata.category(c)[0] != "C")


def ago(ms: int) -> str:
    """Render how long ago something was, in ms: ``12 minutes ago``."""
    seconds = max(ms, 0) // 1000
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if (count := seconds // length) > 0:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def duration(ms: int) -> str:
    """Render a duration in ms the way people say it: ``2h 30m``, ``4m 10s``, ``12s``."""
    seconds = max(ms, 0) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    if minutes:
        return f"{minutes}m {seconds}s"
    return f"{seconds}s"
