"""What the keys do, on screens without a terminal and without a daemon."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from fleetctl.tui.app import WatchApp
from fleetctl.tui.poller import Poller
from fleetctl.tui.screens import Board, Checkpoints, Page
from tests.tui.records import agent, checkpoint, event, letter, line, lock, mission, sortie, status

Steps = Callable[[WatchApp, Pilot[None]], Awaitable[None]]


@pytest.fixture(autouse=True)
def _nobody_listens(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages find no daemon, and nothing feed the screens but the test."""
    monkeypatch.setattr(Poller, "start", lambda feed: None)


def played(steps: Steps, *, size: tuple[int, int] = (80, 24)) -> None:
    """Run the screens with a small fleet, and let keys be pressed."""

    async def play() -> None:
        app = WatchApp()
        async with app.run_test(size=size) as pilot:
            fill(app)
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(play())


def fill(app: WatchApp) -> None:
    """Put a small fleet into the state, as if a daemon had told it."""
    state = app.state
    state.connected("epoch", 0)
    state.take("missions", [mission(1, "Login"), mission(2, "[/] Search")], None, 0)
    state.take("status", status(line(1, "Login"), line(2, "[/] Search")), None, 0)
    state.take("agents", [agent("alice"), agent("bob", mission_id="msn-00000002")], None, 0)
    state.take("locks", [lock("src/a.py", 10**12)], None, 0)
    body = "The [bold]body[/]\nof the letter"
    state.take("mail", [letter(1, "queued", body=body, priority="medium")], None, 0)
    state.add_events([event(seq) for seq in range(1, 40)])
    known(app, "msn-00000001")
    app.renew()


def known(app: WatchApp, mission_id: str) -> None:
    """Let the sorties and checkpoints of a mission be known."""
    pieces = [sortie(number, title=f"Piece {number} of {mission_id}") for number in range(1, 9)]
    app.state.take("sorties", pieces, mission_id, 0)
    points = [checkpoint(id=f"chk-{n:08x}") for n in range(1, 4)]
    app.state.take("checkpoints", points, mission_id, 0)


def text(app: WatchApp) -> str:
    """Return what the screen shows."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def test_all_that_is_known_is_on_the_first_screen() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        shown = text(app)
        for told in ("● connected", "Login", "[/] Search", "Piece 1 of msn-00000001", "alice"):
            assert told in shown
        for told in ("src/a.py", "Letter 1", 'began "Piece 39"', "? help"):
            assert told in shown

    played(steps)


def test_arrows_and_letters_move_and_the_sorties_follow() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        assert app.view.mission_id == "msn-00000001"
        await pilot.press("j")
        assert app.view.mission_id == "msn-00000002"
        assert "Piece 1" not in text(app).split("Agents")[0]
        known(app, "msn-00000002")
        app.renew()
        await pilot.pause()
        assert "Piece 1 of msn-00000002" in text(app)
        await pilot.press("up")
        assert app.view.mission_id == "msn-00000001"
        await pilot.press("end")
        assert app.view.mission_id == "msn-00000002"

    played(steps)


def test_tab_goes_round_and_numbers_go_straight() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        seen = []
        for _ in range(6):
            await pilot.press("tab")
            seen.append(app.board.here.id)
        assert seen == ["sorties", "agents", "locks", "mail", "events", "missions"]
        await pilot.press("shift+tab")
        assert app.board.here.id == "events"
        await pilot.press("4")
        assert app.board.here.id == "locks"
        await pilot.press("6")
        assert app.board.here.id == "locks", "there is no room for checkpoints"

    played(steps)


@pytest.mark.parametrize("size", [(60, 20), (40, 12), (200, 50), (24, 6), (10, 3)])
def test_every_size_shows_the_pane_that_has_the_keys(size: tuple[int, int]) -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        for _ in range(8):
            await pilot.press("tab")
            await pilot.pause()
            assert app.board.here.display
            assert app.board.here.region.height >= 1
        assert len(text(app).split("\n")) == size[1]

    played(steps, size=size)


@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
def test_a_slash_searches_the_agents_and_escape_shows_all_again(size: tuple[int, int]) -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"bq")
        assert app.view.search == "bq"
        assert "Nobody works" in text(app)
        await pilot.press("backspace", "o")
        assert len(app.board.pane("agents")._rows) == 1
        await pilot.press("enter")
        assert (app.board.here.id, app.view.search) == ("agents", "bo")
        assert " /bo " in text(app)
        await pilot.press("escape")
        assert app.view.search == ""
        assert len(app.board.pane("agents")._rows) == 2
        await pilot.press("slash", "x", "escape")
        assert app.view.search == ""
        assert app.board.here.id == "agents"

    played(steps, size=size)


def test_one_pane_may_have_the_whole_screen() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        await pilot.press("7", "z")
        assert "Piece 22" in text(app)
        assert "Login" not in text(app)
        await pilot.press("escape")
        assert "Login" in text(app)

    played(steps)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("1", "msn-00000001"),
        ("2", "half of it"),
        ("3", "Last seen"),
        ("4", "Runs for"),
        ("5", "The [bold]body[/]"),
        ("7", "sortie_started"),
    ],
)
def test_enter_opens_what_is_known_and_escape_leads_back(keys: str, told: str) -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        for name in ("description", "result", "files", "priority", "started_at", "completed_at"):
            for record in app.state.sorties:
                record.setdefault(name, None)
        for record in app.state.agents:
            record |= dict.fromkeys(("session_id", "pid", "cwd", "registered_at", "note"))
        for record in app.state.locks:
            record |= dict.fromkeys(("normalized_path", "purpose", "fencing_token"))
        for record in app.state.messages:
            for delivery in record.deliveries:
                delivery |= dict.fromkeys(("acked_at", "delivered_at"))
        await pilot.press(keys, "enter")
        assert isinstance(app.screen, Page)
        assert told in text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, Board)

    played(steps)


def test_checkpoints_are_listed_marked_and_left() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        await pilot.press("c")
        assert isinstance(app.screen, Checkpoints)
        assert "Before the storm" in text(app)
        await pilot.press("down", "m")
        assert app.view.marked == "chk-00000002"
        assert "◆ chk-00000002" in text(app)
        await pilot.press("m", "q")
        assert app.view.marked is None
        assert isinstance(app.screen, Board)

    played(steps)


@pytest.mark.parametrize(
    ("keys", "title"),
    [
        ("p", "Briefing of Login"),
        ("3 p", "Briefing of alice"),
        ("d", "From chk-00000001 to now"),
        ("c enter", "Checkpoint chk-00000001"),
        ("c p", "Briefing of chk-00000001"),
        ("c d", "From chk-00000002 to chk-00000001"),
        ("c end d", "From chk-00000003 to now"),
        ("c m end d", "From chk-00000003 to chk-00000001"),
        ("c end m home d", "From chk-00000003 to chk-00000001"),
    ],
)
def test_a_page_that_the_daemon_is_asked_for_says_when_it_is_not_there(
    keys: str, title: str
) -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        await pilot.press(*keys.split())
        assert title in text(app)
        while "Error: fleetd is not running." not in text(app):
            await pilot.pause(0.01)
        assert "Hint: " in text(app)

    played(steps)


def test_help_tells_every_key() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        await pilot.press("?")
        shown = text(app)
        for key in ("Tab", "Enter", "Space", "Ctrl+C"):
            assert key in shown
        await pilot.press("end", "home", "pagedown", "q")
        assert isinstance(app.screen, Board)

    played(steps, size=(100, 50))


def test_a_picture_that_is_held_still_says_what_it_misses() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        await pilot.press("space")
        for seq in range(50, 53):
            app.queue.event(event(seq))
        app.renew()
        await pilot.pause()
        assert "PAUSED, 3 events since" in text(app)
        assert "Piece 52" not in text(app)
        await pilot.press("space")
        await pilot.pause()
        assert "Piece 52" in text(app)
        assert "PAUSED" not in text(app)

    played(steps)


def test_one_mission_only() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        assert "bob" in text(app)
        await pilot.press("f")
        assert "bob" not in text(app)
        assert "one mission only" in text(app)

    played(steps)


def test_what_is_drawn_is_only_what_changed() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        drawn: list[Any] = []
        pane = app.board.pane("missions")
        pane.refresh = lambda *regions, **_: drawn.extend(regions) or pane  # type: ignore[method-assign]
        app.renew()
        assert drawn == []
        app.state.take("missions", [mission(1, "Logout"), mission(2, "[/] Search")], None, 0)
        lines = (line(1, "Logout"), line(2, "[/] Search"))
        app.state.take("status", status(*lines), None, 0)
        app.view.tick_ms = 0
        app.board.show()
        assert {region.y for region in drawn} <= {1, 2}

    played(steps)


def test_a_defect_in_a_thread_ends_the_screens() -> None:
    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        app._fail(RuntimeError("a defect"))
        await pilot.pause()

    with pytest.raises(RuntimeError, match="a defect"):
        played(steps)
