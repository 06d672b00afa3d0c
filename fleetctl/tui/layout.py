"""Layout: the place of each pane on a screen of a given size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PANES = ("missions", "sorties", "agents", "locks", "mail", "checkpoints", "events")
# Below this width, two panes side by side are too narrow to be useful.
NARROW = 72
# From this size on, there is room for two columns of panes, and for the checkpoints.
WIDE, HIGH = 140, 32
# An empty pane needs a title, a line that reports it, and some space.
LEAST = 3


@dataclass(frozen=True)
class PaneArea:
    """A pane's corner and size, in cells of the board."""

    x: int
    y: int
    width: int
    height: int


def places(
    columns: int,
    rows: int,
    focused: str,
    *,
    zoomed: bool = False,
    needs: Mapping[str, int] | None = None,
) -> dict[str, PaneArea]:
    """Return the place of every shown pane; ``needs`` is how many lines each would fill.

    A pane that needs less than its share leaves the rest to those that need more.
    """
    wanted = {name: max(LEAST, (needs or {}).get(name, rows)) for name in PANES}
    if zoomed or rows < 9:
        return {focused: PaneArea(0, 0, columns, rows)}
    if columns >= WIDE and rows >= HIGH:
        return _wide(columns, rows, wanted)
    if columns < NARROW:
        return _narrow(columns, rows, focused, wanted)
    return _usual(columns, rows, wanted)


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """Return a number divided by weights; the parts add up to it."""
    whole, found, given = sum(weights), [], 0
    for n in range(len(weights)):
        upto = total * sum(weights[: n + 1]) // whole
        found.append(upto - given)
        given = upto
    return found


def heights(total: int, weights: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Return the heights of stacked panes; the last one takes the unused lines."""
    given = [min(share, want) for share, want in zip(shares(total, weights), wanted, strict=True)]
    for n, want in enumerate(wanted):
        given[n] += min(want - given[n], total - sum(given))
    given[-1] += total - sum(given)
    return given


def _stack(
    x: int, columns: int, names: Sequence[str], heights: Sequence[int]
) -> dict[str, PaneArea]:
    found, y = {}, 0
    for name, height in zip(names, heights, strict=True):
        found[name] = PaneArea(x, y, columns, height)
        y += height
    return found


def _usual(columns: int, rows: int, wanted: Mapping[str, int]) -> dict[str, PaneArea]:
    middle, below = max(wanted["agents"], wanted["locks"]), max(wanted["events"], wanted["mail"])
    tall = heights(rows, (10, 10, 10, 11), (wanted["missions"], wanted["sorties"], middle, below))
    found = _stack(0, columns, ("missions", "sorties", "", "below"), tall)
    first, second = found.pop(""), found.pop("below")
    half = (columns - 1) // 2
    found["agents"] = PaneArea(0, first.y, half, first.height)
    found["locks"] = PaneArea(half + 1, first.y, columns - half - 1, first.height)
    events = columns * 5 // 8
    found["events"] = PaneArea(0, second.y, events, second.height)
    found["mail"] = PaneArea(events + 1, second.y, columns - events - 1, second.height)
    return found


def _narrow(
    columns: int, rows: int, focused: str, wanted: Mapping[str, int]
) -> dict[str, PaneArea]:
    third = focused if focused in PANES[2:] and focused != "checkpoints" else "events"
    names = ("missions", "sorties", third)
    return _stack(0, columns, names, heights(rows, (1, 1, 1), [wanted[name] for name in names]))


def _wide(columns: int, rows: int, wanted: Mapping[str, int]) -> dict[str, PaneArea]:
    left = columns * 11 // 20
    sides = (
        (0, left, ("missions", "sorties", "events"), (7, 8, 9)),
        (left + 2, columns - left - 2, ("agents", "locks", "mail", "checkpoints"), (7, 6, 6, 5)),
    )
    found: dict[str, PaneArea] = {}
    for x, wide, names, weights in sides:
        tall = heights(rows, weights, [wanted[name] for name in names])
        found |= _stack(x, wide, names, tall)
    return found
