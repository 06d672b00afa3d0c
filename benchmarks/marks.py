"""Writes results into a page, between two marks; keeps the text around them."""

from pathlib import Path


def marks(name: str) -> tuple[str, str]:
    """Return the lines before and after the output of the benchmark with this name."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def put(page: Path, name: str, text: str) -> None:
    """Put a text between the marks of a page; raises ValueError when it has none."""
    begin, end = marks(name)
    before, found, rest = page.read_text("utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no place for the tables: {begin} and {end}, a line each")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")
