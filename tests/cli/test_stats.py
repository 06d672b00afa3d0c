"""``fleetctl stats``: what agents did after compactions, with a briefing and without."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from fleetd.harness.report import PromptSubmitted, SessionStarted
from fleetd.protocol.requests.mission import MissionUpdate
from tests.cli.test_attention import hook
from tests.support.fleet import opened
from tests.support.hook_sessions import WorkingWindow
from tests.support.processes import Daemon, Result

Done = Callable[..., Result]
NONE = "No compactions found.\n"


@pytest.fixture
def filled(home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Daemon:
    """Return a daemon whose store has 20 compactions of long ago with a briefing, and 3 without."""

    async def fill() -> None:
        async with opened(home / "earlier") as fleet:
            for session, number in (("aaaaaaaa-1", 20), ("bbbbbbbb-2", 3)):
                window = WorkingWindow(fleet, session_id=session)
                started = await window.tell(SessionStarted("startup"), PromptSubmitted("Go"))
                if session.startswith("b"):
                    await fleet.do(MissionUpdate(str(started.mission_id), briefing="off"))
                for _ in range(number):
                    await window.run("make test")
                    await window.read("/p/a.py")
                    await window.compact()
                    await window.run("make test")
                    await window.edit()
            monkeypatch.setenv("FLEET_DB_PATH", str(fleet.database))
            monkeypatch.setenv("FLIGHTLINE_DIR", str(fleet.checkpoints))

    trio.run(fill)
    started: Daemon = request.getfixturevalue("daemon")
    return started


@pytest.mark.sqlite_only("the daemon is started on a store in a file")
def test_two_groups_are_compared_and_a_small_one_is_not(filled: Daemon, done: Done) -> None:
    rows = [line.split("  ") for line in done("stats", "recovery").out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["AFTER A COMPACTION", "WITH BRIEFING", "WITHOUT"],
        ["Compactions", "20", "3"],
        ["Tool calls until the first edit (median)", "2", "too few"],
        ["With an edit", "100%", "too few"],
        ["Commands run again (mean)", "1", "too few"],
        ["Files read again (mean)", "0.95", "too few"],
        ["Subagents started twice (mean)", "0", "too few"],
    ]
    told = done("stats", "recovery", "--json", "--limit", "1").json
    assert (told["with_briefing"]["commands_again"], told["fewest"]) == (1, 20)
    assert told["without_briefing"]["commands_again"] is None
    assert (len(told["compactions"]), told["more"]) == (1, 22)


@pytest.mark.sqlite_only("the daemon is started on a store in a file")
def test_each_compaction_is_listed_newest_first(filled: Daemon, done: Done) -> None:
    head, *rows, _, total, shown = done("stats", "recovery", "--each", "--limit", "4").out.split(
        "\n"
    )[:-1]
    assert head.split()[:3] == ["AT", "AGENT", "BRIEFING"]
    assert [row.split()[1:] for row in rows] == [
        *[["claude-bbbbbbbb", "off", "2", "2", "1", "0", "0"]],
        *[["claude-bbbbbbbb", "off", "4", "2", "1", "1", "0"]] * 2,
        *[["claude-aaaaaaaa", "given", "2", "2", "1", "0", "0"]],
    ]
    assert total == "Total: 23 compactions"
    assert shown.startswith("Showing the newest 4")


def test_without_compactions_there_is_nothing_to_tell(daemon: Daemon, done: Done) -> None:
    assert done("stats", "recovery").out == NONE
    assert done("stats", "recovery", "--each", "--since", "7d").out == NONE
    assert done("stats", "recovery", "--json").json["compactions"] == []


def test_what_is_not_an_hour_old_or_not_recorded_is_told(
    daemon: Daemon, done: Done, home: Path
) -> None:
    hook(done, "ann", "UserPromptSubmit", home, prompt="Go")
    hook(done, "ann", "PreCompact", home, trigger="auto")
    hook(done, "ann", "SessionStart", home, source="compact")
    out = done("stats", "recovery", "--since", "1h").out
    assert out.endswith("Not counted: 1 compaction of the last hour.\n")
    [each] = done("stats", "recovery", "--json").json["compactions"]
    assert (each["agent_id"], each["briefing"], each["over"]) == ("claude-ann", "given", False)
    hook(done, "bob", "UserPromptSubmit", home, prompt="Go")
    for number in range(2):
        hook(done, "bob", "PreCompact", home, trigger="auto")
        hook(done, "bob", "PostCompact", home, trigger="auto")
        hook(done, "bob", "PreToolUse", home, tool_name="Read", tool_use_id=f"toolu_{number}")
    out = done("stats", "recovery").out
    assert "Not counted: 2 compactions of the last hour.\n" in out
    assert out.endswith("In neither group: 1 compaction of which no briefing is recorded.\n")


def test_a_wrong_time_is_refused_with_the_right_form(run: Done) -> None:
    told = run("stats", "recovery", "--since", "yesterday")
    assert (told.status, told.out) == (2, "")
    assert "expected an age such as 30m, 2h or 3d" in told.err


def test_a_mission_is_told_to_have_no_briefings(daemon: Daemon, done: Done, run: Done) -> None:
    made = done("mission", "create", "Add login", "--briefing", "off", "--json").json
    assert made["briefing"] == "off"
    assert "Briefing: off" in done("mission", "show", made["id"]).out
    assert done("mission", "update", made["id"], "--briefing", "on").out.startswith(
        "Mission updated"
    )
    assert "Briefing" not in done("mission", "show", made["id"]).out
    assert done("mission", "show", made["id"], "--json").json["briefing"] == "on"
    wrong = run("mission", "update", made["id"], "--briefing", "no")
    assert (wrong.status, wrong.out) == (2, "")
    assert "'no'" in wrong.err
    asked = json.dumps({"mission_id": made["id"], "briefing": "no"})
    refused = run("call", "mission.update", asked)
    assert refused.status == 2
    assert "briefing" in refused.err
    nothing = run("mission", "update", made["id"])
    assert "--priority or --briefing" in nothing.err
