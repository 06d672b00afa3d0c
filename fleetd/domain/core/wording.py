"""Other people's words made safe to repeat: one line, no control characters, in quotes."""

from ...protocol.display import LINE_CHARS, attributed, clean, clean_path, quote, short

__all__ = ["LINE_CHARS", "attributed", "clean", "clean_path", "path", "quote", "short", "verbatim"]


def path(name: str, limit: int = LINE_CHARS) -> str:
    """Return a file's name of at most ``limit`` characters, with escapes for what nobody sees."""
    line = clean_path(name)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def verbatim(text: str, limit: int = 2_000) -> str:
    """Return somebody's words line by line as a quotation block below a list item."""
    lines = [kept for line in text.splitlines() if (kept := clean(line))]
    whole = "\n".join(f"  > {line}" for line in lines)
    return whole if len(whole) <= limit else whole[: limit - 1].rstrip() + "…"
