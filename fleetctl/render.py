"""Text and JSON for stdout; must not talk to the daemon.

Stored text comes from agents and from the tools they run. Whatever could move a cursor, retitle a
window or reverse the reading order is taken out before it reaches a terminal.
"""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any, TextIO, TypeVar

from fleetd.wire.durations import duration

from . import moments, screen
from .tables import Column, Fitted, fit, shortened
from .widths import cut, width, wrapped

Text = TypeVar("Text", str, str | None)
_BIDI_AND_BREAKS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *_BIDI_AND_BREAKS))
_ONE_LINE = {**_CONTROLS, 0x09: " ", 0x0A: " "}
_BLOCK = {code: None for code in _CONTROLS if code not in (0x09, 0x0A)}
# JSON keeps every character, but what a terminal would obey is written as an escape.
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_BIDI_AND_BREAKS)}

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# What to do about an empty list.
HINTS = {
    "No missions found.": ('Create one: fleetctl mission create "Title" --sortie "First piece"',),
    "No sorties found.": ('Add one: fleetctl sortie create "Title"',),
    "No checkpoints found.": ('Take one: fleetctl checkpoint --note "Why"',),
    "No agents found.": (
        "They come by themselves with hooks: fleetctl hooks install --all",
        "By hand: fleetctl agent start NAME",
    ),
    "No locks found.": ("Take one: fleetctl lock acquire FILE --agent NAME",),
    "No messages found.": ('Write one: fleetctl mail send "Subject" --from NAME --to NAME',),
    "No snapshots found.": ("Record one: fleetctl snapshot record",),
    "No events found.": ("Wait for some: fleetctl events --follow",),
}
MIN_FLOW = 20
# How many columns a bar of progress takes.
BAR = 8
# What the states of missions, sorties, agents, locks and recoveries mean to who looks on.
STATES = {
    **dict.fromkeys(("completed", "resumed", "active", "acked"), "green"),
    **dict.fromkeys(("in_progress", "running", "briefed"), "cyan"),
    **dict.fromkeys(("blocked", "waiting", "unconfirmed", "expired", "forced", "queued"), "yellow"),
    **dict.fromkeys(("failed", "lost", "interrupted"), "red"),
    **dict.fromkeys(("cancelled", "gone", "released"), "dim"),
}


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
        for item in items:
            flow("  - ", item)


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
    headers: Sequence[str | Column],
    rows: Iterable[Sequence[str]],
    empty: str,
) -> int:
    """Print records as a JSON array or as a table, and return status 0."""
    if args.json:
        print_json(values)
    elif values:
        table(headers, rows)
    else:
        nothing(empty)
    return 0


def nothing(told: str) -> None:
    """Print that a list is empty; on a terminal also how that is changed."""
    line(told)
    if screen.humane():
        lines(HINTS.get(told, ()))


def rest_of_line(start: str, text: str) -> str:
    """Return text, on a terminal as much of it as fits behind its start."""
    room = screen.columns()
    text = clean(text)
    return text if room is None else cut(text, max(room - width(start), MIN_FLOW))


def flow(start: str, text: str, *, style: str = "") -> None:
    """Print text behind its start; on a terminal it is broken between words, below itself.

    ``style`` is that of the start.
    """
    room = screen.columns()
    start, text = clean(start), clean(text)
    columns = width(start)
    parts = [text] if room is None else wrapped(text, max(room - columns, MIN_FLOW))
    for n, part in enumerate(parts):
        print((" " * columns if n else styled(start, style)) + part)


def table(
    headers: Sequence[str | Column], rows: Iterable[Sequence[str]], *, indent: str = ""
) -> None:
    """Print rows below their headers, every column as wide as its widest cell.

    On a terminal the table is made to fit, and times are told as people say them.
    """
    columns = [Column(each) if isinstance(each, str) else each for each in headers]
    cells = [
        [clean(_told(column, cell)) or "-" for column, cell in zip(columns, row, strict=True)]
        for row in rows
    ]
    room = screen.columns()
    fitted = fit(columns, cells, room - len(indent) if room else None)
    if any(column.header for column in columns):
        print(styled(_row(columns, [c.header for c in columns], fitted, indent), "bold"))
    for row in cells:
        print(_row(columns, row, fitted, indent, coloured=True))


def _told(column: Column, cell: str) -> str:
    """Return a cell as it is told where people look on, else as it is."""
    if not column.times or not screen.humane():
        return cell
    return (moments.lease if column.times == "lease" else moments.ago)(cell, screen.now_ms())


def _row(
    columns: Sequence[Column],
    cells: Sequence[str],
    fitted: Fitted,
    indent: str,
    *,
    coloured: bool = False,
) -> str:
    told = [
        shortened(columns[n], cells[n], wide)
        for n, wide in zip(fitted.columns, fitted.widths, strict=True)
    ]
    told[-1:] = [each.rstrip() for each in told[-1:]]
    if coloured:
        styles = (columns[n].styles.get(cells[n], "") for n in fitted.columns)
        told = [styled(each, style) for each, style in zip(told, styles, strict=True)]
    return (indent + "  ".join(told)).rstrip()


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print ``Name: value`` lines; absent values are left out."""
    for name, value in pairs:
        if value is not None and value != "":
            flow(f"{name}: ", str(value))


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return text in a style, if any, when the stream is a terminal that wants colour."""
    if not style:
        return text
    stream = stream or sys.stdout
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain else f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def warn(text: str) -> None:
    """Print a warning on stderr."""
    complain("Warning:", text, "yellow")


def complain(label: str, text: str, style: str = "") -> None:
    """Print something on stderr behind its label; on a terminal broken between words."""
    text = clean(text)
    if sys.stderr.isatty():
        text = f"\n{' ' * (len(label) + 1)}".join(wrapped(text, screen.width() - len(label) - 1))
    print(styled(label, style, sys.stderr), text, file=sys.stderr)


def plural(count: int, noun: str) -> str:
    """Return ``1 lock``, ``2 locks``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def titled(title: str, *, automatic: bool) -> str:
    """Return a mission's title, and that it was made for a session when it was."""
    return f"{title} (auto)" if automatic else title


def silence(ms: int) -> str:
    """Return how long a mission has been silent, as people say it."""
    return f"silent {span(ms)}"


def span(ms: int) -> str:
    """Return a length of time: ``2 h 5 min`` on a terminal, else ``2h 5m``."""
    return moments.span(ms) if screen.humane() else duration(ms)


def ago(text: Text) -> Text:
    """Return a time as it is, on a terminal as people say it: ``3 min ago``; None stays None."""
    return moments.ago(text, screen.now_ms()) if text and screen.humane() else text


def until(text: Text) -> Text:
    """Return the end of a lease as it is, on a terminal as people say it: ``for 8 min``."""
    return moments.lease(text, screen.now_ms()) if text and screen.humane() else text


def bar(percent: int) -> str:
    """Return ``50%``, on a terminal with a small bar before it."""
    if not screen.humane():
        return f"{percent}%"
    full = min(max(percent, 0), 100) * BAR // 100
    done, left = ("█", "░") if screen.draws() else ("#", "-")
    return f"{done * full}{left * (BAR - full)} {percent:>3}%"


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
