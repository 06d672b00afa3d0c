"""Text and JSON for stdout; must not talk to the daemon.

Stored text comes from agents and from the tools they run. Whatever could move a cursor, retitle a
window or reverse the reading order is taken out before it reaches a terminal.
"""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from fleetd.wire.durations import duration

_BIDI_AND_BREAKS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *_BIDI_AND_BREAKS))
_ONE_LINE = {**_CONTROLS, 0x09: " ", 0x0A: " "}
_BLOCK = {code: None for code in _CONTROLS if code not in (0x09, 0x0A)}
# JSON keeps every character, but what a terminal would obey is written as an escape.
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_BIDI_AND_BREAKS)}

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def clean(text: str) -> str:
    """Return text fit for one line of a terminal."""
    return text.translate(_ONE_LINE)


def clean_block(text: str) -> str:
    """Return text fit for a terminal; line breaks and tabs stay."""
    return text.translate(_BLOCK)


def line(text: str = "") -> None:
    """Print one line; line breaks inside it become spaces."""
    print(clean(text))


def lines(texts: Iterable[str]) -> None:
    """Print lines."""
    for text in texts:
        line(text)


def heading(text: str) -> None:
    """Print the title of a section, after a blank line."""
    print()
    print(styled(clean(text), "bold"))


def bullets(title: str, items: Sequence[str]) -> None:
    """Print a titled list; nothing when it is empty."""
    if items:
        print()
        line(f"{title}:")
        lines(f"  - {item}" for item in items)


def to_json(value: Any, *, indent: int = 2) -> str:
    """Return a record, a list or plain data as JSON; ``indent`` 0 gives one line."""
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, indent=indent or None, separators=separators)
    return text.translate(_ESCAPED)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(to_json(value))


def result(args: Namespace, value: Any, *texts: str) -> int:
    """Print a result as JSON or as lines, whichever was asked for, and return status 0."""
    if args.json:
        print_json(value)
    else:
        lines(texts)
    return 0


def listing(
    args: Namespace,
    values: Sequence[Any],
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    empty: str,
) -> int:
    """Print records as a JSON array or as a table, and return status 0."""
    if args.json:
        print_json(values)
    elif values:
        table(headers, rows)
    else:
        line(empty)
    return 0


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Print rows below their headers, every column as wide as its widest cell."""
    cells = [[clean(cell) or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    if any(headers):
        print(styled(_row(headers, widths, indent), "bold"))
    for row in cells:
        print(_row(row, widths, indent))


def _row(cells: Sequence[str], widths: Sequence[int], indent: str) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return (indent + "  ".join(padded)).rstrip()


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print ``Name: value`` lines; absent values are left out."""
    lines(f"{name}: {value}" for name, value in pairs if value is not None and value != "")


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return text in a style when the stream is a terminal that wants colour."""
    stream = stream or sys.stdout
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain else f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(styled("Warning:", "yellow", sys.stderr), clean(text), file=sys.stderr)


def plural(count: int, noun: str) -> str:
    """Return ``1 lock``, ``2 locks``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def titled(title: str, *, automatic: bool) -> str:
    """Return a mission's title, and that it was made for a session when it was."""
    return f"{title} (auto)" if automatic else title


def silence(ms: int) -> str:
    """Return how long a mission has been silent, as people say it."""
    return f"silent {duration(ms)}"


def size(count: int) -> str:
    """Return a number of bytes as people say it: ``812 B``, ``1.4 MB``."""
    if count < 1_000:
        return f"{count} B"
    amount = count / 1_000
    for unit in ("kB", "MB"):
        if amount < 1_000:
            return f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} GB"
