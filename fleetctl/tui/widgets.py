"""Widgets: painted lines, and a pane with a cursor.

Colours are those of the user's terminal, light or dark. No text is read as markup.
"""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from .cells import Line, cut, fitted, width
from .layout import PaneArea
from .rows import Row, position_of

STYLES = {
    "": Style(),
    "dim": Style(color="bright_black"),
    "strong": Style(bold=True),
    "good": Style(color="green"),
    "warn": Style(color="yellow"),
    "bad": Style(color="red"),
    "accent": Style(color="cyan"),
    "key": Style(color="cyan", bold=True),
    "alert": Style(color="black", bgcolor="yellow", bold=True),
    "alarm": Style(color="bright_white", bgcolor="red", bold=True),
    "title": Style(color="cyan", bold=True),
    "rule": Style(color="cyan"),
    "cursor": Style(reverse=True),
}


class TextLines(Widget):
    """Lines of text; an update redraws only the changed ones."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._lines: list[Line] = []

    def show_lines(self, lines: list[Line]) -> None:
        """Show these lines from now on."""
        before, self._lines = self._lines, lines
        changed = [
            Region(0, y, self.size.width, 1)
            for y in range(max(len(before), len(lines)))
            if _at(before, y) != _at(lines, y)
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Return a line as the terminal gets it."""
        line = fitted(_at(self._lines, y), self.size.width)
        return Strip([Segment(text, STYLES[style]) for text, style in line], self.size.width)


def _at(lines: list[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else []


def scrolled(above: int, below: int) -> str:
    """Return how many lines are above and below the visible ones."""
    return f" ↑{above}" * bool(above) + f" ↓{below}" * bool(below)


class Pane(TextLines, can_focus=True):
    """A titled list with a cursor, which stays on its row when the list changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)"),
        ("down,j", "move(1)"),
        ("pageup,ctrl+b", "page(-1)"),
        ("pagedown,ctrl+f", "page(1)"),
        ("home,g", "end(-1)"),
        ("end,G", "end(1)"),
        ("enter", "open"),
    ]

    class CursorMoved(Message):
        """The cursor is on another row, or on none."""

        def __init__(self, pane: "Pane") -> None:
            super().__init__()
            self.pane = pane

    class Opened(Message):
        """The user wants to open the row under the cursor."""

        def __init__(self, pane: "Pane", row: Row) -> None:
            super().__init__()
            self.pane = pane
            self.row = row

    def __init__(self, name: str, *, keeps_mark: bool = False, follows: bool = False) -> None:
        super().__init__(name)
        self._rows: list[Row] = []
        self._cursor = self._top = 0
        self._columns = self._height = 0
        self._title = self._aside = self._empty = ""
        # Show the cursor even while another pane has the focus.
        self._keeps_mark = keeps_mark
        self._follows = follows

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return self._rows[self._cursor] if self._cursor < len(self._rows) else None

    def fill(self, place: PaneArea, titles: tuple[str, str], rows: list[Row], empty: str) -> None:
        """Show other rows, in a place that the pane may get a moment later.

        ``titles`` are the title and the text beside it; ``empty`` is shown if there are no rows.
        """
        self._columns, self._height = place.width, place.height
        (self._title, self._aside), self._empty = titles, empty
        before = self.row
        key = before.key if before else None
        self._cursor = position_of(rows, key, self._cursor, follows=self._follows)
        self._rows = rows
        self._draw()
        self._post_cursor_moved(before)

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self._to(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by screens."""
        self._to(self._cursor + by * max(1, self._height - 2))

    def action_end(self, which: int) -> None:
        """Move the cursor to the first or the last row."""
        self._to(0 if which < 0 else len(self._rows) - 1)

    def action_open(self) -> None:
        """Ask to open the row under the cursor."""
        if (row := self.row) is not None:
            self.post_message(self.Opened(self, row))

    def on_focus(self) -> None:
        """Show whether this pane has the focus."""
        self._draw()

    on_blur = on_focus

    def _to(self, position: int) -> None:
        before = self.row
        self._cursor = max(0, min(position, len(self._rows) - 1))
        self._draw()
        self._post_cursor_moved(before)

    def _post_cursor_moved(self, before: Row | None) -> None:
        after = self.row
        if (before.key if before else None) != (after.key if after else None):
            self.post_message(self.CursorMoved(self))

    def _draw(self) -> None:
        room = max(0, self._height - 1)
        last_top = max(0, len(self._rows) - room)
        self._top = max(min(self._top, self._cursor, last_top), self._cursor - room + 1, 0)
        lines = [self._heading(room)]
        seen = range(self._top, min(self._top + room, len(self._rows)))
        lines += [self._marked(at) for at in seen]
        if not self._rows and room:
            lines.append([(" ", ""), (self._empty, "dim")])
        self.show_lines(lines)

    def _heading(self, room: int) -> Line:
        """Return the title in a rule, with the number of rows above and below the visible ones."""
        above, below = self._top, max(0, len(self._rows) - self._top - room)
        more = scrolled(above, below)
        rule = "━" if self.has_focus else "─"
        end = f"{more} {rule}" if more else rule
        title = cut(f"{rule} {self._title} ", self._columns - width(end))
        room_aside = max(0, self._columns - width(title) - width(end) - 2)
        aside = cut(self._aside, room_aside)
        aside = f"{aside} " if aside else ""
        fill = rule * (self._columns - width(title + aside + end))
        ruled = "rule" if self.has_focus else "dim"
        name = "title" if self.has_focus else "strong"
        return [(title[:1], ruled), (title[1:], name), (aside, "dim"), (fill + end, ruled)]

    def _marked(self, at: int) -> Line:
        line = self._rows[at].line
        if at == self._cursor and self.has_focus:
            return fitted([(" ", "cursor"), *((text, "cursor") for text, _ in line)], self._columns)
        mark = "▸" if at == self._cursor and self._keeps_mark else " "
        return [(mark, "key"), *line]
