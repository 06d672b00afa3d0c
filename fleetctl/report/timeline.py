"""The timeline of a report as SVG: agents as rows, sorties as bars, and marks for other events.

It has no scripts, links or styles: the page's style colours its classes.
"""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from fleetd.protocol.display import clean

from ..output.times import DAY, ms_of

if TYPE_CHECKING:
    from ..client.models import Report, ReportSortie

WIDTH, LABELS, RIGHT = 1_000, 170, 20
ROW, LANE, BAR, HEAD = 30, 14, 10, 34
MOST_ROWS, MOST_LANES, LABEL_CHARS, TITLE_CHARS = 60, 4, 22, 200
TICKS = 5
# The marks by kind: a word for the legend, and a shape around the point 0, 0.
MARKS = {
    "compaction": ("compaction", "M0-6 6 5-6 5Z"),
    "checkpoint": ("checkpoint", "M-1-7H1V7H-1Z"),
    "recovery": ("recovery", "M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5Z"),
    "error": ("error", "M-5-3-3-5 0-2 3-5 5-3 2 0 5 3 3 5 0 2-3 5-5 3-2 0Z"),
}
BARS = {"done": "completed sortie", "open": "open sortie", "failed": "failed sortie"}
# The name of the row for what concerns no agent.
_MISSION = ""


class _Bar(NamedTuple):
    """A sortie in the row of its agent."""

    start: int
    end: int
    kind: str
    title: str


class _Mark(NamedTuple):
    """The mark of an event at a point in time."""

    at: int
    kind: str
    title: str


class _Row(NamedTuple):
    """The drawing of an agent: when it was there, its bars in lanes, its marks."""

    name: str
    span: tuple[int, int] | None
    lanes: list[list[_Bar]]
    marks: list[_Mark]

    @property
    def height(self) -> int:
        """Return the height of the row."""
        return ROW + LANE * max(len(self.lanes) - 1, 0)


def draw(report: "Report") -> str:
    """Return the picture as an element of a page."""
    rows, hidden = _rows(report)
    times = [at for row in rows for at in _times(row)]
    if not times:
        return ""
    first, last = min(times), max(times)
    last = max(last, first + 1_000)
    scale = _Scale(first, last)
    bottom = HEAD + sum(row.height for row in rows)
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 50}" role="img"'
        f' aria-label="Timeline of {len(rows)} rows">'
    )
    parts = [begin, *_axis(scale, bottom)]
    top = HEAD
    for row in rows:
        parts += _row(row, scale, top)
        top += row.height
    parts += _legend(top + 30)
    if hidden:
        parts.append(
            f'<text class="label" x="{WIDTH - RIGHT}" y="{top + 46}" text-anchor="end">'
            f"and {hidden} more agents</text>"
        )
    return "\n".join([*parts, "</svg>"])


class _Scale(NamedTuple):
    """The scale from times to places in the picture."""

    first: int
    last: int

    def x(self, at: int) -> int:
        """Return the place of a time, always inside the picture."""
        part = (min(max(at, self.first), self.last) - self.first) / (self.last - self.first)
        return LABELS + round(part * (WIDTH - LABELS - RIGHT))


def _times(row: _Row) -> Iterator[int]:
    yield from row.span or ()
    for lane in row.lanes:
        for bar in lane:
            yield from (bar.start, bar.end)
    yield from (mark.at for mark in row.marks)


def _rows(report: "Report") -> tuple[list[_Row], int]:
    """Return the rows, the mission first, and how many agents have no row."""
    end = ms_of(report.last_at or report.generated_at) or 0
    bars = _bars(report, end)
    marks = _marks(report)
    names = [each.agent_id for each in report.agents]
    spans = {
        each.agent_id: (first, last)
        for each in report.agents
        if (first := ms_of(each.first_at or "")) is not None
        and (last := ms_of(each.last_at or "")) is not None
    }
    others = [name for name in [*bars, *marks] if name and name not in names]
    every = list(dict.fromkeys([*names, *others]))
    shown = every[:MOST_ROWS]
    rows = [
        _Row(name, spans.get(name), _in_lanes(bars.get(name, [])), marks.get(name, []))
        for name in ([_MISSION] if _MISSION in bars or _MISSION in marks else []) + shown
    ]
    return rows, len(every) - len(shown)


def _bars(report: "Report", end: int) -> dict[str, list[_Bar]]:
    found: dict[str, list[_Bar]] = {}
    for sortie in report.planned:
        start = ms_of(sortie.started_at or "")
        if start is None:
            continue
        until = ms_of(sortie.completed_at or "") or end
        bar = _Bar(start, max(until, start), _kind(sortie), sortie.title)
        found.setdefault(sortie.assigned_to or _MISSION, []).append(bar)
    return found


def _kind(sortie: "ReportSortie") -> str:
    return {"completed": "done", "failed": "failed"}.get(sortie.status, "open")


def _marks(report: "Report") -> dict[str, list[_Mark]]:
    found: dict[str, list[_Mark]] = {}

    def mark(agent_id: str | None, at: str, kind: str, title: str) -> None:
        if (when := ms_of(at)) is not None:
            found.setdefault(agent_id or _MISSION, []).append(_Mark(when, kind, title))

    for effect in report.compactions:
        mark(effect.agent_id, effect.at, "compaction", "")
    for recovery in report.recoveries:
        mark(recovery.agent_id, recovery.created_at, "recovery", recovery.id)
    for checkpoint in report.checkpoints:
        mark(None, checkpoint.timestamp, "checkpoint", checkpoint.id)
    for error in report.errors:
        mark(error.agent_id, error.at, "error", error.name)
    return found


def _in_lanes(bars: list[_Bar]) -> list[list[_Bar]]:
    """Return bars in lanes so that none covers another, as far as there are lanes."""
    lanes: list[list[_Bar]] = []
    for bar in sorted(bars):
        free = next((lane for lane in lanes if lane[-1].end <= bar.start), None)
        if free is None and len(lanes) < MOST_LANES:
            lanes.append([bar])
        else:
            (free or lanes[-1]).append(bar)
    return lanes


def _axis(scale: _Scale, bottom: int) -> Iterator[str]:
    for number in range(TICKS + 1):
        at = scale.first + (scale.last - scale.first) * number // TICKS
        x = scale.x(at)
        anchor = "start" if number == 0 else "end" if number == TICKS else "middle"
        yield f'<line class="grid" x1="{x}" y1="{HEAD - 8}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{x}" y="16" text-anchor="{anchor}">{_tick(at, scale)}</text>'


def _tick(at: int, scale: _Scale) -> str:
    # Imported here: only the picture needs it.
    from fleetd.protocol.timestamps import iso

    timestamp = iso(at)
    if scale.last - scale.first > DAY:
        return timestamp[:16].replace("T", " ")
    return timestamp[11:19] if scale.last - scale.first < DAY // 24 else timestamp[11:16]


def _row(row: _Row, scale: _Scale, top: int) -> Iterator[str]:
    middle = top + ROW // 2
    name = clean(row.name) if row.name else "mission"
    short = name if len(name) <= LABEL_CHARS else name[: LABEL_CHARS - 1] + "…"
    yield "<g>"
    yield f'<text class="label" x="8" y="{middle + 4}">{escape(short)}</text>'
    if row.span is not None:
        start, end = map(scale.x, row.span)
        yield (
            f'<rect class="span" x="{start}" y="{top + row.height - 5}"'
            f' width="{max(end - start, 2)}" height="2"/>'
        )
    for number, lane in enumerate(row.lanes):
        for bar in lane:
            yield _drawn_bar(bar, scale, middle - BAR // 2 + LANE * number)
    drawn: set[tuple[str, int]] = set()
    for mark in row.marks:
        place = (mark.kind, scale.x(mark.at))
        if place not in drawn:
            drawn.add(place)
            yield _drawn_mark(mark, place[1], middle)
    yield "</g>"


def _drawn_bar(bar: _Bar, scale: _Scale, y: int) -> str:
    start, end = scale.x(bar.start), scale.x(bar.end)
    return (
        f'<rect class="bar {bar.kind}" x="{start}" y="{y}" width="{max(end - start, 3)}"'
        f' height="{BAR}" rx="2"><title>{_text(bar.title)}</title></rect>'
    )


def _drawn_mark(mark: _Mark, x: int, y: int) -> str:
    word, shape = MARKS[mark.kind]
    title = f"{word}: {_text(mark.title)}" if mark.title else word
    return (
        f'<path class="mark {mark.kind}" transform="translate({x} {y})" d="{shape}">'
        f"<title>{title}</title></path>"
    )


def _text(text: str) -> str:
    return escape(clean(text)[:TITLE_CHARS])


def _legend(y: int) -> Iterator[str]:
    x = LABELS
    for kind, word in BARS.items():
        yield (
            f'<rect class="bar {kind}" x="{x}" y="{y - BAR // 2}" width="18" height="{BAR}"'
            ' rx="2"/>'
        )
        yield f'<text class="tick" x="{x + 24}" y="{y + 4}">{word}</text>'
        x += 130
    for kind, (word, shape) in MARKS.items():
        yield f'<path class="mark {kind}" transform="translate({x + 6} {y})" d="{shape}"/>'
        yield f'<text class="tick" x="{x + 18}" y="{y + 4}">{word}</text>'
        x += 100
