"""Timeline of a mission: its events as the entries of a story, and the page that shows them.

Several events about one thing become one entry. Events that add nothing are left out, and silences
appear where they were.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleetd.protocol.event_types import event_type
from fleetd.protocol.timestamps import iso

from .. import console, times
from ..events import sentence, summarize, tone
from ..text import cut, padded, width, wrapped

if TYPE_CHECKING:
    from fleetd.protocol.records import Event

    from ...client.models import Mission, Sortie

# The daemon's default for how long it takes until a mission is silent.
SILENT_MS = 5 * times.MINUTE
# A run ends when its agent did nothing of the kind for this long.
RUN_MS = 30 * times.MINUTE


class Entry(NamedTuple):
    """One line of a story: when it began and ended, in ms, its text, and its events.

    ``kind`` is the type of its events, or ``silence``.
    """

    kind: str
    begun: int
    ended: int
    text: str
    tone: str | None
    events: "Sequence[Event]"
    agent: str | None


def timeline_entries(
    events: "Iterable[Event]",
    now_ms: int,
    *,
    inside: str | None = None,
    full: bool = False,
    goes_on: bool = False,
) -> list[Entry]:
    """Return the entries of a mission, oldest first; ``full`` gives every event its own entry.

    Files are named from the directory ``inside``. A mission that ``goes_on`` may be silent now.
    """
    runs: list[list[Event]] = []
    silences: list[Entry] = []
    open_runs: dict[tuple[str, str, str], int] = {}
    last = None
    for event in events:
        at = _at(event)
        if event_type(event.type).activity:
            if last is not None and at - last >= SILENT_MS:
                silences.append(_silence(last, at))
                # A run must not span a silence.
                open_runs.clear()
            last = at
        if full:
            runs.append([event])
        elif event_type(event.type).shown == "always":
            _add(runs, open_runs, event)
    if goes_on and last is not None and now_ms - last >= SILENT_MS:
        silences.append(_silence(last, now_ms, ", and still is"))
    return sorted([_entry(run, inside) for run in runs] + silences, key=lambda entry: entry.begun)


def _at(event: "Event") -> int:
    """Return when an event happened; one from the spool was recorded later."""
    happened = event.data.get("happened_at") if isinstance(event.data, dict) else None
    at = times.ms_of(happened) if isinstance(happened, str) else None
    return at if at is not None else times.ms_of(event.timestamp) or 0


def _silence(begun: int, ended: int, more: str = "") -> Entry:
    text = f"silent for {times.span(ended - begun)}{more}"
    return Entry("silence", begun, ended, text, "dim", [], None)


def _add(
    runs: "list[list[Event]]", open_runs: dict[tuple[str, str, str], int], event: "Event"
) -> None:
    """Add an event to the run that it continues, or begin another one."""
    agent_id, kind = event.agent_id or "", event_type(event.type)
    key = (event.type, agent_id, str(event.data.get(kind.alike) or ""))
    if kind.repeated:
        run = runs[open_runs[key]] if key in open_runs else None
        if run and _at(event) - _at(run[-1]) < RUN_MS:
            run.append(event)
            return
    else:
        # Another action of the agent separates the runs before and after it.
        for other in [each for each in open_runs if each[1] == agent_id]:
            del open_runs[other]
    open_runs[key] = len(runs)
    runs.append([event])


def _entry(run: "Sequence[Event]", inside: str | None) -> Entry:
    first, last = run[0], run[-1]
    text = summarize(run, inside) if len(run) > 1 else sentence(last, inside=inside)
    return Entry(first.type, _at(first), _at(last), text, tone(first.type), run, first.agent_id)


# Narrower terminals show no bars, and no relative times.
ROOMY = 60
MOST_BARS = 8
# An entry with more lines is cut, unless --full is given.
MOST_LINES = 2


def show_timeline(
    mission: "Mission", sorties: "Sequence[Sortie]", entries: Sequence[Entry], *, whole: bool
) -> None:
    """Print the story of a mission, on a terminal with days, bars and relative times."""
    if not console.human_readable():
        for entry in entries:
            until = f" (until {iso(entry.ended)})" if entry.ended > entry.begun else ""
            console.line(f"{iso(entry.begun)}  {entry.text}{until}")
        return
    room, now = console.terminal_width(), console.now_ms()
    title = cut(console.clean(mission.title), max(room - 30, 10))
    print(
        console.styled(title, "bold"),
        f"({mission.id})  {console.percent_bar(mission.progress_percent)}",
    )
    if room >= ROOMY:
        _bars(sorties, room, now)
    _days(entries, room, now, most=None if whole else MOST_LINES)


def _days(entries: Sequence[Entry], room: int, now: int, most: int | None) -> None:
    """Print the entries below their days; a relative time equal to that above is not repeated."""
    clocks = [_clock(entry) for entry in entries]
    # For runs the beginning, which orders them: otherwise times would go back and forth.
    agos = [times.since(entry.begun, now) if room >= ROOMY else "" for entry in entries]
    widest = max(map(len, agos), default=0)
    gap = "  " if widest else ""
    dash = "─" if console.has_unicode() else "-"
    today = above = None
    for entry, clock, ago in zip(entries, clocks, agos, strict=True):
        if (day := times.day(entry.begun)) != today:
            today, above = day, None
            title = f"{dash * 2} {day}, {times.zone(entry.begun)} "
            print()
            print(console.styled(title + dash * max(room - width(title), 0), "bold"))
        shown = "" if ago == above else ago
        above = ago
        start = f"{clock:<{max(map(len, clocks))}}  {shown:<{widest}}{gap}"
        text = wrapped(console.clean(entry.text), max(room - len(start), 10), most)
        for n, line in enumerate(text):
            print(
                console.styled(start, "dim") if not n else " " * len(start),
                console.styled(line, entry.tone or ""),
                sep="",
            )


def _clock(entry: Entry) -> str:
    begun, ended = times.clock(entry.begun), times.clock(entry.ended)
    one_day = times.day(entry.begun) == times.day(entry.ended)
    return f"{begun}-{ended}" if one_day and begun != ended else begun


def _bars(sorties: "Sequence[Sortie]", room: int, now: int) -> None:
    """Draw when each sortie was worked on, below one another on one scale."""
    begun = [each for each in sorties if each.started_at]
    if not begun or not console.has_unicode():
        return
    spans = [(_ms(each.started_at, now), _end(each, now)) for each in begun]
    start = min(at for at, _ in spans)
    end = max(at for _, at in spans)
    names = min(max(width(each.title) for each in begun[:MOST_BARS]), room // 3)
    length = room - names - 4 - len("99 d 23 h ")
    print()
    for each, (from_ms, to_ms) in zip(begun[:MOST_BARS], spans, strict=False):
        left, right = (
            (at - start) * (length - 1) // max(end - start, 1) for at in (from_ms, to_ms)
        )
        bar = padded(" " * left + "━" * (right - left + 1), length)
        name = padded(cut(console.clean(each.title), names), names)
        style = console.STATES.get(each.status, "")
        print(f"{name}  {console.styled(bar, style)}  {times.span(to_ms - from_ms):>9}")
    if (more := len(begun) - MOST_BARS) > 0:
        print(f"and {console.plural(more, 'sortie')} more: fleetctl sortie list")


def _ms(text: str | None, now: int) -> int:
    at = times.ms_of(text) if text else None
    return now if at is None else at


def _end(sortie: "Sortie", now: int) -> int:
    if sortie.status in ("in_progress", "blocked"):
        return now
    return _ms(sortie.completed_at or sortie.updated_at, now)
