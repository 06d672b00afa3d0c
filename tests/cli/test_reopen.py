"""``fleetctl reopen``: which sessions it lists, what it says of each, and how it opens them."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.git import git
from tests.support.processes import Daemon, Result

Done = Callable[..., Result]
ONE, TWO, THREE = (f"{number}f0c2a9b-7d1e-4a55-9c0e-2b8f6f0d3c11" for number in (1, 2, 3))
# An agent CLI as the daemon sees it: a process, with hooks below it.
CLI = """
import os, socket, sys
for line in sys.stdin:
    if os.fork() == 0:
        with socket.socket(socket.AF_UNIX) as hook:
            hook.connect(os.environ["FLEET_SOCKET"])
            hook.sendall(line.encode())
            answer = hook.makefile().readline()
        os._exit(0 if '"result"' in answer else 1)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
WAIT_S = 30


class Cli:
    """One session of an agent CLI whose process can be killed."""

    def __init__(self, session: str, cwd: Path) -> None:
        self.session, self.cwd = session, cwd
        self.agent = f"claude-{session[:8]}"
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", CLI],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, event: str, **more: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        payload = {"hook_event_name": event, "session_id": self.session, "cwd": str(self.cwd)}
        params = {
            "delivery_id": f"delivery-{time.monotonic_ns()}",
            "harness": "claude",
            "payload": json.dumps(payload | more),
        }
        call = {"jsonrpc": "2.0", "id": 1, "method": "hook.deliver", "params": params}
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "0\n"

    def work(self) -> None:
        self.tell("SessionStart", source="startup")
        self.tell("UserPromptSubmit", prompt="Add a login")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


Begin = Callable[..., Cli]


@pytest.fixture
def begin(daemon: Daemon) -> Iterator[Begin]:
    """Return what begins a session; none of their processes stays."""
    begun: list[Cli] = []

    def one(session: str, cwd: Path) -> Cli:
        begun.append(Cli(session, cwd))
        return begun[-1]

    yield one
    for each in begun:
        each.kill()


@pytest.fixture
def installed(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a claude and a codex on the PATH that tell what they were started with."""
    directory = home / "bin"
    directory.mkdir()
    for name in ("claude", "codex"):
        program = directory / name
        program.write_text('#!/bin/sh\necho "$(basename "$0") $* in $(pwd)"\n')
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return directory


@pytest.fixture
def shop(home: Path) -> Path:
    """Return a repository with two commits."""
    directory = home / "my shop"
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=main")
    for name in ("one", "two"):
        git(directory, "commit", "--quiet", "--allow-empty", "-m", name)
    return directory


def head(directory: Path) -> str:
    return git(directory, "rev-parse", "HEAD").strip()


def ended(done: Done, cli: Cli, how: str = "lost") -> dict[str, Any]:
    """Kill a session and return what is told of it when the daemon knows that it ended."""
    cli.kill()
    deadline = time.monotonic() + WAIT_S
    while True:
        known = done("call", "session.list", json.dumps({"agent_id": cli.agent})).json
        [session] = known["sessions"]
        if session["ended"] == how:
            return dict(session)
        assert time.monotonic() < deadline, session
        time.sleep(0.05)


def test_nothing_to_reopen_is_said(daemon: Daemon, done: Done) -> None:
    assert done("reopen").out == (
        "No session to reopen. fleetctl reopen --all lists those that were closed.\n"
    )
    assert done("reopen", "--json").json == {"sessions": []}


def test_a_lost_session_is_listed_with_its_place_and_its_command(
    begin: Begin, done: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    ended(done, cli)
    first, *lines = done("reopen").out.splitlines()
    agent, state, sign, mission = first.split("  ")
    assert (agent, state, mission) == (cli.agent, "lost", "Add a login")
    assert sign.startswith("last sign 20")
    assert lines == [
        f"  {shop} (main, {head(shop)[:12]})",
        f"  cd '{shop}' && claude --resume {ONE}",
    ]
    [told] = done("reopen", "--json").json["sessions"]
    assert told["command"] == f"cd '{shop}' && claude --resume {ONE}"
    assert told["problem"] is None
    assert told["differences"] == []
    assert told["place"] == {"worktree": str(shop), "branch": "main", "head": head(shop)}
    # The line does what it says.
    said = subprocess.run(["/bin/sh", "-c", told["command"]], capture_output=True, text=True)
    assert said.stdout == f"claude --resume {ONE} in {shop}\n"


def test_after_a_reboot_every_session_that_was_open_is_listed_and_no_other(
    begin: Begin, done: Done, daemon: Daemon, installed: Path, shop: Path
) -> None:
    """At work, at its prompt, closed by its user: the first two were cut off."""
    works, waits, closed = (begin(session, shop) for session in (ONE, TWO, THREE))
    for each in (works, waits, closed):
        each.work()
    for each in (waits, closed):
        each.tell("Stop", last_assistant_message="Done")
    closed.tell("SessionEnd", reason="prompt_input_exit")
    daemon.kill()
    for each in (works, waits, closed):
        each.kill()
    daemon.start()
    assert ended(done, works)["alive"] is False
    ended(done, waits, "vanished")
    listed = {each["agent_id"]: each["ended"] for each in done("reopen", "--json").json["sessions"]}
    assert listed == {works.agent: "lost", waits.agent: "vanished"}
    assert "ended at its prompt" in done("reopen").out
    lost = done("reopen", "--lost", "--json").json["sessions"]
    assert [each["agent_id"] for each in lost] == [works.agent]
    every = {
        each["agent_id"]: each["ended"]
        for each in done("reopen", "--all", "--json").json["sessions"]
    }
    assert every == listed | {closed.agent: "closed"}
    [named] = done("reopen", closed.agent, "--json").json["sessions"]
    assert named["command"].endswith(f"claude --resume {THREE}")
    of_mission = done("reopen", "--mission", named["mission_id"], "--json").json["sessions"]
    assert [each["agent_id"] for each in of_mission] == [closed.agent]


def test_a_session_that_is_heard_of_again_is_listed_no_more(
    begin: Begin, done: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    cli.tell("Stop", last_assistant_message="Done")
    ended(done, cli, "vanished")
    again = begin(ONE, shop)
    again.tell("SessionStart", source="resume")
    assert done("reopen", "--json").json == {"sessions": []}
    again.tell("SessionEnd", reason="prompt_input_exit")
    assert done("reopen", "--json").json == {"sessions": []}


def test_what_changed_since_the_last_sign_is_named(
    begin: Begin, done: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    ended(done, cli)
    before = head(shop)
    git(shop, "commit", "--quiet", "--allow-empty", "-m", "three")
    assert done("reopen").out.splitlines()[2:-1] == [
        f"  HEAD was {before[:12]} and is now {head(shop)[:12]}."
    ]
    git(shop, "checkout", "--quiet", "-b", "topic", before)
    assert done("reopen").out.splitlines()[2:-1] == ["  The branch was main and is now topic."]
    git(shop, "checkout", "--quiet", "--detach", before)
    [told] = done("reopen", "--json").json["sessions"]
    assert told["differences"] == ["The branch was main and is now none (a commit)."]
    shutil.rmtree(shop / ".git")
    [told] = done("reopen", "--json").json["sessions"]
    assert told["differences"] == [f"The work tree was {shop} and is gone."]
    assert told["command"].endswith(f"claude --resume {ONE}")


def test_commits_of_the_session_itself_are_no_difference(
    begin: Begin, done: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    git(shop, "checkout", "--quiet", "-b", "topic")
    git(shop, "commit", "--quiet", "--allow-empty", "-m", "three")
    cli.tell("PostToolUse", tool_name="Bash", tool_input={"command": "git commit"}, tool_use_id="1")
    ended(done, cli)
    [told] = done("reopen", "--json").json["sessions"]
    assert told["place"] == {"worktree": str(shop), "branch": "topic", "head": head(shop)}
    assert told["differences"] == []


def test_a_session_is_opened_where_it_began_wherever_it_went(
    begin: Begin, done: Done, installed: Path, shop: Path, home: Path
) -> None:
    tree = home / "tree"
    git(shop, "worktree", "add", "--quiet", "-b", "topic", str(tree))
    cli = begin(ONE, shop)
    cli.work()
    cli.cwd = tree
    cli.tell("CwdChanged", old_cwd=str(shop), new_cwd=str(tree))
    cli.tell("PreCompact", trigger="manual")
    cli.tell("SessionStart", source="compact")
    ended(done, cli)
    [told] = done("reopen", "--json").json["sessions"]
    assert (told["directory"], told["cwd"]) == (str(shop), str(tree))
    assert told["place"] == {"worktree": str(tree), "branch": "topic", "head": head(shop)}
    assert told["differences"] == []
    git(shop, "worktree", "remove", str(tree))
    lines = done("reopen").out.splitlines()
    assert f"  It worked in {tree}, which is not there any more." in lines
    assert lines[-1] == f"  cd '{shop}' && claude --resume {ONE}"


def test_a_directory_that_is_gone_is_said_and_there_is_no_command(
    begin: Begin, done: Done, run: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    ended(done, cli)
    shop.rename(shop.with_name("elsewhere"))
    out = done("reopen").out
    assert f"The directory {shop} is not there any more." in out
    assert "claude --resume" not in out
    [told] = done("reopen", "--json").json["sessions"]
    assert told["command"] is None
    for how in ("--exec", "--tmux", "--print"):
        refused = run("reopen", cli.agent, how)
        assert refused.status == 1
        assert "is not there any more" in refused.out + refused.err
    # A file in its place is none either.
    shop.write_text("")
    assert "is not there any more" in done("reopen").out


def test_a_session_that_still_lives_is_refused_without_force(
    begin: Begin, done: Done, run: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    for how in ("--print", "--exec", "--tmux"):
        refused = run("reopen", cli.agent, how)
        assert refused.status == 1
        assert "still lives" in refused.out + refused.err
        assert "--force" in refused.out + refused.err
        assert "claude --resume" not in refused.out
    forced = done("reopen", cli.agent, "--force").out
    assert forced.endswith(f"  cd '{shop}' && claude --resume {ONE}\n")


def test_an_agent_that_is_unknown_ends_with_status_4(
    begin: Begin, run: Done, installed: Path, shop: Path
) -> None:
    begin(ONE, shop).work()
    for arguments in (("nobody",), ("claude-1f0c2a9b", "nobody"), ("--mission", "msn-00000000")):
        for how in ("--print", "--exec", "--tmux"):
            assert run("reopen", *arguments, how).status == 4


def test_an_agent_without_a_session_has_nothing_to_open(
    daemon: Daemon, done: Done, run: Done
) -> None:
    done("call", "agent.register", '{"agent_id": "alice", "role": "specialist"}')
    refused = run("reopen", "alice")
    assert refused.status == 1
    assert "Agent alice has no session" in refused.err


def test_a_cli_that_is_not_installed_is_named(
    begin: Begin, done: Done, run: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    ended(done, cli)
    (installed / "claude").unlink()
    assert "there is no executable 'claude' on the PATH" in " ".join(done("reopen").out.split())
    refused = run("reopen", cli.agent, "--exec")
    assert refused.status == 1
    assert "no executable 'claude'" in refused.err


def test_a_hostile_id_comes_into_no_command(
    begin: Begin, done: Done, run: Done, installed: Path, shop: Path
) -> None:
    hostile = "$(touch owned); claude --dangerously-skip-permissions"
    cli = begin(hostile, shop)
    cli.work()
    [agent] = [each["id"] for each in done("agent", "list", "--json").json]
    cli.agent = agent
    ended(done, cli)
    out = done("reopen").out
    assert "is no id of a session of Claude Code" in " ".join(out.split())
    assert "claude --" not in out.replace(hostile, "")
    [told] = done("reopen", "--json").json["sessions"]
    assert told["command"] is None
    assert run("reopen", agent, "--exec").status == 1


def test_a_subagent_is_no_session_to_reopen(
    begin: Begin, done: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    cli.tell("SubagentStart", agent_id="a1b2c3d4e5", agent_type="Explore")
    cli.tell(
        "PreToolUse",
        agent_id="a1b2c3d4e5",
        agent_type="Explore",
        tool_name="Bash",
        tool_input={"command": "make"},
        tool_use_id="2",
    )
    ended(done, cli)
    names = [each["id"] for each in done("agent", "list", "--json").json]
    assert len(names) == 2
    listed = done("reopen", "--all", "--json").json["sessions"]
    assert [each["agent_id"] for each in listed] == [cli.agent]
    # Named, it stands for its session.
    inner = next(name for name in names if name != cli.agent)
    named = done("reopen", inner, "--json").json["sessions"]
    assert [each["agent_id"] for each in named] == [cli.agent]


def test_exec_becomes_the_cli_in_its_directory(
    begin: Begin, done: Done, run: Done, installed: Path, shop: Path
) -> None:
    cli, other = begin(ONE, shop), begin(TWO, shop)
    for each in (cli, other):
        each.work()
        ended(done, each)
    argv = [sys.executable, "-m", "fleetctl", "reopen", cli.agent, "--exec"]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert process.stdout == f"claude --resume {ONE} in {shop}\n"
    assert process.returncode == 0
    refused = run("reopen", "--exec")
    assert refused.status == 1
    assert "2 are selected" in refused.err
    assert "--tmux" in refused.err


def test_a_difference_is_told_before_the_session_is_opened(
    begin: Begin, done: Done, installed: Path, shop: Path
) -> None:
    cli = begin(ONE, shop)
    cli.work()
    ended(done, cli)
    git(shop, "checkout", "--quiet", "-b", "topic")
    argv = [sys.executable, "-m", "fleetctl", "reopen", "--exec"]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "The branch was main and is now topic." in process.stderr
    assert process.stdout == f"claude --resume {ONE} in {shop}\n"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_tmux_opens_a_window_for_each(
    begin: Begin,
    done: Done,
    installed: Path,
    shop: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sockets = home / "t"
    sockets.mkdir()
    monkeypatch.setenv("TMUX_TMPDIR", str(sockets))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("TMUX", raising=False)
    cli, other = begin(ONE, shop), begin(TWO, shop)
    for each in (cli, other):
        each.work()
        ended(done, each)
    try:
        opened = done("reopen", "--tmux", "--json").json
        assert [each["agent_id"] for each in opened["opened"]] == [other.agent, cli.agent]
        assert opened["attach"] == "tmux attach -t fleet"
        listed = ["tmux", "list-windows", "-t", "fleet", "-F", "#{window_name}"]
        windows = subprocess.run(listed, capture_output=True, text=True, check=True)
        assert windows.stdout.split() == [other.agent, cli.agent]
    finally:
        subprocess.run(["tmux", "kill-server"], check=False, capture_output=True)


def test_nothing_to_open_is_no_success(daemon: Daemon, run: Done, installed: Path) -> None:
    for how in ("--exec", "--tmux"):
        refused = run("reopen", how)
        assert refused.status == 1
        assert "no session to reopen" in refused.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tmux", "--exec"),
        ("--print", "--exec"),
        ("alice", "--lost"),
        ("alice", "--mission", "msn-1a2b3c4d"),
        ("--lost", "--all"),
        ("--exec", "--json"),
    ],
)
def test_what_excludes_each_other_is_a_wrong_command_line(
    run: Done, arguments: tuple[str, ...]
) -> None:
    assert run("reopen", *arguments).status == 2
