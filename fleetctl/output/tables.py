"""Rows in columns that fit a terminal; must not print, nor know what the columns hold.

A table that is too wide first loses the columns that matter least, then texts are shortened, the
widest first. Ids are never shortened.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .text import cut, cut_middle, padded, width

GAP = 2
_CUTS: dict[str, Callable[[str, int], str]] = {"end": cut, "middle": cut_middle}


class Column(NamedTuple):
    """One column: its header, and what becomes of it where there is not enough room.

    ``matters``: one with a lower number goes sooner, None never goes. ``cut`` says where a cell may
    be shortened, ``end`` or ``middle``, down to ``least`` columns. ``times`` says how its times
    are told to people: ``ago`` or ``lease``. ``styles`` has a style for a value.
    """

    header: str
    matters: int | None = None
    cut: str = ""
    least: int = 8
    times: str = ""
    styles: Mapping[str, str] = {}


class Fitted(NamedTuple):
    """Which columns are left, and how wide each is."""

    columns: list[int]
    widths: list[int]


def fit(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int | None) -> Fitted:
    """Return which columns fit into ``room``, and how wide they are; all of them into None."""
    natural = [
        max(map(width, (column.header, *(row[n] for row in cells))))
        for n, column in enumerate(columns)
    ]
    left = list(range(len(columns)))
    if room is None:
        return Fitted(left, natural)
    while _total([_narrowest(columns[n], natural[n]) for n in left]) > room:
        going = [n for n in left if columns[n].matters is not None]
        if not going:
            break
        left.remove(min(going, key=lambda n: (columns[n].matters or 0, -n)))
    widths = [natural[n] for n in left]
    _shorten([columns[n] for n in left], widths, room)
    return Fitted(left, widths)


def _narrowest(column: Column, natural: int) -> int:
    return min(natural, max(column.least, width(column.header))) if column.cut else natural


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shorten(columns: Sequence[Column], widths: list[int], room: int) -> None:
    """Make the widest text narrower until all fits, below its least width only if it must."""
    least = [_narrowest(column, wide) for column, wide in zip(columns, widths, strict=True)]
    for floor in (least, [1] * len(columns)):
        while _total(widths) > room:
            able = [n for n, c in enumerate(columns) if c.cut and widths[n] > floor[n]]
            if not able:
                break
            widths[max(able, key=lambda n: widths[n])] -= 1


def shortened(column: Column, cell: str, columns: int) -> str:
    """Return a cell that takes exactly as many columns, or more where it must not be cut."""
    return padded(_CUTS[column.cut](cell, columns) if column.cut else cell, columns)
