"""Screens: the board of panes, the checkpoints of a mission, a page of text; header and footer."""

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from ..client.models import RecoveryCandidate
from ..output import times
from ..output.console import plural
from . import cells, rows, visible
from .cells import Line, fitted, plain, shown, width, wrapped
from .layout import PANES, PaneArea, places
from .rows import Row
from .state import WatchState
from .visible import View
from .widgets import Pane, TextLines, scrolled

BACK_MS = 8_000
NARROW, ROOMY = 72, 100
# Without enough room, the keys with the highest number are left out first.
KEYS = (
    ("Tab", "pane", 1),
    ("↑↓", "move", 5),
    ("Enter", "open", 1),
    ("c", "checkpoints", 2),
    ("p", "briefing", 2),
    ("d", "diff", 3),
    ("f", "filter", 4),
    ("/", "search", 4),
    ("z", "zoom", 4),
    ("Space", "pause", 5),
    ("?", "help", 0),
    ("q", "quit", 0),
)
PAGE_KEYS = (("↑↓", "move", 1), ("PgDn", "page", 3), ("Home/End", "", 4), ("Esc", "back", 0))
LIST_KEYS = (
    ("↑↓", "move", 2),
    ("Enter", "open", 0),
    ("p", "briefing", 1),
    ("m", "mark", 1),
    ("d", "diff with marked, or the one before", 1),
    ("Esc", "back", 0),
)
Keys = tuple[tuple[str, str, int], ...]


def header(state: WatchState, view: View, columns: int, waiting: int = 0) -> Line:
    """Return the first line: the connection, and the number of everything."""
    end: Line = [(f" {times.clock(view.now_ms)} ", "dim")]
    if view.paused:
        end.insert(0, (f" PAUSED, {waiting} events since ", "alert"))
    if view.search:
        end.insert(0, (f" /{shown(view.search)} ", "accent"))
    if view.only:
        end.insert(0, (" one mission only ", "accent"))
    room = columns - width(plain(end))
    start: Line = [(" fleetd ", "strong"), *_connection(state, view), *_counts(state)]
    return [*fitted(start, room), *end]


def _connection(state: WatchState, view: View) -> Line:
    since = view.tick_ms - state.connection_since
    if state.connection == "connected":
        back = state.was_away_ms > 0 and since < BACK_MS
        was = f" back after {cells.seconds(state.was_away_ms)}" if back else " connected"
        return [("●", "good"), (was, "good" if back else "")]
    if state.connection == "away":
        return [(f" away for {cells.seconds(since)} ", "alarm")]
    if state.connection == "waiting":
        why = "cannot be reached" if state.trouble else "not running"
        return [("○", "warn"), (f" {why}; waiting for it ({cells.seconds(since)})", "warn")]
    return [("○", "dim"), (" connecting", "dim")]


def _counts(state: WatchState) -> Line:
    counts = state.status.counts if state.status else None
    if state.status is None or counts is None or state.connection != "connected":
        return []
    here = len([each for each in state.agents if each.status != "lost"])
    lost = len(state.agents) - here
    parts = [
        f"{len(state.status.missions)} in progress",
        f"{here} of {here + lost} agents" if lost else plural(here, "agent"),
        plural(counts.locks, "lock"),
        f"{counts.messages} undelivered",
    ]
    if conflicts := getattr(state.status, "conflicts", 0):
        parts.insert(2, plural(conflicts, "conflict"))
    if machines := state.status.machines:
        present = len([each for each in machines if each.status == "here"])
        parts.insert(1, f"{present} of {plural(len(machines), 'machine')}")
    return [("   ", ""), (" · ".join(parts), "dim")]


def alerts(state: WatchState, view: View, columns: int, most: int) -> list[Line]:
    """Return what a user should not overlook: the daemon away, missions that wait."""
    found: list[Line] = []
    if state.connection == "away":
        at = times.clock(view.now_ms - (view.tick_ms - state.connection_since), seconds=True)
        found.append([(f" fleetd went away at {at}. What you see is what it told last. ", "alarm")])
    if state.trouble:
        found.append([(f" {shown(state.trouble)} ", "alarm")])
    waiting = visible.candidates(state)
    passed = max(0, view.tick_ms - state.status_at)
    if len(waiting) <= max(1, most - len(found)):
        found += [_waits(each, passed, columns) for each in waiting]
    else:
        titles = ", ".join(shown(each.mission_title) for each in waiting)
        found.append([(f" ▲ {len(waiting)} MISSIONS WAIT FOR RECOVERY: {titles}", "alert")])
    # Fill the whole width in the colour of the alert.
    return [
        [(text, style or line[0][1]) for text, style in fitted(line, columns)]
        for line in found[:most]
    ]


def _waits(each: RecoveryCandidate, passed: int, columns: int) -> Line:
    silent = cells.silence(each.inactivity_duration_ms + passed)
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


# Lines of at most 78 columns, so that the smallest usual terminal wraps none.
HELP = """\
Panes
  Tab, Shift+Tab, ← →  the next pane, the one before
  1 … 7                missions, sorties, agents, locks, mail, checkpoints,
                       events
  ↑ ↓, j k             the next row, the one before
  PgUp PgDn, Home End  one screen up or down, the first row, the last row
  Enter                the details of the row
  z                    one pane on the whole screen; z or Esc again: all
  f                    only what belongs to the chosen mission
  /                    only the agents whose lines have some words: Enter
                       goes to them, Esc shows all again

The chosen mission
  c                    its checkpoints: Enter shows one, m marks one
  p                    its briefing; on an agent the briefing of that agent,
                       on a checkpoint the briefing from there
  d                    what changed since its newest checkpoint; on a
                       checkpoint since the marked one, or the one before

Everything
  r                    what waits for recovery, and the commands for it
  Space                freeze the screen, or continue
  q, Ctrl+C            leave; q or Esc leaves a page
  The mouse is your terminal's: select and copy as usual.

Signs
  ● at work   ○ to do, or idle   ◐ waits for its user   ■ blocked
  ✓ done   ✗ failed, or lost   ▲ waits for recovery
  messages: ◌ queued   ◑ delivered, not dealt with   ✓ dealt with

This view changes nothing: no message counts as read, no silence ends, and no
agent is briefed. It follows the events of fleetd. If fleetd stops, the view
keeps the last state, and reads everything again when fleetd returns."""


# The prefixes of lines that show a difference.
_STYLES = {"  + ": "good", "  - ": "bad", "  ~ ": "warn", "## ": "title", "### ": "title"}
_STYLES |= {"Error:": "warn", "Warning:": "warn"}


class Overlay(Screen[None]):
    """A screen over the board, which closes to the screen below it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,left,h,backspace", "back"),
        Binding("tab,shift+tab", "nothing", show=False),
    ]
    DEFAULT_CSS = """
    Overlay { overflow: hidden; }
    Overlay > TextLines { width: 100%; height: 1; }
    Overlay > #text, Overlay > Pane { height: 1fr; min-height: 1; }
    """

    def on_mount(self) -> None:
        """Show the initial content."""
        self.show()

    def on_resize(self) -> None:
        """Show the content in the new size."""
        self.show()

    def show(self) -> None:
        """Show as much as there is room for."""

    def action_back(self) -> None:
        """Close this screen."""
        self.dismiss()

    def action_nothing(self) -> None:
        """Do nothing: there is only one pane."""


class Page(Overlay):
    """Text with a title, a screen at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)"),
        ("down,j", "move(1)"),
        ("pageup,b,ctrl+b", "page(-1)"),
        ("pagedown,space,ctrl+f", "page(1)"),
        ("home,g", "end(-1)"),
        ("end,G", "end(1)"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._set_text(text)

    def _set_text(self, text: str) -> None:
        self._text, self._top = [shown(line.expandtabs(4)) for line in text.split("\n")], 0

    def compose(self) -> ComposeResult:
        """Return title, text and keys."""
        yield TextLines("title")
        yield TextLines("text")
        yield TextLines("footer")

    def show_text(self, text: str) -> None:
        """Show another text, from its beginning."""
        self._set_text(text)
        self.show()

    def show(self) -> None:
        """Show the part of the text that there is room for."""
        columns, lines = self.size
        body: list[Line] = [
            [(" ", ""), (part, _style(line))]
            for line in self._text
            for part in wrapped(line, (columns if _is_command(line) else min(columns, 120)) - 2)
        ]
        room = max(1, lines - 2)
        self._top = max(0, min(self._top, len(body) - room))
        below = max(0, len(body) - self._top - room)
        more = scrolled(self._top, below) + " ━"
        start: Line = [("━ ", "rule"), (f"{shown(self._title)} ", "title")]
        rest = columns - width(more)
        start = fitted([*start, ("━" * columns, "rule")], rest)
        # A cut rule ends with an ellipsis, which has no meaning here.
        start = [(text.replace("━…", "━━"), style) for text, style in start]
        self.query_one("#title", TextLines).show_lines([[*start, (more, "rule")]])
        self.query_one("#text", TextLines).show_lines(body[self._top : self._top + room])
        self.query_one("#footer", TextLines).show_lines([footer(PAGE_KEYS, columns)])

    def action_move(self, by: int) -> None:
        """Move the text by lines."""
        self._top += by
        self.show()

    def action_page(self, by: int) -> None:
        """Move the text by screens."""
        self.action_move(by * max(1, self.size.height - 3))

    def action_end(self, which: int) -> None:
        """Show the beginning or the end."""
        self._top = 0 if which < 0 else 1_000_000
        self.show()


def _is_command(line: str) -> bool:
    """Return whether the line is a command to copy: it wraps only at the edge of the screen."""
    return line.lstrip().startswith("fleetctl ")


def _style(line: str) -> str:
    head = "strong" if line.endswith(":") and not line.startswith(" ") else ""
    return next((style for start, style in _STYLES.items() if line.startswith(start)), head)


class Checkpoints(Overlay):
    """A mission's checkpoints, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [("c", "back")]

    def __init__(self, state: WatchState, view: View) -> None:
        super().__init__()
        self.state = state
        self.view = view

    def compose(self) -> ComposeResult:
        """Return the list and the keys."""
        yield Pane("checkpoints")
        yield TextLines("footer")

    @property
    def here(self) -> Pane:
        """The pane that has the keys."""
        return self.query_one("#checkpoints", Pane)

    def on_mount(self) -> None:
        """Focus the list."""
        self.set_focus(self.here)

    def show(self) -> None:
        """Show the current state."""
        columns, lines = self.size
        title = shown(visible.title_of(self.state, self.view.mission_id))
        found = rows.rows_of("checkpoints", self.state, self.view, columns - 1)
        empty = "No checkpoints yet. fleetctl checkpoint takes one."
        titles = (f"Checkpoints {len(found)}", f"of {title}")
        self.here.fill(PaneArea(0, 0, columns, max(1, lines - 1)), titles, found, empty)
        self.query_one("#footer", TextLines).show_lines([footer(LIST_KEYS, columns)])

    def action_back(self) -> None:
        """Close the list, and remove the mark."""
        self.view.marked = None
        self.dismiss()


class Board(Screen[None]):
    """Everything at a glance."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("tab", "next(1)"),
        ("shift+tab", "next(-1)"),
        ("right,l", "next(1)"),
        ("left,h", "next(-1)"),
        *((str(n + 1), f"to('{name}')") for n, name in enumerate(PANES)),
        ("z", "zoom"),
        ("slash", "search"),
        ("escape", "unzoom"),
    ]
    CSS = """
    Board { overflow: hidden; }
    Board > TextLines { position: absolute; }
    Board > Input, Board > Input:focus {
        position: absolute; border: none; padding: 0 1; height: 1; width: 100%;
        background: ansi_default; color: ansi_default; display: none;
    }
    """

    def __init__(self, state: WatchState, view: View) -> None:
        super().__init__()
        self.state = state
        self.view = view
        self.zoomed = False
        self.waiting = 0
        self._placed: dict[str, PaneArea] = {}

    def compose(self) -> ComposeResult:
        """Return the panes, in the order in which Tab goes through them."""
        yield TextLines("header")
        yield TextLines("alerts")
        for name in PANES:
            new_on_top = name in ("events", "mail")
            yield Pane(name, keeps_mark=name == "missions", follows=new_on_top)
        yield TextLines("footer")
        yield Input(placeholder="Words in the line of an agent", id="search")

    def pane(self, name: str) -> Pane:
        """Return a pane by its name."""
        return self.query_one(f"#{name}", Pane)

    @property
    def here(self) -> Pane:
        """The pane that has the keys."""
        if isinstance(self.focused, Input):
            return self.pane("agents")
        return self.focused if isinstance(self.focused, Pane) else self.pane("missions")

    def on_mount(self) -> None:
        """Begin with the missions."""
        self.set_focus(self.pane("missions"))
        self.place_all()

    def place_all(self) -> None:
        """Put every pane in its place, and fill all of them."""
        self._placed = {}
        self.show()

    on_resize = place_all
    # On a small screen, the focused pane takes the place of another.
    on_descendant_focus = place_all

    def _arranged(self, alerts: int) -> dict[str, PaneArea]:
        """Return the place of everything for this screen size and the current content."""
        columns, lines = self.size
        room = max(1, lines - 2 - alerts)
        needs = {name: len(rows.KINDS[name].records(self.state, self.view)) + 2 for name in PANES}
        here = str(self.here.id)
        found = places(columns, room, here, zoomed=self.zoomed, needs=needs)
        below = {name: replace(place, y=place.y + 1 + alerts) for name, place in found.items()}
        return below | {
            "header": PaneArea(0, 0, columns, 1),
            "alerts": PaneArea(0, 1, columns, alerts),
            "footer": PaneArea(0, lines - 1, columns, 1),
        }

    def show(self) -> None:
        """Show the current state."""
        columns, lines = self.size
        alert_lines = alerts(self.state, self.view, columns, max(1, lines // 12))
        arranged = self._arranged(len(alert_lines))
        if arranged != self._placed:
            self._placed = arranged
            for widget in self.query(TextLines):
                place = arranged.get(str(widget.id))
                widget.display = place is not None
                if place is not None:
                    widget.styles.offset = (place.x, place.y)
                    widget.styles.width, widget.styles.height = place.width, place.height
        line = header(self.state, self.view, columns, self.waiting)
        self.query_one("#header", TextLines).show_lines([line])
        self.query_one("#alerts", TextLines).show_lines(alert_lines)
        self.query_one("#footer", TextLines).show_lines([footer(KEYS, columns)])
        for name, place in arranged.items():
            if name in PANES:
                found = rows.rows_of(name, self.state, self.view, place.width - 1)
                titles = self._titled(name, found, place.width)
                self.pane(name).fill(place, titles, found, self._empty(name))

    def _titled(self, name: str, found: list[Row], columns: int) -> tuple[str, str]:
        chosen = visible.selected(self.state, self.view)
        aside = ""
        if name in ("sorties", "checkpoints") and chosen:
            first = f", the first {len(found)}" if len(found) == rows.MOST else ""
            aside = f"of {shown(chosen.title)}{first}"
        elif name == "mail":
            aside = rows.delivery_summary(visible.messages(self.state, self.view), columns)
        total = len(rows.KINDS[name].records(self.state, self.view))
        count = f" {total}" if total and name not in ("events", "mail") else ""
        return f"{name.capitalize()}{count}", aside

    def _empty(self, name: str) -> str:
        if self.state.status is None:
            waiting = "Waiting for fleetd. Start it with: fleetctl daemon start"
            return waiting if name == "missions" and self.state.connection == "waiting" else ""
        subject = {"sorties": self.state.sorties_of, "checkpoints": self.state.checkpoints_of}
        # "Not read yet" is not the same as "none".
        if name in subject and subject[name] != self.view.mission_id:
            return ""
        return rows.KINDS[name].empty

    def action_next(self, by: int) -> None:
        """Focus the next or the previous pane."""
        seen = [name for name in PANES if self.zoomed or self.pane(name).display or self._small]
        if "checkpoints" in seen and (self._small or self.zoomed):
            seen.remove("checkpoints")
        at = seen.index(str(self.here.id)) if str(self.here.id) in seen else 0
        self.action_to(seen[(at + by) % len(seen)])

    @property
    def _small(self) -> bool:
        return len([name for name in PANES if self.pane(name).display]) < 5

    def action_to(self, name: str) -> None:
        """Show a pane and focus it."""
        pane = self.pane(name)
        if not pane.display:
            if not (self._small or self.zoomed):
                return
            pane.display = True
        # Immediately: the next key press may follow.
        self.set_focus(pane)

    def action_zoom(self) -> None:
        """Zoom the focused pane to the whole screen, or end the zoom."""
        self.zoomed = not self.zoomed
        self.place_all()

    def action_search(self) -> None:
        """Ask for words, and show only the agents whose lines contain them."""
        asked = self.query_one("#search", Input)
        asked.display = True
        asked.styles.offset = (0, self.size.height - 1)
        self.set_focus(asked)

    def on_input_changed(self, message: Input.Changed) -> None:
        """Update the search results with every key press."""
        self.view.search = message.value.strip()
        self.show()

    def on_input_submitted(self) -> None:
        """Go to the agents that were found."""
        self._end_search()

    def _end_search(self) -> None:
        self.query_one("#search", Input).display = False
        self.action_to("agents")
        self.place_all()

    def action_unzoom(self) -> None:
        """Show all agents again, then all panes."""
        asked = self.query_one("#search", Input)
        if asked.display or self.view.search:
            asked.value = self.view.search = ""
            if asked.display:
                self._end_search()
            self.place_all()
            return
        if self.zoomed:
            self.action_zoom()
