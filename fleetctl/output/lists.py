"""Lists as JSON or as tables; must not know what is listed.

On a terminal a table is made to fit, times are told as people say them, and an empty list says how
it is filled.
"""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from . import screen, times
from .console import clean, line, lines, print_json, styled
from .tables import Column, Fitted, fit, shortened

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


def show(
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
    return (times.lease if column.times == "lease" else times.ago)(cell, screen.now_ms())


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
