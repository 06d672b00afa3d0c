"""The screen with the panes: fills them from the picture, and knows which keys open what."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from . import header, mission_list, rows
from .cells import Line, shown
from .layout import PANES, Place, places
from .mission_list import View
from .rows import Row
from .state import Picture
from .widgets import Painted, Pane

_ROWS: dict[str, Callable[[Picture, View, int], list[Row]]] = {
    "missions": rows.mission_rows,
    "sorties": rows.sortie_rows,
    "agents": rows.agent_rows,
    "locks": rows.lock_rows,
    "mail": rows.letter_rows,
    "checkpoints": rows.checkpoint_rows,
    "events": rows.event_rows,
}
_SHOWN: dict[str, Callable[[Picture, View], Sequence[Any]]] = {
    "missions": mission_list.missions,
    "sorties": mission_list.sorties,
    "agents": mission_list.agents,
    "locks": mission_list.locks,
    "mail": mission_list.letters,
    "checkpoints": mission_list.checkpoints,
    "events": mission_list.events,
}
_EMPTY = {
    "missions": "No missions yet: fleetctl mission create",
    "sorties": "No sorties.",
    "agents": "Nobody works.",
    "locks": "Nothing is locked.",
    "mail": "No letters.",
    "checkpoints": "No checkpoints yet.",
    "events": "Nothing happened yet.",
}


class Board(Screen[None]):
    """Everything at a glance."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("tab", "next(1)"),
        ("shift+tab", "next(-1)"),
        ("right,l", "next(1)"),
        ("left,h", "next(-1)"),
        *((str(n + 1), f"to('{name}')") for n, name in enumerate(PANES)),
        ("z", "zoom"),
        ("escape", "unzoom"),
    ]
    CSS = "Board { layout: vertical; overflow: hidden; }"

    def __init__(self, picture: Picture, view: View) -> None:
        super().__init__()
        self.picture = picture
        self.view = view
        self.zoomed = False
        self.waiting = 0
        self._placed: dict[str, Place] = {}

    def compose(self) -> ComposeResult:
        """Return the panes, in the order in which Tab goes through them."""
        yield Painted("header")
        yield Painted("alerts")
        for name in PANES:
            new_on_top = name in ("events", "mail")
            yield Pane(name, keeps_mark=name == "missions", follows=new_on_top)
        yield Painted("footer")

    def pane(self, name: str) -> Pane:
        """Return a pane by its name."""
        return self.query_one(f"#{name}", Pane)

    @property
    def here(self) -> Pane:
        """The pane that has the keys."""
        return self.focused if isinstance(self.focused, Pane) else self.pane("missions")

    def on_mount(self) -> None:
        """Begin with the missions."""
        self.set_focus(self.pane("missions"))
        self.place_all()

    def on_resize(self) -> None:
        """Put everything in its place again."""
        self.place_all()

    def on_descendant_focus(self) -> None:
        """On a small screen the pane with the keys takes another's place."""
        self.place_all()

    def place_all(self) -> None:
        """Put every pane in its place, and fill all of them."""
        self._placed = {}
        self.show()

    def _arranged(self, alerts: int) -> dict[str, Place]:
        """Return where everything stands on a screen of this size, with what there is to show."""
        columns, lines = self.size
        room = max(1, lines - 2 - alerts)
        needs = {name: len(_SHOWN[name](self.picture, self.view)) + 2 for name in PANES}
        here = str(self.here.id)
        found = places(columns, room, here, zoomed=self.zoomed, needs=needs)
        below = {name: replace(place, y=place.y + 1 + alerts) for name, place in found.items()}
        return below | {
            "header": Place(0, 0, columns, 1),
            "alerts": Place(0, 1, columns, alerts),
            "footer": Place(0, lines - 1, columns, 1),
        }

    def _put(self, name: str, place: Place | None) -> None:
        widget = self.query_one(f"#{name}")
        widget.display = place is not None
        if place is not None:
            widget.styles.offset = (place.x, place.y)
            widget.styles.width, widget.styles.height = place.width, place.height

    def _told(self) -> list[Line]:
        columns, lines = self.size
        return header.alerts(self.picture, self.view, columns, max(1, lines // 12))

    def show(self) -> None:
        """Show what the picture holds by now."""
        alerts = self._told()
        arranged = self._arranged(len(alerts))
        if arranged != self._placed:
            self._placed = arranged
            for name in ("header", "alerts", *PANES, "footer"):
                self._put(name, arranged.get(name))
        columns = self.size.width
        line = header.header(self.picture, self.view, columns, self.waiting)
        self.query_one("#header", Painted).paint([line])
        self.query_one("#alerts", Painted).paint(alerts)
        self.query_one("#footer", Painted).paint([header.footer(header.KEYS, columns)])
        for name in PANES:
            if name in arranged:
                self._fill(name, arranged[name])

    def _fill(self, name: str, place: Place) -> None:
        found = _ROWS[name](self.picture, self.view, place.width - 1)
        titles = self._titled(name, found, place.width)
        self.pane(name).fill(place, titles, found, self._empty(name))

    def _titled(self, name: str, found: list[Row], columns: int) -> tuple[str, str]:
        chosen = mission_list.selected(self.picture, self.view)
        aside = ""
        if name in ("sorties", "checkpoints") and chosen:
            first = f", the first {len(found)}" if len(found) == rows.MOST else ""
            aside = f"of {shown(chosen.title)}{first}"
        elif name == "mail":
            aside = rows.deliveries_told(mission_list.letters(self.picture, self.view), columns)
        total = len(_SHOWN[name](self.picture, self.view))
        count = f" {total}" if total and name not in ("events", "mail") else ""
        return f"{name.capitalize()}{count}", aside

    def _empty(self, name: str) -> str:
        if self.picture.status is None:
            waiting = "Waiting for fleetd. Start it with: fleetctl daemon start"
            return waiting if name == "missions" and self.picture.link == "waiting" else ""
        subject = {"sorties": self.picture.sorties_of, "checkpoints": self.picture.checkpoints_of}
        # Not asked yet is not the same as none.
        if name in subject and subject[name] != self.view.mission_id:
            return ""
        return _EMPTY[name]

    def action_next(self, by: int) -> None:
        """Give the keys to the next pane, or the one before."""
        seen = [name for name in PANES if self.zoomed or self.pane(name).display or self._small]
        if "checkpoints" in seen and (self._small or self.zoomed):
            seen.remove("checkpoints")
        at = seen.index(str(self.here.id)) if str(self.here.id) in seen else 0
        self.action_to(seen[(at + by) % len(seen)])

    @property
    def _small(self) -> bool:
        return len([name for name in PANES if self.pane(name).display]) < 5

    def action_to(self, name: str) -> None:
        """Give the keys to a pane, showing it first."""
        pane = self.pane(name)
        if not pane.display:
            if not (self._small or self.zoomed):
                return
            pane.display = True
        # At once: the next key may be on its way.
        self.set_focus(pane)

    def action_zoom(self) -> None:
        """Let the pane with the keys have the whole screen, or give it back."""
        self.zoomed = not self.zoomed
        self.place_all()

    def action_unzoom(self) -> None:
        """Show all panes again."""
        if self.zoomed:
            self.action_zoom()
