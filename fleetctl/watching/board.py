"""The screen with the panes: fills them from the picture, and knows which keys open what."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from . import banner, fleet, rows
from .cells import Line, shown
from .fleet import View
from .painted import Painted, Pane
from .picture import Picture
from .places import PANES, places
from .rows import Row

_ROWS: dict[str, Callable[[Picture, View, int], list[Row]]] = {
    "missions": rows.mission_rows,
    "sorties": rows.sortie_rows,
    "agents": rows.agent_rows,
    "locks": rows.lock_rows,
    "mail": rows.letter_rows,
    "checkpoints": rows.checkpoint_rows,
    "events": rows.event_rows,
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
        self._alerts = -1

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
        self.pane("missions").focus()
        self.place_all()

    def on_resize(self) -> None:
        """Put everything in its place again."""
        self.place_all()

    def on_descendant_focus(self) -> None:
        """On a small screen the pane with the keys takes another's place."""
        self.place_all()

    def place_all(self) -> None:
        """Put every pane in its place, and fill all of them."""
        columns, lines = self.size
        self._alerts = len(self._told())
        board = lines - 2 - self._alerts
        self._place("header", 0, 0, columns, 1)
        self._place("alerts", 0, 1, columns, self._alerts)
        self._place("footer", 0, lines - 1, columns, 1)
        found = places(columns, max(1, board), str(self.here.id), zoomed=self.zoomed)
        for name in PANES:
            place = found.get(name)
            self.pane(name).display = place is not None
            if place is not None:
                top = place.y + 1 + self._alerts
                self._place(name, place.x, top, place.width, place.height)
        self.show()

    def _place(self, name: str, x: int, y: int, columns: int, lines: int) -> None:
        styles = self.query_one(f"#{name}").styles
        styles.offset = (x, y)
        styles.width, styles.height = columns, lines

    def _told(self) -> list[Line]:
        columns, lines = self.size
        return banner.alerts(self.picture, self.view, columns, max(1, lines // 12))

    def show(self) -> None:
        """Show what the picture holds by now."""
        alerts = self._told()
        if len(alerts) != self._alerts:
            self.place_all()
            return
        columns = self.size.width
        line = banner.header(self.picture, self.view, columns, self.waiting)
        self.query_one("#header", Painted).paint([line])
        self.query_one("#alerts", Painted).paint(alerts)
        self.query_one("#footer", Painted).paint([banner.footer(banner.KEYS, columns)])
        for name in PANES:
            if self.pane(name).display:
                self._fill(name)

    def _fill(self, name: str) -> None:
        pane = self.pane(name)
        columns = int(pane.styles.width.value) if pane.styles.width else pane.size.width
        found = _ROWS[name](self.picture, self.view, columns - 1)
        pane.fill(*self._titled(name, found), found, self._empty(name))

    def _titled(self, name: str, found: list[Row]) -> tuple[str, str]:
        chosen = fleet.selected(self.picture, self.view)
        aside = ""
        if name in ("sorties", "checkpoints") and chosen:
            aside = f"of {shown(chosen.title)}"
        elif name == "mail":
            counts = fleet.deliveries([row.record for row in found])
            aside = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        count = f" {len(found)}" if found and name not in ("events", "mail") else ""
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
        pane.focus()

    def action_zoom(self) -> None:
        """Let the pane with the keys have the whole screen, or give it back."""
        self.zoomed = not self.zoomed
        self.place_all()

    def action_unzoom(self) -> None:
        """Show all panes again."""
        if self.zoomed:
            self.action_zoom()
