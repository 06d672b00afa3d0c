"""``fleetctl attention`` and the agents in ``status``: who needs a person, where, and how to go."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from typing import IO

import pytest

from fleetctl.commands.attention import way_to
from fleetctl.integrations.registry import HARNESSES
from tests.support.git import git
from tests.support.processes import Daemon, Result

Done = Callable[..., Result]
BASH = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "call-1"}
ASK = {"tool_name": "AskUserQuestion", "tool_input": {"question": "Which port?"}}


def hook(done: Done, session: str, event: str, cwd: Path | str, **more: object) -> None:
    """Have a hook of Claude Code tell something."""
    payload = {"hook_event_name": event, "session_id": session, "cwd": str(cwd)} | more
    told = {
        "delivery_id": f"d-{session}-{event}-{time.monotonic_ns()}",
        "harness": "claude",
        "payload": json.dumps(payload),
    }
    done("call", "hook.deliver", json.dumps(told))


def repository(home: Path, name: str) -> Path:
    directory = home / name
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=main")
    return directory


def test_nobody_needs_anybody(daemon: Daemon, done: Done) -> None:
    assert done("attention").out == "No agent needs you.\n"
    assert done("attention", "--json").json == {"agents": [], "more": 0, "over_budget": []}


def test_who_needs_a_person_and_the_command_that_goes_there(
    daemon: Daemon, done: Done, home: Path
) -> None:
    shop = repository(home, "my shop")
    hook(done, "s-1", "UserPromptSubmit", shop, prompt="Add a login")
    hook(done, "s-1", "PermissionRequest", shop, **BASH)
    hook(done, "s-2", "UserPromptSubmit", shop, prompt="Go")
    hook(done, "s-3", "UserPromptSubmit", shop, prompt="Go")
    hook(done, "s-3", "Stop", shop, last_assistant_message="Done")
    first, second, third = done("attention").out.splitlines()
    [agent] = done("attention", "--json").json["agents"]
    told = ("claude-s-1", "needs permission", agent["since"], "my shop (main)")
    assert first == "  ".join(told)
    assert second == "  Bash: make"
    assert third == f"  cd '{shop}' && claude --resume s-1"
    assert (agent["needs"], agent["branch"], agent["worktree"]) == ("permission", "main", str(shop))


def test_six_sessions_in_three_repositories_are_told_in_twelve_lines(
    daemon: Daemon, done: Done, home: Path
) -> None:
    for number in range(6):
        where = home / f"repo-{number // 2}"
        if number % 2 == 0:
            repository(home, where.name)
        hook(done, f"s-{number}", "UserPromptSubmit", where, prompt=f"Task {number}")
    for session in ("s-0", "s-1"):
        edit = {"file_path": str(home / "repo-0" / "a.py")}
        hook(done, session, "PostToolUse", home / "repo-0", tool_name="Edit", tool_input=edit)
    hook(done, "s-1", "PreToolUse", home / "repo-0", **BASH)
    hook(done, "s-4", "PreToolUse", home / "repo-2", **ASK)
    hook(done, "s-5", "PermissionRequest", home / "repo-2", **BASH)
    hook(done, "s-3", "Stop", home / "repo-1", last_assistant_message="All done")
    out = done("status").out
    lines = out.splitlines()
    agents = lines[lines.index("Agents") + 1 :][:6]
    shown = [line.split("  ")[1:3] for line in agents]
    assert shown[:2] == [["claude-s-5", "needs permission"], ["claude-s-4", "asks a question"]]
    assert [state for _, state in shown[2:5]] == ["works", "works", "works"]
    assert shown[5] == ["claude-s-3", "finished"]
    assert "repo-2 (main)" in agents[0]
    assert agents[1].endswith("Which port?")
    assert any(line.endswith("make") for line in agents[2:5])
    assert "Conflicts: 1 file" in lines[-3]
    assert lines[-1] == "Missions in progress: 6 of one session each (fleetctl mission list)"
    assert len(lines) <= 12


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_breaks_no_line(
    daemon: Daemon,
    done: Done,
    home: Path,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook(done, "s-1", "UserPromptSubmit", home, prompt="Go")
    hook(done, "s-1", "PreToolUse", home, **ASK | {"tool_input": {"question": "Why? " * 50}})
    monkeypatch.setattr("fleetctl.output.console.columns", lambda: columns)
    for command in ("status", "attention"):
        out = done(command).out
        lines = [line for line in out.splitlines()[:9] if not line.startswith("  cd ")]
        assert max(map(len, lines)) <= columns
        assert "claude-s-1" in out
        assert "asks a question" in out


def test_in_eighty_columns_every_name_and_every_command_is_whole(
    daemon: Daemon, done: Done, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = repository(home, "a-directory-with-a-long-name-" + "x" * 60)
    sessions = ("aaaa1111-bbbb-2222", "aaaa1111-cccc-3333")
    question = "Which port should it use? " * 7
    for session in sessions:
        hook(done, session, "UserPromptSubmit", place, prompt="Go")
        hook(done, session, "PreToolUse", place, **ASK | {"tool_input": {"question": question}})
    names = [each["id"] for each in done("agent", "list", "--json").json]
    commands = [line for line in done("attention").out.splitlines() if line.startswith("  cd ")]
    monkeypatch.setattr("fleetctl.output.console.columns", lambda: 80)
    status, attention = done("status").out, done("attention").out
    assert len(names) == 2
    for told in (status, attention):
        lines = [line for line in told.splitlines() if "asks a question" in line]
        assert sorted(line.split()[0] for line in lines) == sorted(names)
    assert max(map(len, status.splitlines())) <= 80
    assert "Which port" in status
    assert " ".join(attention.split()).count(question.strip()) == 2
    assert [line for line in attention.splitlines() if line.startswith("  cd ")] == commands
    assert len(commands[0]) > 80


def test_nothing_that_a_hook_tells_reaches_the_terminal_as_a_command(
    daemon: Daemon, done: Done, home: Path
) -> None:
    hook(done, "s-1", "UserPromptSubmit", home, prompt="Go")
    question = {"question": "\x1b]0;owned\x07Which\x9b2J\u202e?"}
    hook(done, "s-1", "PreToolUse", home, **ASK | {"tool_input": question})
    for command in (("attention",), ("status",), ("attention", "--json")):
        out = done(*command).out
        assert not any(sign in out for sign in "\x1b\x07\x9b\u202e")
        assert "Which" in out


@pytest.mark.parametrize("name", [name for name, each in HARNESSES.items() if each.resume])
def test_an_id_that_no_cli_has_comes_into_no_command(name: str) -> None:
    class Agent:
        harness, cwd, session_id = name, "/home/a b", "s; rm -rf /"

    assert way_to(Agent()) == "cd '/home/a b'"  # type: ignore[arg-type]


class Following:
    """``fleetctl attention --follow`` in a process of its own."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", "attention", "--follow", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self.lines: Queue[str] = Queue()
        self.warnings: Queue[str] = Queue()
        self._readers = [
            threading.Thread(target=_read, args=(self.process.stdout, self.lines)),
            threading.Thread(target=_read, args=(self.process.stderr, self.warnings)),
        ]
        for reader in self._readers:
            reader.start()

    def end(self) -> None:
        """Stop it as a person does; a warning that nobody took is told when it failed."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        assert code == 0, list(self.warnings.queue)


def _read(stream: IO[str], lines: Queue[str]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))


def test_following_tells_each_state_once_also_over_a_restart_of_the_daemon(
    daemon: Daemon, done: Done, home: Path
) -> None:
    hook(done, "s-1", "UserPromptSubmit", home, prompt="Go")
    hook(done, "s-1", "PermissionRequest", home, **BASH)
    following = Following("--json")
    try:
        first = json.loads(following.lines.get(timeout=60))
        assert (first["agent_id"], first["needs"]) == ("claude-s-1", "permission")
        hook(done, "s-2", "UserPromptSubmit", home, prompt="Go")
        hook(done, "s-2", "PreToolUse", home, **ASK)
        second = json.loads(following.lines.get(timeout=60))
        assert (second["agent_id"], second["text"]) == ("claude-s-2", "Which port?")
        daemon.stop()
        assert "waiting until it is back" in following.warnings.get(timeout=60)
        daemon.start()
        assert following.warnings.get(timeout=60) == "fleetd is back."
        hook(done, "s-1", "PostToolUse", home, **BASH)
        hook(done, "s-1", "PermissionRequest", home, **BASH)
        again = json.loads(following.lines.get(timeout=60))
        assert (again["agent_id"], again["needs"]) == ("claude-s-1", "permission")
        assert again["since"] > first["since"]
        with pytest.raises(Empty):
            following.lines.get(timeout=0.3)
    finally:
        following.end()


def test_following_says_in_words_what_a_person_sees(daemon: Daemon, done: Done, home: Path) -> None:
    following = Following()
    try:
        hook(done, "s-1", "UserPromptSubmit", home, prompt="Go")
        hook(done, "s-1", "StopFailure", home, error="rate_limit")
        told = following.lines.get(timeout=60)
        assert told.startswith("claude-s-1  reached a limit  ")
        assert following.lines.get(timeout=60) == "  rate_limit"
        assert following.lines.get(timeout=60) == f"  cd {home} && claude --resume s-1"
    finally:
        following.end()


def test_the_page_of_an_agent_says_what_it_waits_for_and_what_runs_for_it(
    daemon: Daemon, done: Done, home: Path
) -> None:
    hook(done, "s-1", "UserPromptSubmit", home, prompt="Go")
    tasks = [{"id": f"b{n}", "type": "shell", "command": f"serve {n}"} for n in range(60)]
    hook(done, "s-1", "Stop", home, last_assistant_message="Served", background_tasks=tasks)
    lines = done("agent", "show", "claude-s-1").out.splitlines()
    assert "Status: waiting: background" in lines
    assert "Last answer: Served" in lines
    runs = lines[lines.index("Running:") + 1 :]
    assert len(runs) == 51
    assert runs[0].startswith("  - shell b0, serve 0, last seen ")
    assert runs[-1] == "  - and 10 more"
    assert "60 running" in done("status").out


def test_the_end_of_a_limit_stands_before_its_text(daemon: Daemon, done: Done, home: Path) -> None:
    hook(done, "s-1", "UserPromptSubmit", home, prompt="Go")
    details = "Claude usage limit reached|4102444800"
    hook(done, "s-1", "StopFailure", home, error="rate_limit", error_details=details)
    [_, told, _] = done("attention").out.splitlines()
    assert told == "  ends 2100-01-01T00:00:00.000Z · Claude usage limit reached"


def test_the_page_of_an_agent_says_what_it_works_on(daemon: Daemon, done: Done, home: Path) -> None:
    shop = repository(home, "shop")
    (shop / "src").mkdir()
    hook(done, "s-1", "UserPromptSubmit", shop / "src", prompt="Go")
    todos = [{"content": each, "status": "pending", "activeForm": each} for each in "AB"]
    todos[0]["status"] = "in_progress"
    plan = {"tool_name": "TodoWrite", "tool_input": {"todos": todos}, "tool_use_id": "1"}
    hook(done, "s-1", "PostToolUse", shop / "src", **plan)
    edit = {"tool_name": "Edit", "tool_input": {"file_path": str(shop / "a.py")}}
    hook(done, "s-1", "PostToolUse", shop / "src", **edit)
    hook(done, "s-1", "PreToolUse", shop / "src", **BASH)
    lines = done("agent", "show", "claude-s-1").out.splitlines()
    since = done("call", "attention.list").json["agents"][0]["doing"]["since"]
    assert lines[lines.index(f"Directory: {shop}/src") + 1 :][:5] == [
        f"Doing now: command: make ({since})",
        "Plan: 1 of 2: A",
        "Files changed: 1 in the last hour",
        "Branch: main",
        f"Worktree: {shop}",
    ]
