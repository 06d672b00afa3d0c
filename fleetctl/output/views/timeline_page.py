"""The page that ``fleetctl mission timeline`` prints; must not talk to the daemon."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetd.protocol.timestamps import iso

from .. import console, screen, times
from ..text import cut, padded, width, wrapped
from ..timeline import Entry

if TYPE_CHECKING:
    from ...client.models import Mission, Sortie

# Narrower terminals show no bars, and no relative times.
ROOMY = 60
MOST_BARS = 8
# What does not fit into so many lines is cut, unless --full was said.
MOST_LINES = 2


def show_story(
    mission: "Mission", sorties: "Sequence[Sortie]", entries: Sequence[Entry], *, whole: bool
) -> None:
    """Print the story of a mission, on a terminal with days, bars and relative times."""
    if not screen.humane():
        for entry in entries:
            until = f" (until {iso(entry.ended)})" if entry.ended > entry.begun else ""
            console.line(f"{iso(entry.begun)}  {entry.text}{until}")
        return
    room, now = screen.width(), screen.now_ms()
    title = cut(console.clean(mission.title), max(room - 30, 10))
    print(console.styled(title, "bold"), f"({mission.id})  {console.bar(mission.progress_percent)}")
    if room >= ROOMY:
        _bars(sorties, room, now)
    _days(entries, room, now, most=None if whole else MOST_LINES)


def _days(entries: Sequence[Entry], room: int, now: int, most: int | None) -> None:
    """Print the entries below their days; what is as long ago as the line above is not repeated."""
    clocks = [_clock(entry) for entry in entries]
    # Of runs the beginning, as they are in order of it: else times would go back and forth.
    agos = [times.since(entry.begun, now) if room >= ROOMY else "" for entry in entries]
    widest = max(map(len, agos), default=0)
    gap = "  " if widest else ""
    today = above = None
    for entry, clock, ago in zip(entries, clocks, agos, strict=True):
        if (day := times.day(entry.begun)) != today:
            today, above = day, None
            print()
            print(console.styled(_rule(f"{day}, {times.zone(entry.begun)}", room), "bold"))
        told = "" if ago == above else ago
        above = ago
        _line(entry, f"{clock:<{max(map(len, clocks))}}  {told:<{widest}}{gap}", room, most)


def _clock(entry: Entry) -> str:
    begun, ended = times.clock(entry.begun), times.clock(entry.ended)
    one_day = times.day(entry.begun) == times.day(entry.ended)
    return f"{begun}-{ended}" if one_day and begun != ended else begun


def _rule(text: str, room: int) -> str:
    dash = "─" if screen.draws() else "-"
    return f"{dash * 2} {text} " + dash * max(room - width(text) - 4, 0)


def _line(entry: Entry, start: str, room: int, most: int | None) -> None:
    text = console.clean(entry.text)
    first, *more = wrapped(text, max(room - len(start), 10), most)
    print(console.styled(start, "dim") + console.styled(first, entry.tone or ""))
    for each in more:
        print(" " * len(start) + console.styled(each, entry.tone or ""))


def _bars(sorties: "Sequence[Sortie]", room: int, now: int) -> None:
    """Draw when each sortie was worked on, below one another on one scale."""
    begun = [each for each in sorties if each.started_at]
    if not begun or not screen.draws():
        return
    start = min(_ms(each.started_at, now) for each in begun)
    end = max(_end(each, now) for each in begun)
    names = max(width(each.title) for each in begun[:MOST_BARS])
    names = min(names, room // 3)
    length = room - names - 4 - len("99 d 23 h ")
    print()
    for each in begun[:MOST_BARS]:
        left = (_ms(each.started_at, now) - start) * (length - 1) // max(end - start, 1)
        right = (_end(each, now) - start) * (length - 1) // max(end - start, 1)
        bar = padded(" " * left + "━" * (right - left + 1), length)
        spent = times.span(_end(each, now) - _ms(each.started_at, now))
        name = padded(cut(console.clean(each.title), names), names)
        print(f"{name}  {console.styled(bar, console.STATES.get(each.status, ''))}  {spent:>9}")
    if (more := len(begun) - MOST_BARS) > 0:
        print(f"and {console.plural(more, 'sortie')} more: fleetctl sortie list")


def _ms(text: str | None, now: int) -> int:
    at = times.ms_of(text) if text else None
    return now if at is None else at


def _end(sortie: "Sortie", now: int) -> int:
    if sortie.status in ("in_progress", "blocked"):
        return now
    return _ms(sortie.completed_at or sortie.updated_at, now)
