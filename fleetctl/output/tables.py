"""Tables: rows in columns that fit a terminal, and lists as JSON or tables.

A table that is too wide first loses the columns that matter least, then texts are shortened, the
widest first. Ids are never shortened.
"""

from __future__ import annotations

from . import console, times
from .console import clean, line, lines, print_json, styled
from .text import cut, cut_middle, padded, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from ..args import Namespace

GAP = 2
_CUTS: dict[str, Callable[[str, int], str]] = {"end": cut, "middle": cut_middle}


class Column:
    """One column: its header, and what happens to it when there is not enough room.

    ``matters``: a column with a lower number is dropped sooner, None is never dropped. ``cut`` is
    where a cell may be shortened, ``end`` or ``middle``, down to ``least`` columns. A column that
    ``yields`` is shortened that far before any other. ``times`` is how people see its times:
    ``ago`` or ``lease``. ``styles`` has a style for a value.
    """

    def __init__(
        self,
        header: str,
        matters: int | None = None,
        cut: str = "",
        least: int = 8,
        *,
        yields: bool = False,
        times: str = "",
        styles: Mapping[str, str] = {},
    ) -> None:
        self.header = header
        self.matters = matters
        self.cut = cut
        self.least = least
        self.yields = yields
        self.times = times
        self.styles = styles


def fit(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int | None
) -> tuple[list[int], list[int]]:
    """Return the columns that fit into ``room``, and their widths; None has room for all."""
    natural = [
        max(map(width, (column.header, *(row[n] for row in cells))))
        for n, column in enumerate(columns)
    ]
    left = list(range(len(columns)))
    if room is None:
        return left, natural
    while _total([_narrowest(columns[n], natural[n]) for n in left]) > room:
        going = [n for n in left if columns[n].matters is not None]
        if not going:
            break
        left.remove(min(going, key=lambda n: (columns[n].matters or 0, -n)))
    widths = [natural[n] for n in left]
    _shorten([columns[n] for n in left], widths, room)
    return left, widths


def _narrowest(column: Column, natural: int) -> int:
    return min(natural, max(column.least, width(column.header))) if column.cut else natural


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shorten(columns: Sequence[Column], widths: list[int], room: int) -> None:
    """Narrow the widest texts until all fits, below their least width only if necessary."""
    each = list(zip(columns, widths, strict=True))
    least = [_narrowest(column, wide) for column, wide in each]
    yielding = [_narrowest(column, wide) if column.yields else wide for column, wide in each]
    for floor in (yielding, least, [1] * len(columns)):
        while _total(widths) > room:
            able = [n for n, c in enumerate(columns) if c.cut and widths[n] > floor[n]]
            if not able:
                break
            widths[max(able, key=lambda n: widths[n])] -= 1


def shortened(column: Column, cell: str, columns: int) -> str:
    """Return a cell of exactly this many columns, or more where it must not be cut."""
    return padded(_CUTS[column.cut](cell, columns) if column.cut else cell, columns)


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
    return show_list(args, values, lambda: table(headers, rows), empty)


def show_list(
    args: Namespace, values: Sequence[Any], page: Callable[[], object], empty: str
) -> int:
    """Print records as a JSON array or as a page, and return status 0.

    For an empty list it prints ``empty``, on a terminal also how to change that.
    """
    if args.json:
        print_json(values)
    elif values:
        page()
    else:
        line(empty)
        if console.human_readable():
            lines(HINTS.get(empty, ()))
    return 0


def footer(total: int, shown: int, counted: str) -> None:
    """Print the total below a table that may show only the newest."""
    print(f"\nTotal: {counted}")
    if total > shown:
        print(f"Showing the newest {shown}; --limit N shows more.")


def table(
    headers: Sequence[str | Column], rows: Iterable[Sequence[str]], *, indent: str = ""
) -> None:
    """Print rows below their headers, every column as wide as its widest cell.

    On a terminal the table fits its width, and times are in words.
    """
    columns = [Column(each) if isinstance(each, str) else each for each in headers]
    cells = [
        [clean(_cell_text(column, cell)) or "-" for column, cell in zip(columns, row, strict=True)]
        for row in rows
    ]
    room = console.columns()
    left, widths = fit(columns, cells, room - len(indent) if room else None)

    def line_of(row: Sequence[str]) -> list[str]:
        padded_cells = [
            shortened(columns[n], row[n], wide) for n, wide in zip(left, widths, strict=True)
        ]
        return [*padded_cells[:-1], *(each.rstrip() for each in padded_cells[-1:])]

    def joined(parts: Iterable[str]) -> str:
        return (indent + (" " * GAP).join(parts)).rstrip()

    if any(column.header for column in columns):
        print(styled(joined(line_of([column.header for column in columns])), "bold"))
    for row in cells:
        styles = [columns[n].styles.get(row[n], "") for n in left]
        print(joined(map(styled, line_of(row), styles)))


def _cell_text(column: Column, cell: str) -> str:
    """Return a cell; where people read it, its times are in words."""
    if not column.times or not console.human_readable():
        return cell
    return (times.lease if column.times == "lease" else times.ago)(cell, console.now_ms())
