"""Claude Code, Codex and OpenCode are killed in their worktrees, and opened again after that."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fleetd.protocol.records import Agent
from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex, OpenCode
from tests.agents.script import Call, calls, says
from tests.agents.test_claude import bash
from tests.agents.test_codex import shell as run_by_codex
from tests.agents.test_opencode import shell
from tests.support.processes import fleetctl
from tests.support.terminal import Terminal

SUICIDE = "kill -KILL $PPID"
# Claude Code writes its transcript a moment later than it works, and opens no session without one.
CLAUDES_SUICIDE = (
    'until grep -qs tool_use "$HOME"/.claude/projects/*/*.jsonl; do sleep 0.05; done; ' + SUICIDE
)
SOON_S = 60


class Seat(NamedTuple):
    """A CLI: how it kills itself, and what its screen shows where a prompt can be typed."""

    desk: Desk[Any]
    kills: Call
    ready: str


def _type(screen: Terminal, seat: Seat) -> None:
    """Give the session that is open one more prompt, as a person does."""
    screen.until(seat.ready, seconds=SOON_S)
    screen.press("Onwards")
    screen.until("Onwards", seconds=SOON_S)
    screen.press("enter")
    screen.until("Back again.", seconds=SOON_S)


def _soon_back(desk: Desk[Any], name: str, screen: Terminal) -> Agent:
    """Wait until an agent is no longer lost; return it."""
    deadline = time.monotonic() + SOON_S
    while True:
        agent = next(each for each in desk.memory.agents() if each.id == name)
        if agent.status != "lost":
            return agent
        assert time.monotonic() < deadline, f"{desk.memory.log()}\n{screen.text()}"
        time.sleep(0.05)


def test_each_opens_with_its_own_session_in_its_own_worktree(
    claude: Desk[Claude],
    codex: Desk[Codex],
    opencode: Desk[OpenCode],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seats = {
        "alice": Seat(claude, bash(CLAUDES_SUICIDE), "? for shortcuts"),
        "bob": Seat(codex, run_by_codex(SUICIDE), "Ask Codex"),
        "carol": Seat(opencode, shell(SUICIDE), "ctrl+p commands"),
    }
    memory, project = claude.memory, Path.cwd()
    trees = {name: project.parent / f"tree of {name}" for name in seats}
    for name, seat in seats.items():
        add = ["git", "worktree", "add", "--quiet", "-b", name, str(trees[name])]
        subprocess.run(add, cwd=project, check=True)
        monkeypatch.chdir(trees[name])
        seat.desk.script.plays([calls(seat.kills)])
        killed = seat.desk.cli.prompt("Go", FLEET_AGENT_ID=name)
        assert killed.status == -9, killed.err
        memory.soon_lost(name)
    monkeypatch.chdir(project)
    claude.daemon.kill()
    claude.daemon.start()

    listed = {each["agent_id"]: each for each in fleetctl("reopen", "--json").json["sessions"]}

    assert set(listed) == set(seats)
    for name, told in listed.items():
        assert told["directory"] == str(trees[name])
        assert told["place"]["branch"] == name
        assert told["differences"] == []
        assert told["command"].startswith(f"cd '{trees[name]}' && {told['harness']} ")

    for name, seat in seats.items():
        seat.desk.script.plays([says("Back again.")])
        argv = [sys.executable, "-m", "fleetctl", "reopen", name, "--exec"]
        with seat.desk.cli.sits(argv, trees[name]) as screen:
            _type(screen, seat)
            agent = _soon_back(seat.desk, name, screen)
            assert agent.session_id == listed[name]["session_id"]
            # fleetctl has become the CLI.
            words = Path(f"/proc/{screen.process.pid}/cmdline").read_text().split("\0")
            assert words[-2] == agent.session_id
            assert Path(f"/proc/{screen.process.pid}/cwd").readlink() == trees[name]
            assert agent.cwd == str(trees[name])
        assert "Onwards" in seat.desk.script.asked_in("turn")[-1].text
    assert {each.id for each in memory.agents()} == set(seats)
