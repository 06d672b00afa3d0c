"""The screen with the checkpoints of one mission; must not know what opens them."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from . import header, mission_list, rows
from .cells import shown
from .layout import Place
from .mission_list import View
from .state import Picture
from .widgets import Painted, Pane


class Checkpoints(Screen[None]):
    """A mission's checkpoints, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,left,h,backspace,c", "back"),
        Binding("tab,shift+tab", "nothing", show=False),
    ]
    CSS = "Checkpoints { overflow: hidden; }"

    def __init__(self, picture: Picture, view: View) -> None:
        super().__init__()
        self.picture = picture
        self.view = view

    def compose(self) -> ComposeResult:
        """Return the list and the keys."""
        yield Pane("checkpoints")
        yield Painted("footer")

    @property
    def here(self) -> Pane:
        """The pane that has the keys."""
        return self.query_one("#checkpoints", Pane)

    def on_mount(self) -> None:
        """Begin with the newest."""
        self.set_focus(self.here)
        self.show()

    def on_resize(self) -> None:
        """Put everything in its place again."""
        self.show()

    def show(self) -> None:
        """Show what the picture holds by now."""
        columns, lines = self.size
        for name, y, height in (("checkpoints", 0, lines - 1), ("footer", lines - 1, 1)):
            styles = self.query_one(f"#{name}").styles
            styles.offset, styles.width, styles.height = (0, y), columns, max(1, height)
        title = shown(mission_list.title_of(self.picture, self.view.mission_id))
        found = rows.checkpoint_rows(self.picture, self.view, columns - 1)
        empty = "No checkpoints yet. fleetctl checkpoint takes one."
        titles = (f"Checkpoints {len(found)}", f"of {title}")
        self.here.fill(Place(0, 0, columns, max(1, lines - 1)), titles, found, empty)
        self.query_one("#footer", Painted).paint([header.footer(header.LIST_KEYS, columns)])

    def action_back(self) -> None:
        """Go back to the panes."""
        self.view.marked = None
        self.dismiss()

    def action_nothing(self) -> None:
        """There is one pane only."""
