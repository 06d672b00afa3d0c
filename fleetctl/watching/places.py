"""Where each pane stands on a screen of a given size; pure, must not know what is in them."""

from dataclasses import dataclass

PANES = ("missions", "sorties", "agents", "locks", "mail", "checkpoints", "events")
# Below this width two panes beside each other tell nothing any more.
NARROW = 72
# From this size on there is room for two columns of panes, and for the checkpoints.
WIDE, HIGH = 140, 32


@dataclass(frozen=True)
class Place:
    """A pane's corner and size, in cells of the board."""

    x: int
    y: int
    width: int
    height: int


def places(columns: int, rows: int, focused: str, *, zoomed: bool = False) -> dict[str, Place]:
    """Return the place of every pane that has one."""
    if zoomed or rows < 9:
        return {focused: Place(0, 0, columns, rows)}
    if columns >= WIDE and rows >= HIGH:
        return _wide(columns, rows)
    if columns < NARROW:
        return _narrow(columns, rows, focused)
    return _usual(columns, rows)


def shares(total: int, *weights: int) -> list[int]:
    """Return a number divided by weights, without a remainder."""
    whole, found, given = sum(weights), [], 0
    for n in range(len(weights)):
        upto = total * sum(weights[: n + 1]) // whole
        found.append(upto - given)
        given = upto
    return found


def _stack(x: int, columns: int, names: tuple[str, ...], heights: list[int]) -> dict[str, Place]:
    found, y = {}, 0
    for name, height in zip(names, heights, strict=True):
        found[name] = Place(x, y, columns, height)
        y += height
    return found


def _usual(columns: int, rows: int) -> dict[str, Place]:
    heights = shares(rows, 10, 10, 10, 11)
    found = _stack(0, columns, ("missions", "sorties", "", "below"), heights)
    middle, below = found.pop(""), found.pop("below")
    half = (columns - 1) // 2
    found["agents"] = Place(0, middle.y, half, middle.height)
    found["locks"] = Place(half + 1, middle.y, columns - half - 1, middle.height)
    events = columns * 5 // 8
    found["events"] = Place(0, below.y, events, below.height)
    found["mail"] = Place(events + 1, below.y, columns - events - 1, below.height)
    return found


def _narrow(columns: int, rows: int, focused: str) -> dict[str, Place]:
    third = focused if focused in PANES[2:] and focused != "checkpoints" else "events"
    return _stack(0, columns, ("missions", "sorties", third), shares(rows, 1, 1, 1))


def _wide(columns: int, rows: int) -> dict[str, Place]:
    left = columns * 11 // 20
    found = _stack(0, left, ("missions", "sorties", "events"), shares(rows, 7, 8, 9))
    right = ("agents", "locks", "mail", "checkpoints")
    return found | _stack(left + 2, columns - left - 2, right, shares(rows, 7, 6, 6, 5))
