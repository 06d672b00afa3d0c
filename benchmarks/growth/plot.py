"""Lines on two logarithmic scales as a small SVG, for light and dark pages."""

import math
from collections.abc import Sequence
from html import escape

import msgspec

WIDTH, HEIGHT, GAP = 400, 250, 40
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 30, 40
COLOURS = ("#2f7ed8", "#d9822b", "#2e9e5b", "#b04fc4", "#c9413b", "#7a7f87")
_STYLE = (
    "text{font:11px sans-serif;fill:#57606a}.t{font-weight:bold}.g{stroke:#8c959f55}"
    ".l{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#adb5bf}}"
)


class Line(msgspec.Struct, frozen=True):
    """One measured quantity, at several sizes."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(msgspec.Struct, frozen=True):
    """One drawing; ``unit`` is the unit of its lines, ``of`` is what grows."""

    title: str
    of: str
    unit: str
    lines: Sequence[Line]


def svg(panels: Sequence[Panel]) -> str:
    """Draw panels, two in a row."""
    rows = math.ceil(len(panels) / 2)
    width, height = 2 * WIDTH + GAP, rows * (HEIGHT + GAP + 90)
    drawn = [
        f'<g transform="translate({(n % 2) * (WIDTH + GAP)},{(n // 2) * (HEIGHT + GAP + 90)})">'
        + "".join(_panel(panel))
        + "</g>"
        for n, panel in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>How time and memory grow</title><style>{_STYLE}</style>{''.join(drawn)}</svg>\n"
    )


def _panel(panel: Panel) -> list[str]:
    xs = [x for line in panel.lines for x, _ in line.points]
    ys = [y for line in panel.lines for _, y in line.points]
    across = _Scale(xs, LEFT, WIDTH - RIGHT)
    up = _Scale(ys, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<text class="t" x="{LEFT}" y="16">{escape(panel.title)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(panel.of)}</text>',
        f'<text x="4" y="{TOP - 4}">{escape(panel.unit)}</text>',
    ]
    for mark in across.marks():
        at = across.at(mark)
        parts.append(_rule(at, TOP, at, HEIGHT - BOTTOM))
        parts.append(
            f'<text x="{at:.0f}" y="{HEIGHT - 24}" text-anchor="middle">{_label(mark)}</text>'
        )
    for mark in up.marks():
        at = up.at(mark)
        parts.append(_rule(LEFT, at, WIDTH - RIGHT, at))
        parts.append(
            f'<text x="{LEFT - 6}" y="{at + 4:.0f}" text-anchor="end">{_label(mark)}</text>'
        )
    for number, line in enumerate(panel.lines):
        parts += _line(line, COLOURS[number % len(COLOURS)], across, up, number)
    return parts


def _line(line: Line, colour: str, across: "_Scale", up: "_Scale", number: int) -> list[str]:
    points = [(across.at(x), up.at(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    place, below = LEFT + (number % 2) * 180, HEIGHT + 14 + (number // 2) * 18
    return [
        f'<polyline class="l" stroke="{colour}" points="{path}"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points),
        f'<rect x="{place}" y="{below - 9}" width="10" height="10" fill="{colour}"/>',
        f'<text x="{place + 15}" y="{below}">{escape(line.name)}</text>',
    ]


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="g" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _label(number: float) -> str:
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:g} {letter}"
    return f"{number:g}"


class _Scale:
    """A logarithmic scale of whole powers of ten."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def marks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]
