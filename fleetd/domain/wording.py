"""Other people's words made safe to repeat: one line, no control characters, in quotes."""

from ..wire.shown import clean

__all__ = ["LINE_CHARS", "clean", "quote", "short", "verbatim"]

LINE_CHARS = 300


def short(text: str, limit: int = LINE_CHARS) -> str:
    """Return cleaned text of at most ``limit`` characters."""
    line = clean(text)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def quote(text: str, limit: int = LINE_CHARS) -> str:
    """Return somebody else's words in quotation marks that they cannot close."""
    return "“" + short(text.replace("”", '"').replace("“", '"'), limit) + "”"


def verbatim(text: str, limit: int = 2_000) -> str:
    """Return somebody's words line by line as a quotation block below a list item."""
    lines = [kept for line in text.splitlines() if (kept := clean(line))]
    whole = "\n".join(f"  > {line}" for line in lines)
    return whole if len(whole) <= limit else whole[: limit - 1].rstrip() + "…"
