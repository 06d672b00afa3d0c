"""Other people's words made safe to repeat: one line, no control characters, in quotes."""

import unicodedata

LINE_CHARS = 300


def clean(text: str) -> str:
    """Return text on one line without control, escape or direction-changing characters."""
    flat = " ".join(text.split())
    if flat.isprintable():  # nearly always: then it has none of them
        return flat
    return "".join(c for c in flat if unicodedata.category(c)[0] != "C").strip()


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
