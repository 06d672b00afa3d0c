"""``fleetctl watch`` in a real terminal, beside a real daemon."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from tests.support.processes import Daemon, fleetctl
from tests.support.terminal import Terminal, terminal

WATCH = (sys.executable, "-m", "fleetctl", "watch")
LEFT = (b"\x1b[?1049l", b"\x1b[?25h")


@contextmanager
def watching(home: Path, columns: int = 80, rows: int = 24, **env: str) -> Iterator[Terminal]:
    known = {name: value for name, value in os.environ.items() if name not in ("TERM", "NO_COLOR")}
    with terminal(WATCH, env=known | env, cwd=home, columns=columns, rows=rows) as shown:
        yield shown


def written(shown: Terminal) -> bytes:
    return b"".join(data for _, data in shown.written)


def left_in_order(shown: Terminal) -> bool:
    """Whether the terminal is as it was: the screen that was there, and its cursor."""
    end = written(shown)[-400:]
    return all(sequence in end for sequence in LEFT)


def a_mission(title: str, *sorties: str) -> str:
    pieces = [word for sortie in sorties for word in ("--sortie", sortie)]
    made = fleetctl("mission", "create", title, *pieces).id("msn")
    assert fleetctl("mission", "start", made).status == 0
    return made


def test_what_others_do_is_seen_and_quitting_leaves_the_terminal_as_it_was(
    daemon: Daemon, home: Path, connect: Callable[[], Fleet]
) -> None:
    mission = a_mission("[/] [bold]x[/] 日本語 \x1b]0;owned\x07", "First piece", "Second piece")
    with watching(home) as shown:
        shown.until("● connected")
        shown.until("First piece")
        shown.until("[/] [bold]x[/] 日本語 ]0;owned")
        before = connect().call_raw("system.status")
        joined = fleetctl("agent", "start", "alice", "--harness", "claude", "--mission", mission)
        assert joined.status == 0
        piece = fleetctl("sortie", "list", "--mission", mission).id("srt")
        assert fleetctl("sortie", "start", piece, "--agent", "alice").status == 0
        fleetctl("mail", "send", "Which colour?", "--from", "alice", "--to", "bob")
        shown.until('alice began "First piece"')
        shown.until("in progress")
        assert fleetctl("sortie", "complete", piece).status == 0
        shown.until("50%")
        shown.until(lambda text: "✓ First piece" in text)
        after = connect().call_raw("system.status")
        # Nothing but what was done here happened: who looks on leaves no trace.
        assert {each["type"] for each in events_since(connect(), before["position"])}.isdisjoint(
            {"message_delivered", "recovery_briefed"}
        )
        assert after["counts"]["messages"] >= before["counts"]["messages"]
        shown.press("q")
        assert shown.rest() == 0
        assert left_in_order(shown)
        assert b"\x1b]0;" not in written(shown)


def test_checkpoints_differences_and_prompts_are_opened_and_leave_no_trace(
    daemon: Daemon, home: Path, connect: Callable[[], Fleet]
) -> None:
    mission = a_mission("Login", "First piece", "Second piece")
    fleetctl("agent", "start", "alice", "--mission", mission)
    fleetctl("mail", "send", "Which colour?", "--from", "bob", "--to", "alice")
    assert fleetctl("checkpoint", "--mission", mission, "--note", "Before it").status == 0
    piece = fleetctl("sortie", "list", "--mission", mission).id("srt")
    fleetctl("sortie", "start", piece, "--agent", "alice")
    before = connect().call_raw("system.status")["position"]
    with watching(home) as shown:
        shown.until("◌ bob → alice")
        for keys, told, back in (
            ("c", "Before it", ""),
            ("\r", "Active Locks (0)", "d diff"),
            ("d", "status: pending -> in progress", "d diff"),
            ("p", "You are resuming a mission", "d diff"),
        ):
            shown.press(keys)
            shown.until(told)
            if back:
                shown.press("escape")
                shown.until(back)
        shown.press("q")
        shown.until("Agents")
        shown.press("5", "enter")
        shown.until("alice: queued")
    happened = events_since(connect(), before)
    assert [each["type"] for each in happened if each["type"] != "checkpoint_created"] == []


def events_since(client: Fleet, position: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.call_raw("event.list", {"since": position})["events"]
    return found


def test_a_daemon_that_is_killed_is_away_and_back_with_what_is_true_by_then(
    daemon: Daemon, home: Path
) -> None:
    a_mission("Login", "One", "Two")
    with watching(home) as shown:
        shown.until("Login")
        daemon.kill()
        shown.until("away for")
        assert "Login" in shown.text(), "what was told last stays"
        daemon.start()
        shown.until("back after")
        assert fleetctl("mission", "create", "Search").status == 0
        shown.until("Search")
        shown.press("ctrl+c")
        assert shown.rest() == 0
        assert left_in_order(shown)


def test_another_store_is_shown_as_it_is_and_nothing_of_the_one_before(
    daemon: Daemon, home: Path
) -> None:
    a_mission("Of the first store")
    with watching(home) as shown:
        shown.until("Of the first store")
        daemon.stop()
        for name in ("squawk.db", "squawk.db-wal", "squawk.db-shm"):
            (home / "data" / name).unlink(missing_ok=True)
        daemon.start()
        fleetctl("mission", "create", "Of the second store")
        shown.until("Of the second store")
        shown.until(lambda text: "Of the first store" not in text)


def test_without_a_daemon_it_waits_and_says_so(home: Path) -> None:
    running = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log")
    with watching(home) as shown:
        shown.until("not running; waiting for it")
        shown.until("fleetctl daemon start")
        running.start()
        try:
            shown.until("● connected")
            shown.until("No missions yet")
        finally:
            running.stop()


def test_a_socket_that_is_none_is_said(home: Path) -> None:
    (home / "run" / "d.sock").write_text("no socket")
    with watching(home, 120) as shown:
        shown.until("is not a socket")
        shown.until("cannot be reached")


@pytest.mark.parametrize(("columns", "rows", "seen"), [(200, 50, "Checkpoints"), (60, 20, "Mis")])
def test_the_screen_is_used_and_a_small_one_too(
    daemon: Daemon, home: Path, columns: int, rows: int, seen: str
) -> None:
    a_mission("Login", "One", "Two")
    with watching(home, columns, rows) as shown:
        shown.until("Login")
        shown.until(seen)
        shown.until("q quit")
        shown.resize(80, 24)
        shown.until(lambda text: "Mail" in text and "Checkpoints" not in text)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_who_ends_the_process_gets_the_terminal_back(home: Path, number: int) -> None:
    with watching(home) as shown:
        shown.until("waiting for it")
        shown.process.send_signal(number)
        assert shown.rest() == 0
        assert left_in_order(shown)


def test_a_defect_gives_the_terminal_back_and_says_so(home: Path) -> None:
    planted = (
        "import sys; from fleetctl.tui import poller;"
        "poller.Fleet = lambda: 1 / 0;"
        "from fleetctl.cli import main; sys.exit(main(['watch']))"
    )
    env = {name: value for name, value in os.environ.items() if name != "TERM"}
    with terminal((sys.executable, "-c", planted), env=env, cwd=home) as shown:
        assert shown.rest() == 1
        said = written(shown)
        assert b"ZeroDivisionError" in said.partition(LEFT[0])[2]
        assert LEFT[1] in said


def test_without_colours_it_is_the_same_in_black_and_white(home: Path, daemon: Daemon) -> None:
    a_mission("Login", "One")
    with watching(home, NO_COLOR="1") as shown:
        shown.until("Login")
        shown.until("One")
        colours = {cell.fg for row in shown.screen.buffer.values() for cell in row.values()}
        assert colours == {"default"}


def test_what_cannot_draw_is_told_what_can(home: Path) -> None:
    with watching(home, TERM="dumb") as shown:
        assert shown.rest() == 1
        assert "Error: fleetctl watch needs a terminal" in shown.text()
        assert "fleetctl events --follow" in shown.text()
    nowhere = fleetctl("watch")
    assert (nowhere.status, nowhere.out) == (1, "")
    assert nowhere.err.startswith("Error: fleetctl watch needs a terminal.\nHint: ")
    as_json = fleetctl("watch", "--json")
    assert as_json.status == 2
    assert "fleetctl status --json" in as_json.err
