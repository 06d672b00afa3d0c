"""What stands above and below the panes: the daemon, what waits, the keys; pure."""

from ..client.models import RecoveryCandidate
from ..output import times
from ..output.console import plural
from . import durations, mission_list
from .cells import Line, fitted, plain, shown, width
from .mission_list import View
from .state import Picture

BACK_MS = 8_000
NARROW, ROOMY = 72, 100
# Which keys go first when there is no room: the highest number.
KEYS = (
    ("Tab", "pane", 1),
    ("↑↓", "move", 5),
    ("Enter", "open", 1),
    ("c", "checkpoints", 2),
    ("p", "prompt", 2),
    ("d", "diff", 3),
    ("f", "filter", 4),
    ("z", "zoom", 4),
    ("Space", "pause", 5),
    ("?", "help", 0),
    ("q", "quit", 0),
)
PAGE_KEYS = (("↑↓", "move", 1), ("PgDn", "page", 3), ("Home/End", "", 4), ("Esc", "back", 0))
LIST_KEYS = (
    ("↑↓", "move", 2),
    ("Enter", "open", 0),
    ("p", "prompt", 1),
    ("m", "mark", 1),
    ("d", "diff with marked, or the one before", 1),
    ("Esc", "back", 0),
)
Keys = tuple[tuple[str, str, int], ...]


def header(picture: Picture, view: View, columns: int, waiting: int = 0) -> Line:
    """Return the first line: who is there, and how much of everything."""
    end: Line = [(f" {times.clock(view.now_ms)} ", "dim")]
    if view.paused:
        end.insert(0, (f" PAUSED, {waiting} events since ", "alert"))
    if view.only:
        end.insert(0, (" one mission only ", "accent"))
    room = columns - width(plain(end))
    start: Line = [(" fleetd ", "strong"), *_link(picture, view), *_counts(picture)]
    return [*fitted(start, room), *end]


def _link(picture: Picture, view: View) -> Line:
    since = view.tick_ms - picture.link_since
    if picture.link == "connected":
        back = picture.was_away_ms > 0 and since < BACK_MS
        was = f" back after {durations.seconds(picture.was_away_ms)}" if back else " connected"
        return [("●", "good"), (was, "good" if back else "")]
    if picture.link == "away":
        return [(f" away for {durations.seconds(since)} ", "alarm")]
    if picture.link == "waiting":
        why = "cannot be reached" if picture.trouble else "not running"
        return [("○", "warn"), (f" {why}; waiting for it ({durations.seconds(since)})", "warn")]
    return [("○", "dim"), (" connecting", "dim")]


def _counts(picture: Picture) -> Line:
    counts = picture.status.counts if picture.status else None
    if picture.status is None or counts is None or picture.link != "connected":
        return []
    here = len([each for each in picture.agents if each.status != "lost"])
    lost = len(picture.agents) - here
    told = [
        f"{len(picture.status.missions)} in progress",
        f"{here} of {here + lost} agents" if lost else plural(here, "agent"),
        plural(counts.locks, "lock"),
        f"{counts.messages} undelivered",
    ]
    if machines := picture.status.machines:
        present = len([each for each in machines if each.status == "here"])
        told.insert(1, f"{present} of {plural(len(machines), 'machine')}")
    return [("   ", ""), (" · ".join(told), "dim")]


def alerts(picture: Picture, view: View, columns: int, most: int) -> list[Line]:
    """Return what a person should not overlook: the daemon away, missions that wait."""
    found: list[Line] = []
    if picture.link == "away":
        at = times.clock(view.now_ms - (view.tick_ms - picture.link_since), seconds=True)
        found.append([(f" fleetd went away at {at}. What you see is what it told last. ", "alarm")])
    if picture.trouble:
        found.append([(f" {shown(picture.trouble)} ", "alarm")])
    waiting = mission_list.candidates(picture)
    passed = max(0, view.tick_ms - picture.status_at)
    if len(waiting) <= max(1, most - len(found)):
        found += [_waits(each, passed, columns) for each in waiting]
    else:
        titles = ", ".join(shown(each.mission_title) for each in waiting)
        found.append([(f" ▲ {len(waiting)} MISSIONS WAIT FOR RECOVERY: {titles}", "alert")])
    # A bar, from one side to the other.
    return [
        [(text, style or line[0][1]) for text, style in fitted(line, columns)]
        for line in found[:most]
    ]


def _waits(each: RecoveryCandidate, passed: int, columns: int) -> Line:
    silent = durations.silence(each.inactivity_duration_ms + passed)
    why = "agent_lost" if each.lost_agents else silent
    title = shown(each.mission_title)
    point = f"{each.checkpoint_id or 'no checkpoint'}  " if columns >= ROOMY else ""
    end = f"  {why}  {point}r: what to do "
    start = " ▲ WAITS FOR RECOVERY  " if columns >= NARROW else " ▲ WAITS  "
    room = max(8, columns - width(start) - width(end))
    return [(start, "alert"), *fitted([(title, "alert")], room)[:1], (end, "alert")]


def footer(keys: Keys, columns: int) -> Line:
    """Return the keys, as many as there is room for."""
    kept = list(keys)
    while len(kept) > 1 and _length(kept) > columns:
        kept.remove(max(kept, key=lambda key: key[2]))
    line: Line = []
    for key, what, _ in kept:
        line += [(f" {key}", "key"), (f" {what} " if what else " ", "dim")]
    return fitted(line, columns)


def _length(keys: list[tuple[str, str, int]]) -> int:
    return sum(width(key) + width(what) + (3 if what else 2) for key, what, _ in keys)
