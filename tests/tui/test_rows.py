"""What the panes and banners say, in the columns they have; nothing told is obeyed."""

from typing import Any

import pytest

from fleetctl.output import times
from fleetctl.tui import cells, details, rows, screens, visible
from fleetctl.tui.cells import Line, bar, cut, cut_front, fitted, pad, plain, shown, width, wrapped
from fleetctl.tui.layout import PANES, places
from fleetctl.tui.rows import Row, position_of
from fleetctl.tui.state import WatchState
from tests.tui.records import (
    MINUTE,
    NOON,
    agent,
    at,
    candidate,
    checkpoint,
    event,
    letter,
    line,
    lock,
    mission,
    record,
    shown_at,
    sortie,
    state_of,
    status,
)

HOSTILE = "[bold]x[/] [/] \x1b]0;owned\x07\x1b[2J\r\n\u202e "
HOSTILE += "日本語 👩\u200d👩\u200d👧 🇩🇪 👍🏽 e\u0301 ❤\ufe0f"
WIDTHS = (8, 23, 40, 59, 60, 79, 80, 110, 200)


def everything(text: str) -> object:
    """Return a state in which every text that somebody gave is this one."""
    known = mission(1, text, project_dir=text)
    told = status(line(1, text), candidates=(candidate(1, text),))
    state = state_of(known, told=told)
    state.take("sorties", [sortie(title=text, progress_notes=text)], "msn-00000001", 0)
    state.take("agents", [agent("alice", harness=text)], None, 0)
    state.take("locks", [lock(text, held_by="bob")], None, 0)
    state.take("mail", [letter(1, "queued", subject=text)], None, 0)
    state.take("checkpoints", [checkpoint(trigger_details=text)], "msn-00000001", 0)
    state.add_events([event(1, data={"title": text, "reason": text}), event(2, "a_type", data={})])
    return state


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("text", [HOSTILE, "", "plain", "日本語" * 60])
def test_every_line_takes_exactly_its_columns_whatever_it_tells(text: str, columns: int) -> None:
    state, view = everything(text), shown_at()
    lines: list[Line] = [
        row.line for name in rows.KINDS for row in rows.rows_of(name, state, view, columns)
    ]
    lines += [screens.header(state, view, columns), screens.footer(screens.KEYS, columns)]
    lines += screens.alerts(state, view, columns, 2)
    assert len(lines) == 11
    for each in lines:
        told = plain(each)
        assert width(told) == columns, told
        assert told.isprintable(), told


def test_markup_is_shown_as_it_is() -> None:
    (row,) = rows.rows_of("missions", everything("[bold]x[/] [/]"), shown_at(), 80)
    assert "[bold]x[/] [/]" in plain(row.line)


def test_what_widths_are_in_dispute_about_is_shown_by_its_parts() -> None:
    assert shown("👩\u200d👧 🇩🇪 👍🏽 ❤\ufe0f") == "👩👧 DE 👍 ❤"
    assert shown("a\x1b[31mb\u202ec\nd") == "a[31mbc d"


def test_text_is_cut_and_padded_by_columns() -> None:
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert pad("日本語", 4) == "日… "
    assert pad("ab", 4, right=True) == "  ab"
    assert cut_front("src/auth/jwt.py", 9) == "…h/jwt.py"
    assert cut("abc", 0) == cut_front("abc", 0) == ""
    assert plain(fitted([("ab", ""), ("日本", "")], 5)) == "ab日…"


def test_long_lines_go_on_below_their_text() -> None:
    assert wrapped("  Tab   the next pane", 80) == ["  Tab   the next pane"]
    assert wrapped("  Tab   the next pane", 16) == ["  Tab   the next", "        pane"]
    assert wrapped("- one two three", 9) == ["- one two", "  three"]
    assert wrapped("x" * 20, 8) == ["x" * 8, "x" * 8, "x" * 4]
    assert wrapped("", 8) == [""]


def test_a_mission_that_was_closed_with_its_session_is_not_told_as_called_off() -> None:
    over = {"status": "cancelled", "progress_percent": 50}
    state = state_of(
        mission(3, closed_reason="session", **over),
        mission(2, closed_reason="merged", merged_into="msn-00000003", **over),
        mission(1, closed_reason="person", **over),
        told=status(),
    )
    states = ("completed", "completed", "in_progress", "pending")
    state.take("sorties", [sortie(n, status=s) for n, s in enumerate(states)], "msn-00000003", 0)
    shown = [plain(row.line) for row in rows.rows_of("missions", state, shown_at(), 100)]
    assert [text.split()[-1] for text in shown] == ["closed", "merged", "cancelled"]
    pages = [
        details.mission(seen, state, shown_at()) for seen in visible.missions(state, shown_at())
    ]
    told = ("closed with its session, 2 of 4 sorties open; resumes with it",)
    told += ("merged into msn-00000003", "cancelled")
    for page, standing in zip(pages, told, strict=True):
        assert f"Status:    {standing}\n" in page


def test_an_agent_that_waits_for_a_permission_says_so() -> None:
    waits = agent("alice", status="waiting", needs="permission", needs_since=at(NOON - 3 * MINUTE))
    waits |= {"session_id": "s-1", "pid": None, "cwd": "/work", "registered_at": at(), "note": None}
    state = state_of(mission(1), told=status(line(1)))
    state.take("agents", [waits, agent("bob", status="waiting")], None, 0)
    alice, bob = rows.rows_of("agents", state, shown_at(), 100)
    assert " permission " in plain(alice.line)
    assert " waiting " in plain(bob.line)
    page = details.agent(waits, state, shown_at())
    assert "Status:      waiting: permission\nWaits since: 3 min ago" in page


def told_of(text: str | None = None, **fields: Any) -> Any:
    """Return what ``attention.list`` tells of an agent."""
    told = {
        "agent_id": "alice",
        "needs": "none",
        "text": text,
        "reset_at": None,
        "cwd": "/home/shop/src",
        "worktree": "/home/shop",
        "branch": "main",
        "mission": "Login",
        "step": {"number": 2, "total": 5, "title": "Write the form"},
        "doing": {"what": "edit", "text": "/home/shop/src/form.py", "since": at(), "ended": True},
        "running": [],
        "running_more": 0,
    }
    return record(**told | fields)


def test_an_agent_has_its_project_and_what_it_does_where_there_is_room() -> None:
    state = state_of(mission(1), told=status(line(1)))
    state.take("agents", [agent("alice", state=told_of()), agent("bob", state=None)], None, 0)
    for columns in (60, 80, 100, 200):
        alice, bob = (plain(row.line) for row in rows.rows_of("agents", state, shown_at(), columns))
        assert width(alice) == width(bob) == columns
        assert "shop" in alice
        assert "2/5 Wri" in alice or columns < 80
        assert "Mission 1" in bob or columns < 80
    assert "shop (main)" in alice
    assert "2/5 Write the form · form.py" in alice


def test_who_has_finished_stands_below_those_at_work() -> None:
    state = state_of(mission(1), told=status(line(1)))
    over = agent("alice", status="waiting", needs="finished", role="dispatch")
    asks = agent("bob", status="waiting", needs="question")
    state.take("agents", [over, asks, agent("carol")], None, 0)
    shown = rows.rows_of("agents", state, shown_at(), 80)
    assert [row.key for row in shown] == ["bob", "carol", "alice"]


def test_who_needs_a_person_most_stands_on_top() -> None:
    state = state_of(mission(1), told=status(line(1)))
    needs = {"a": None, "b": "background", "c": "limit", "d": "question", "e": "permission"}
    state.take("agents", [agent(name, needs=need) for name, need in needs.items()], None, 0)
    shown = rows.rows_of("agents", state, shown_at(), 80)
    assert [row.key for row in shown] == ["e", "d", "c", "a", "b"]


def test_in_half_of_a_usual_terminal_sessions_have_their_whole_names() -> None:
    names = ("claude-5f3a01aa", "claude-5f3a01ab")
    told = [agent(name, harness="claude", needs="permission") for name in names]
    state = state_of(mission(1), told=status(line(1)))
    state.take("agents", told, None, 0)
    for row in rows.rows_of("agents", state, shown_at(NOON + 31 * MINUTE), 39):
        assert f"{row.key}  " in plain(row.line)
        assert "permission " in plain(row.line)
    state.take("agents", [*told, agent("alice", harness="claude")], None, 0)
    assert " claude " in plain(rows.rows_of("agents", state, shown_at(), 39)[0].line)


@pytest.mark.parametrize("columns", [38, 60, 80, 120])
@pytest.mark.parametrize("other", ["claude-5f3a01ab", "alice"])
def test_a_long_name_is_whole(columns: int, other: str) -> None:
    name = "claude-aaaa1111-bbbb2222"
    told = [agent(each, harness="claude", needs="permission") for each in (name, other)]
    state = state_of(mission(1), told=status(line(1)))
    state.take("agents", told, None, 0)
    shown = [plain(each.line) for each in rows.rows_of("agents", state, shown_at(), columns)]
    assert all(width(each) == columns for each in shown)
    assert sorted(text.split()[1] for text in shown) == sorted((name, other))
    assert all("permission" in text for text in shown)


def test_what_runs_for_an_agent_is_on_its_page() -> None:
    work = {"id": "b1", "kind": "shell", "told": "npm run serve", "seen_at": at(NOON - MINUTE)}
    known = agent("alice", state=told_of(running=[work], running_more=3), needs_text=None)
    known |= {"session_id": "s-1", "pid": None, "cwd": "/w", "registered_at": at(), "note": None}
    known |= {"needs_since": None}
    page = details.agent(known, state_of(mission(1), told=status(line(1))), shown_at())
    assert "Running:\n  shell b1: npm run serve (last seen 1 min ago)\n  and 3 more" in page
    assert "Last action: 2/5 Write the form · form.py · 4 running" in page


def test_a_page_tells_what_goes_on_apart_from_what_is_waited_for() -> None:
    doing = {"what": "command", "text": "make", "since": at(), "ended": False}
    told = told_of("Bash: make", doing=doing, step=None)
    known = agent("alice", state=told, status="waiting", needs="permission")
    known |= {"needs_text": "Bash: make", "needs_since": at(NOON - MINUTE), "session_id": "s-1"}
    known |= {"pid": None, "cwd": "/w", "registered_at": at(), "note": None}
    state = state_of(mission(1), told=status(line(1)))
    page = " ".join(details.agent(known, state, shown_at()).split())
    assert "Waits for: Bash: make" in page
    assert "Doing now: make" in page
    over = known | {"status": "lost", "needs": "lost", "needs_text": "process 7 is gone"}
    page = " ".join(details.agent(record(**over), state, shown_at()).split())
    assert "Status: lost since 1 min ago" in page
    assert "(process 7 is gone)" in page
    assert "Last action: make" in page
    assert "Waits" not in page


def test_a_mission_says_how_far_it_is_and_how_silent() -> None:
    told = status(line(1, "Login", silence_ms=4 * MINUTE))
    (row,) = rows.rows_of("missions", state_of(mission(1, "Login"), told=told), shown_at(), 79)
    text = plain(row.line)
    assert text.startswith("● Login ")
    # Without a word of the daemon it is not silent: its agents may wait for their user.
    assert text.rstrip().endswith(" 50%     2/4  4 min ago")
    assert text.count("━") == text.count("─") + 1 == 7
    told = status(line(1, "Login", silence_ms=7 * MINUTE), candidates=(candidate(1, "Login"),))
    (row,) = rows.rows_of("missions", state_of(mission(1, "Login"), told=told), shown_at(), 79)
    assert plain(row.line).rstrip().endswith("2/4  silent 7 min")


@pytest.mark.parametrize(
    ("percent", "full"), [(0, 0), (1, 1), (50, 5), (99, 9), (100, 10), (140, 10)]
)
def test_a_bar_is_full_when_all_is_done_and_begun_when_something_is(
    percent: int, full: int
) -> None:
    assert plain(bar(percent, 10, "good")) == "━" * full + "─" * (10 - full)


def test_a_sortie_says_why_it_is_blocked() -> None:
    state = state_of()
    blocked = sortie(status="blocked", blocked_reason="no API")
    state.take("sorties", [blocked], "msn-00000001", 0)
    (row,) = rows.rows_of("sorties", state, shown_at(), 79)
    assert plain(row.line).startswith("■ Piece 1: no API ")


def test_a_lock_says_who_and_for_how_long_yet() -> None:
    state = state_of()
    state.take("locks", [lock("src/a.py", 4 * MINUTE + 5)], None, 0)
    (row,) = rows.rows_of("locks", state, shown_at(), 40)
    assert plain(row.line).split() == ["src/a.py", "alice", "4", "min"]


def test_events_are_sentences_newest_first_and_echoes_are_left_out() -> None:
    state = state_of(mission(1, "Login"))
    state.add_events([event(1), event(2, "checkpoint_created"), event(3, "sortie_completed")])
    told = [plain(row.line).split("  ", 1)[1].rstrip() for row in
            rows.rows_of("events", state, shown_at(), 60)]  # fmt: skip
    assert told == ['alice completed "Piece 3"', 'alice began "Piece 1"']


def test_of_thousands_of_sorties_the_first_are_gone_through() -> None:
    state = state_of()
    state.take("sorties", [sortie(n) for n in range(3_000)], "msn-00000001", 0)
    assert len(rows.rows_of("sorties", state, shown_at(), 79)) == rows.MOST


def test_help_fits_the_usual_terminal() -> None:
    assert all(width(line) <= 78 for line in screens.HELP.split("\n"))


def test_the_cursor_stays_with_what_it_is_on() -> None:
    before = [Row(key, list) for key in "abc"]
    assert position_of([Row(key, list) for key in "xabc"], "b", 1) == 2
    assert position_of([Row(key, list) for key in "xabc"], "a", 0) == 1
    assert position_of([Row(key, list) for key in "xabc"], "a", 0, follows=True) == 0
    assert position_of(before[:2], "c", 2) == 1
    assert position_of([], "c", 2) == 0
    assert position_of(before, None, 0) == 0


def test_one_that_waits_is_told_whole_and_many_are_counted() -> None:
    view = shown_at(tick_ms=MINUTE)
    one = state_of(told=status(candidates=(candidate(1, "Login"),)))
    (told,) = screens.alerts(one, view, 80, 2)
    assert "WAITS FOR RECOVERY  Login" in plain(told)
    assert "silent 7 min" in plain(told)
    assert "chk-11111111" in plain(screens.alerts(one, view, 120, 2)[0])
    many = state_of(told=status(candidates=tuple(candidate(n, f"M{n}") for n in range(5))))
    (told,) = screens.alerts(many, view, 80, 2)
    assert "5 MISSIONS WAIT FOR RECOVERY: M0, M1, M2, M3, M4" in plain(told)


def test_one_whose_agent_was_lost_waits_as_agent_lost() -> None:
    left = {"reason": "agent_lost", "lost_agents": ["bob"]}
    alone = state_of(told=status(candidates=(candidate(1, "Login", **left),)))
    (told,) = screens.alerts(alone, shown_at(), 80, 2)
    assert "WAITS FOR RECOVERY  Login" in plain(told)
    assert "agent_lost" in plain(told)
    page = details.waiting(alone, shown_at())
    assert "\n  agent_lost: bob\n" in page
    command = "fleetctl resume --mission msn-00000001 --agent NEW --take-over-from bob"
    assert f"To restore the work:\n  {command}\n" in f"{page}\n"

    others = state_of(told=status(candidates=(candidate(1, **left, agent_id="bob"),)))
    page = details.waiting(others, shown_at())
    assert "\n  only the part of bob waits\n" in page
    assert f"{page}\n".endswith("resume --mission msn-00000001 --agent bob --scope agent\n")


def test_the_daemon_is_connected_away_since_and_back() -> None:
    state = state_of(told=status())
    assert "● connected" in plain(screens.header(state, shown_at(), 80))
    state.away("gone", 1_000)
    view = shown_at(NOON, 13_000)
    assert "away for 12 s" in plain(screens.header(state, view, 80))
    at = times.clock(NOON - 12_000, seconds=True)
    assert f"went away at {at}" in plain(screens.alerts(state, view, 80, 2)[0])
    state.connected("epoch-1", 13_000)
    assert "back after 12 s" in plain(screens.header(state, shown_at(NOON, 14_000), 80))
    assert "connected" in plain(screens.header(state, shown_at(NOON, 60_000), 80))


def test_the_counts_say_what_they_count() -> None:
    state = state_of(mission(1), told=status(line(1)))
    state.take("agents", [agent("ada"), agent("bob")], None, 0)
    told = plain(screens.header(state, shown_at(), 80))
    assert "1 in progress · 2 agents · 1 lock · 2 undelivered" in told
    state.take("agents", [agent("ada"), agent("bob", status="lost")], None, 0)
    assert "1 of 2 agents" in plain(screens.header(state, shown_at(), 80))


def test_where_machines_share_the_store_they_are_counted() -> None:
    shared = (record(name="build-1", status="here"), record(name="laptop", status="lost"))
    state = state_of(told=status(machines=shared))
    assert "0 in progress · 1 of 2 machines · " in plain(screens.header(state, shown_at(), 80))


def test_what_is_wrong_with_a_daemon_that_cannot_be_reached_is_said() -> None:
    state = WatchState()
    state.away("The socket belongs to \x1b[2Janother user.", 0)
    view = shown_at(NOON, 3_000)
    assert "cannot be reached; waiting for it (3 s)" in plain(screens.header(state, view, 80))
    (told,) = screens.alerts(state, view, 80, 2)
    assert "The socket belongs to [2Janother user." in plain(told)
    state.away("", 4_000)
    assert "not running; waiting" in plain(screens.header(state, view, 80))
    assert screens.alerts(state, view, 80, 2) == []


def test_keys_are_left_out_where_there_is_no_room_but_never_the_way_out() -> None:
    for columns in WIDTHS[1:]:
        told = plain(screens.footer(screens.KEYS, columns))
        assert "? help" in told
        assert "q quit" in told
    assert all(key in plain(screens.footer(screens.KEYS, 132)) for key, _, _ in screens.KEYS)


@pytest.mark.parametrize("columns", [20, 60, 71, 72, 80, 139, 140, 200, 320])
@pytest.mark.parametrize("lines", [3, 9, 17, 21, 31, 32, 47, 90])
@pytest.mark.parametrize("zoomed", [False, True])
def test_panes_have_their_places_and_none_covers_another(
    columns: int, lines: int, zoomed: bool
) -> None:
    for focused in PANES:
        found = places(columns, lines, focused, zoomed=zoomed)
        assert focused in found or focused == "checkpoints"
        cells = [
            (x, y)
            for place in found.values()
            for y in range(place.y, place.y + place.height)
            for x in range(place.x, place.x + place.width)
        ]
        assert len(cells) == len(set(cells))
        assert all(0 <= x < columns and 0 <= y < lines for x, y in cells)
        assert all(place.height >= 2 for place in found.values())


def test_a_large_screen_shows_more_and_a_small_one_what_has_the_keys() -> None:
    assert set(places(200, 47, "missions")) == set(PANES)
    assert set(places(80, 21, "missions")) == {*PANES} - {"checkpoints"}
    assert set(places(60, 17, "missions")) == {"missions", "sorties", "events"}
    assert set(places(60, 17, "locks")) == {"missions", "sorties", "locks"}
    assert set(places(80, 21, "mail", zoomed=True)) == {"mail"}


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (-5, "now"),
        (9_999, "now"),
        (29_000, "20 s"),
        (MINUTE, "1 min"),
        (59 * MINUTE, "59 min"),
        (47 * 60 * MINUTE, "47 h"),
        (48 * 60 * MINUTE, "2 d"),
    ],
)
def test_lengths_of_time_are_told_in_one_unit(ms: int, told: str) -> None:
    assert cells.span(ms) == told
    assert cells.silence(ms) == ("active now" if told == "now" else f"silent {told}")
    assert cells.silence(ms, silent=False) == ("active now" if told == "now" else f"{told} ago")
    assert cells.ago(ms) == (told if told == "now" else f"{told} ago")
