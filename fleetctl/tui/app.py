"""The app of ``fleetctl watch``: connects the poller, the state and the screens."""

import asyncio
import signal
import time
from functools import partial
from threading import Thread
from typing import Any, ClassVar

from textual.app import App
from textual.binding import BindingType

from . import details, screens, visible
from .poller import Poller
from .rows import Row
from .screens import Board, Checkpoints, Page
from .state import UpdateQueue, WatchState
from .visible import View
from .widgets import Pane

# The screen is redrawn no more often than this, for the sake of slow connections.
FRAME_S = 0.2
TICK_S = 1.0


class WatchApp(App[None]):
    """The current state of the fleet at a glance."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q,ctrl+c", "quit"),
        ("question_mark,f1", "help"),
        ("c", "checkpoints"),
        ("p", "prompt"),
        ("d", "diff"),
        ("m", "mark"),
        ("r", "waiting"),
        ("f", "only"),
        ("space", "pause"),
    ]
    # The user's own colours, and no animations.
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    TextLines { background: ansi_default; color: ansi_default; }
    """

    def __init__(self) -> None:
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self.state, self.view = WatchState(), View()
        self.queue = UpdateQueue(partial(self.call_later, self._draw_soon), _tick)
        self.poller = Poller(self.queue, partial(self.call_later, self._fail))
        self.board = Board(self.state, self.view)
        self._drawn_soon = False

    def on_mount(self) -> None:
        """Start; a closed terminal or a signal to end makes the app exit in an orderly way."""
        self._set_clocks()
        self.push_screen(self.board)
        self.set_interval(TICK_S, self.renew)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.exit)
        self.poller.start()

    def on_unmount(self) -> None:
        """Stop the poller's threads, too."""
        self.poller.stop()

    def _draw_soon(self) -> None:
        """Schedule a redraw, which takes everything that arrives until then."""
        if not self._drawn_soon:
            self._drawn_soon = True
            self.set_timer(FRAME_S, self._take)

    def _take(self) -> None:
        self._drawn_soon = False
        if not self.view.paused:
            self.queue.take(self.state)
        self.renew()

    def _fail(self, error: BaseException) -> None:
        """Exit: a view without updates would show wrong data."""
        raise error

    def renew(self) -> None:
        """Show the current state; a last tick may come when the panes are already gone."""
        if not (self.is_running and self.board.is_mounted):
            return
        if not self.view.paused:
            self._set_clocks()
        self._choose()
        self.board.waiting = self.queue.waiting()
        if isinstance(self.screen, Board | Checkpoints):
            self.screen.show()

    def _set_clocks(self) -> None:
        self.view.now_ms, self.view.tick_ms = round(time.time() * 1000), _tick()

    def _choose(self) -> None:
        """Keep the chosen mission while it exists, else choose the first."""
        known = [seen.id for seen in visible.missions(self.state, self.view)]
        if self.view.mission_id not in known:
            self.view.mission_id = known[0] if known else None
        self.poller.look_at(self.view.mission_id)

    def on_pane_cursor_moved(self, message: Pane.CursorMoved) -> None:
        """Show the sorties of the mission that the cursor is on."""
        if message.pane.id == "missions" and message.pane.row:
            self.view.mission_id = message.pane.row.key
            self.renew()

    def on_pane_opened(self, message: Pane.Opened) -> None:
        """Open the row under the cursor."""
        row = message.row
        if message.pane.id == "checkpoints":
            self._ask(details.a_checkpoint(row.key))
        else:
            contents = details.known(str(message.pane.id), row.record, self.state, self.view)
            self.push_screen(Page(*contents))

    def _ask(self, question: details.Question) -> None:
        """Open a page that needs an answer from the daemon, without blocking the screen."""
        page = Page(question.title, "…")
        self.push_screen(page)

        def fill(answer: Any) -> None:
            if page.is_attached:
                page.show_text(question.page(answer))

        def ask() -> None:
            self.call_later(fill, question.answer())

        # Not a Textual worker: the app would wait for its thread on exit.
        Thread(target=ask, daemon=True).start()

    @property
    def _here(self) -> tuple[str, Row | None]:
        """The name of the focused pane, and its current row."""
        if isinstance(self.screen, Board | Checkpoints):
            return str(self.screen.here.id), self.screen.here.row
        return "", None

    def action_help(self) -> None:
        """Show the help for keys and signs."""
        if not isinstance(self.screen, Page):
            self.push_screen(Page("Help", screens.HELP))

    def action_checkpoints(self) -> None:
        """Open the checkpoints of the chosen mission."""
        if isinstance(self.screen, Board) and self.view.mission_id:
            self.push_screen(Checkpoints(self.state, self.view))

    def action_prompt(self) -> None:
        """Open a briefing: of an agent, from a checkpoint, or of the chosen mission."""
        name, row = self._here
        if name == "checkpoints" and row:
            self._ask(details.a_prompt(row.key, checkpoint_id=row.key))
        elif name == "agents" and row and row.record.mission_id:
            mission_id = row.record.mission_id
            self._ask(details.a_prompt(row.key, mission_id=mission_id, agent_id=row.key))
        elif name and self.view.mission_id:
            title = visible.title_of(self.state, self.view.mission_id)
            self._ask(details.a_prompt(title, mission_id=self.view.mission_id))

    def action_diff(self) -> None:
        """Open the difference between two checkpoints, or between the newest one and now."""
        name, row = self._here
        if name == "checkpoints" and row:
            self._open_difference(row.key)
        elif name and self.view.mission_id:
            found = visible.checkpoints(self.state, self.view)
            newest = next((each.id for each in found if not each.undo), None)
            if newest is None:
                self.push_screen(Page("Difference", "Error: There is no checkpoint yet."))
            else:
                self._ask(details.a_difference(newest, None))

    def _open_difference(self, chosen: str) -> None:
        """Compare a checkpoint with the marked one, else with the one before it, else with now."""
        order = [each.id for each in visible.checkpoints(self.state, self.view)]
        at, marked = order.index(chosen), self.view.marked
        if marked in order and marked != chosen:
            older, newer = max(at, order.index(marked)), min(at, order.index(marked))
            self._ask(details.a_difference(order[older], order[newer]))
        elif at + 1 < len(order):
            self._ask(details.a_difference(order[at + 1], chosen))
        else:
            self._ask(details.a_difference(chosen, None))

    def action_mark(self) -> None:
        """Mark a checkpoint to compare with, or take the mark away."""
        name, row = self._here
        if name == "checkpoints" and row:
            self.view.marked = None if self.view.marked == row.key else row.key
            self.renew()

    def action_waiting(self) -> None:
        """Open what waits for recovery."""
        if isinstance(self.screen, Board):
            self.push_screen(Page("Waiting for recovery", details.waiting(self.state, self.view)))

    def action_only(self) -> None:
        """Leave out what belongs to other missions, or show it again."""
        if isinstance(self.screen, Board):
            self.view.only = not self.view.only
            self.renew()

    def action_pause(self) -> None:
        """Freeze the screen, or continue."""
        if isinstance(self.screen, Board):
            self.view.paused = not self.view.paused
            self._take()


def _tick() -> int:
    return time.monotonic_ns() // 1_000_000
