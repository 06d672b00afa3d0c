"""The bar of what takes long: in a terminal, after a moment, and without a trace."""

import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from fleetctl.client import AsyncFleet, Fleet, Progress
from fleetctl.output.progress import draw, line, progress_bar
from fleetd.protocol.requests.checkpoint import CheckpointVerify
from fleetd.protocol.requests.system import SystemBackup
from tests.support.processes import Daemon, with_checkpoints
from tests.support.terminal import terminal

# Each checkpoint takes its time; nothing else does.
SLOW = """
import trio
from fleetd.__main__ import main
import fleetd.daemon
from fleetd.engine.services import verify
check = verify.check
async def slow(*given, **named):
    await trio.sleep(0.05)
    return await check(*given, **named)
verify.check = slow
main()
"""
RECORDS = 40


@pytest.fixture
def mission(daemon: Daemon) -> str:
    """Return a mission with checkpoints, in a daemon that takes long to verify them."""
    with Fleet(daemon.socket) as fleet:
        mission = with_checkpoints(fleet, RECORDS)
    daemon.stop()
    daemon.command = (sys.executable, "-c", SLOW)
    daemon.start()
    return mission


def verify(*options: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "fleetctl", "checkpoints", "verify", "--all", *options)


def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("TERM", "LANG")}


@pytest.mark.parametrize("columns", [80, 24])
def test_a_bar_grows_and_leaves_nothing_behind(mission: str, home: Path, columns: int) -> None:
    with terminal(verify(), env=environ(), cwd=home, columns=columns) as shown:
        shown.until("Verifying")
        first = shown.until(lambda text: "%" in text)
        later = shown.until(lambda text: "%" in text and text != first)
        assert shown.rest() == 0

    for text in (first, later):
        (drawn,) = text.split("\n")[0:1]
        assert drawn.startswith("Verifying")
        assert text.strip() == drawn
        assert len(drawn) < columns
        assert ("█" in drawn or "░" in drawn) == (columns == 80)
        assert (f"of {RECORDS} checkpoints" in drawn) == (columns == 80)
    assert "Verifying" not in shown.text()
    assert "%" not in shown.text()


@pytest.mark.parametrize("how", ["json", "dumb"])
def test_where_it_would_disturb_there_is_none(mission: str, home: Path, how: str) -> None:
    options = ("--json",) if how == "json" else ()
    env = environ() | ({"TERM": "dumb"} if how == "dumb" else {})
    with terminal(verify(*options), env=env, cwd=home) as shown:
        assert shown.rest() == 0

    written = b"".join(data for _, data in shown.written)
    assert b"Verifying" not in written
    assert b"\x1b[K" not in written


def test_ctrl_c_takes_the_bar_away(mission: str, daemon: Daemon, home: Path) -> None:
    daemon.stop()
    # It does not end by itself before the key is pressed, however busy the machine is.
    daemon.command = (sys.executable, "-c", SLOW.replace("0.05", "1.5"))
    daemon.start()
    with terminal(verify(), env=environ(), cwd=home) as shown:
        shown.until("Verifying")
        shown.press("ctrl+c")
        assert shown.rest() == 130
    assert "Verifying" not in shown.text()


def test_what_is_piped_is_not_told_of(mission: str, run) -> None:
    found = run("checkpoints", "verify", "--all")
    assert (found.status, found.err) == (0, "")
    assert "Verifying" not in found.out


def test_a_tool_hears_growing_numbers_until_the_reply(mission: str, daemon: Daemon) -> None:
    told: list[Progress] = []
    with Fleet(daemon.socket) as fleet:
        assert fleet.call(CheckpointVerify(mission_id=mission), progress=told.append).ok

    assert len(told) > 3
    assert [each.done for each in told] == sorted({each.done for each in told})
    assert {(each.what, each.total) for each in told} == {("checkpoints", RECORDS)}


async def test_calls_at_once_each_hear_of_themselves(mission: str, daemon: Daemon, home) -> None:
    verified: list[Progress] = []
    copied: list[Progress] = []
    async with AsyncFleet(daemon.socket) as fleet:
        await fleet.call(SystemBackup(path=str(home / "copy.db")), progress=copied.append)
        assert (await fleet.call(CheckpointVerify(), progress=verified.append)).ok

    assert {each.what for each in copied} <= {"pages", "database"}
    assert {each.what for each in verified} == {"checkpoints"}


ONE_THIRD = Progress("checkpoints", 1_000, 3_000)


def test_where_the_width_is_unknown_it_is_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="fileno"):
        sys.stderr.fileno()
    draw("x" * 200)
    assert capsys.readouterr().err.count("x") == 79
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
    draw("x" * 200)
    assert capsys.readouterr().err.count("x") == 79


@pytest.mark.parametrize("columns", range(20, 121, 7))
def test_a_line_fits_whatever_the_terminal(columns: int) -> None:
    for told in (ONE_THIRD, Progress("rows", 12_345, None), Progress("database", 0, None)):
        for plain in (True, False):
            assert 0 < len(line("Verifying", told, columns, plain=plain)) <= columns


def test_what_a_line_says() -> None:
    wide = line("Verifying", ONE_THIRD, 79, plain=False)
    assert wide == f"Verifying {'█' * 11}▋{'░' * 23}  33 %  1,000 of 3,000 checkpoints"
    assert line("V", ONE_THIRD, 79, plain=True).startswith("V #############......")
    assert line("Forgetting", Progress("rows", 12_345, None), 79, plain=False) == (
        "Forgetting: 12,345 rows"
    )
    assert line("Checking", Progress("database", 0, None), 79, plain=False) == (
        "Checking: reading the whole database"
    )
    assert "100 %" in line("V", Progress("x", 5, 5), 79, plain=False)


def test_without_a_terminal_there_is_nothing_to_draw(capsys) -> None:
    with progress_bar(Namespace(json=False), "Verifying") as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")
