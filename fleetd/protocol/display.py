"""Text from others made fit to be shown to a person or an agent."""

import unicodedata
from typing import Any

import msgspec

from .invisible import dropped, escaped

_CHARACTERS = 80
LINE_CHARS = 300


def shown(value: Any) -> str:
    """Return a value as JSON, cut to what fits into a message for a person."""
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


def clean_path(path: str) -> str:
    """Return a path on one line; what does not print or nobody sees in it is written as an escape.

    Without those characters it would be the name of another file.
    """
    return escaped(path)


def path(name: str, limit: int = LINE_CHARS) -> str:
    """Return a file's name of at most ``limit`` characters, with escapes for what nobody sees."""
    line = clean_path(name)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def verbatim(text: str, limit: int = 2_000) -> str:
    """Return somebody's words line by line as a quotation block below a list item."""
    lines = [kept for line in text.splitlines() if (kept := clean(line))]
    whole = "\n".join(f"  > {line}" for line in lines)
    return whole if len(whole) <= limit else whole[: limit - 1].rstrip() + "…"


def clean_block(text: str) -> str:
    """Return text without those characters; line breaks and tabs stay."""
    return "\n".join("\t".join(map(_printable, line.split("\t"))) for line in text.splitlines())


def _printable(text: str) -> str:
    text = dropped(text)
    if text.isprintable():  # nearly always: then it has none of the others
        return text
    return "".join(c for c in text if unicodedata.category(c)[0] != "C")
