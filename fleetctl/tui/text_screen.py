"""A screen of text to read; must not know where the text comes from."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from . import header
from .cells import Line, fitted, shown, width, wrapped
from .widgets import Painted

# How the lines of pages begin that tell what differs.
_STYLES = {"  + ": "good", "  - ": "bad", "  ~ ": "warn", "## ": "title", "### ": "title"}
_HEADS = ("Error:", "Warning:")


class Page(Screen[None]):
    """Text with a title, a screen at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)"),
        ("down,j", "move(1)"),
        ("pageup,b,ctrl+b", "page(-1)"),
        ("pagedown,space,ctrl+f", "page(1)"),
        ("home,g", "end(-1)"),
        ("end,G", "end(1)"),
        ("escape,q,left,h,backspace", "back"),
        Binding("tab,shift+tab", "nothing", show=False),
    ]
    CSS = "Page { overflow: hidden; }"

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = [shown(line.expandtabs(4)) for line in text.split("\n")]
        self._top = 0

    def compose(self) -> ComposeResult:
        """Return title, text and keys."""
        yield Painted("title")
        yield Painted("text")
        yield Painted("footer")

    def on_mount(self) -> None:
        """Show the beginning."""
        self.show()

    def on_resize(self) -> None:
        """Break the lines anew."""
        self.show()

    def say(self, text: str) -> None:
        """Show another text, from its beginning."""
        self._text, self._top = [shown(line.expandtabs(4)) for line in text.split("\n")], 0
        self.show()

    def show(self) -> None:
        """Show the part of the text that there is room for."""
        columns, lines = self.size
        for name, y, height in (("title", 0, 1), ("text", 1, lines - 2), ("footer", lines - 1, 1)):
            styles = self.query_one(f"#{name}").styles
            styles.offset, styles.width, styles.height = (0, y), columns, max(1, height)
        body, room = self._body(columns), max(1, lines - 2)
        self._top = max(0, min(self._top, len(body) - room))
        below = max(0, len(body) - self._top - room)
        more = f" ↑{self._top}" * bool(self._top) + f" ↓{below}" * bool(below) + " ━"
        start: Line = [("━ ", "rule"), (f"{shown(self._title)} ", "title")]
        rest = columns - width(more)
        start = fitted([*start, ("━" * columns, "rule")], rest)
        # A rule that is cut ends with an ellipsis, which says nothing here.
        start = [(text.replace("━…", "━━"), style) for text, style in start]
        self.query_one("#title", Painted).paint([[*start, (more, "rule")]])
        self.query_one("#text", Painted).paint(body[self._top : self._top + room])
        self.query_one("#footer", Painted).paint([header.footer(header.PAGE_KEYS, columns)])

    def _body(self, columns: int) -> list[Line]:
        return [
            [(" ", ""), (part, _style(line))]
            for line in self._text
            for part in wrapped(line, min(columns, 120) - 2)
        ]

    def action_move(self, by: int) -> None:
        """Move the text by lines."""
        self._top += by
        self.show()

    def action_page(self, by: int) -> None:
        """Move the text by what is seen at once."""
        self.action_move(by * max(1, self.size.height - 3))

    def action_end(self, which: int) -> None:
        """Show the beginning or the end."""
        self._top = 0 if which < 0 else 1_000_000
        self.show()

    def action_back(self) -> None:
        """Go back to where this was opened."""
        self.dismiss()

    def action_nothing(self) -> None:
        """There is one pane only."""


def _style(line: str) -> str:
    found = next((style for start, style in _STYLES.items() if line.startswith(start)), "")
    if found:
        return found
    if line.startswith(_HEADS):
        return "warn"
    head = line.endswith(":") and not line.startswith(" ")
    return "strong" if head else ""
