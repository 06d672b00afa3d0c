"""Agent CLIs are started: in windows of a real tmux, and by a process that becomes the CLI."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.launch import run
from fleetctl.launch.commands import Launch, ProgramMissing

HOSTILE = "a 'b\" $(touch owned) `touch owned` #(touch owned) #{pane_id} ; touch owned"
# A CLI that tells what it was started with, and ends.
PROGRAM = f"""#!{sys.executable}
import json, os, sys
told = {{"argv": sys.argv[1:], "cwd": os.getcwd(), "pwd": os.environ["PWD"], "pid": os.getpid(),
        "agent": os.environ.get("FLEET_AGENT_ID")}}
with open(os.environ["TOLD"], "w") as pipe:
    json.dump(told, pipe)
"""
WAIT_S = 30
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Cli:
    """A program on the PATH that stands for an agent CLI, and what it told."""

    def __init__(self, place: Path) -> None:
        self.pipe = place / "told"
        os.mkfifo(self.pipe)
        # Both ends, so that opening waits for nobody.
        self._end = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)

    def told(self) -> dict[str, Any]:
        """Return what the next one that was started told."""
        text = b""
        while not text.endswith(b"}"):
            assert select.select([self._end], [], [], WAIT_S)[0], "nobody was started"
            text += os.read(self._end, 1_000_000)
        found: dict[str, Any] = json.loads(text)
        return found

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").write_text(PROGRAM)
    (programs / "claude").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    cli = Cli(tmp_path)
    monkeypatch.setenv("TOLD", str(cli.pipe))
    yield cli
    cli.close()


@pytest.fixture
def tmux(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Keep the tmux of a test to itself, and end its server."""
    # Not below the test's own directory: the name of a socket may not be as long.
    with tempfile.TemporaryDirectory(prefix="tmux") as directory:
        monkeypatch.setenv("TMUX_TMPDIR", directory)
        monkeypatch.setenv("SHELL", "/bin/sh")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        for name in ("TMUX", "TMUX_PANE"):
            monkeypatch.delenv(name, raising=False)
        yield directory
        subprocess.run(["tmux", "kill-server"], check=False, capture_output=True)


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """Return a directory whose name a shell, or tmux, would read as commands."""
    directory = tmp_path / HOSTILE
    directory.mkdir()
    return str(directory)


def _launch(directory: str | None, *words: str, **presets: str) -> Launch:
    return Launch("Claude Code", ("claude", *words), directory, presets)


def _windows() -> list[str]:
    listed = ["tmux", "list-windows", "-a", "-F", "#{session_name}:#{window_name}"]
    done = subprocess.run(listed, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@needs_tmux
def test_each_launch_gets_a_window_with_its_directory_words_and_presets(
    tmux: str, cli: Cli, hostile: str
) -> None:
    placed = run.in_tmux([("alice", _launch(hostile, HOSTILE, FLEET_AGENT_ID=HOSTILE))])
    told = cli.told()
    assert told["argv"] == [HOSTILE]
    assert told["cwd"] == hostile
    assert told["agent"] == HOSTILE
    placed += run.in_tmux([("bob #(touch owned)", _launch(hostile, "--resume", "s-1"))])
    assert cli.told()["argv"] == ["--resume", "s-1"]
    assert placed == ["fleet:0", "fleet:1"]
    # The CLIs have ended, and their windows stay.
    assert _windows() == ["fleet:alice", "fleet:bob-touch-owned-"]
    assert run.attaching() == "tmux attach -t fleet"
    assert not [*Path(hostile).rglob("owned"), *Path.cwd().glob("owned")]


@needs_tmux
def test_who_is_in_tmux_gets_the_windows_there(
    tmux: str, cli: Cli, hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["-P", "-F", "#{socket_path},#{pid},0"]
    begun = ["tmux", "new-session", "-d", "-s", "mine", "-n", "first", *where, "sh"]
    done = subprocess.run(begun, capture_output=True, text=True, check=True)
    monkeypatch.setenv("TMUX", done.stdout.strip())
    assert run.in_tmux([("alice", _launch(hostile, "x"))]) == ["mine:1"]
    assert cli.told()["cwd"] == hostile
    assert _windows() == ["mine:first", "mine:alice"]
    assert run.attaching() is None


@needs_tmux
def test_a_long_prompt_goes_by_a_file_that_is_gone_afterwards(
    tmux: str, cli: Cli, hostile: str
) -> None:
    prompt = HOSTILE * 1_000 + "\nlast line"
    run.in_tmux([("alice", _launch(hostile, "--", prompt, FLEET_AGENT_ID="alice"))])
    told = cli.told()
    assert told["argv"] == ["--", prompt]
    assert (told["cwd"], told["agent"]) == (hostile, "alice")
    assert not [*Path(tmux).glob("fleet-*")]


def test_without_tmux_no_window_is_opened_and_the_error_names_another_way(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(run.TmuxFailed, match="no executable 'tmux'") as refused:
        run.in_tmux([("alice", _launch(None))])
    assert "--print" in refused.value.hint


@needs_tmux
def test_a_tmux_that_refuses_is_quoted(
    tmux: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", f"{tmux}/nobody,1,0")
    with pytest.raises(run.TmuxFailed, match=r"tmux refused: .*nobody"):
        run.in_tmux([("alice", _launch("/"))])


@needs_tmux
def test_all_is_checked_before_the_first_window_is_opened(
    tmux: str, cli: Cli, tmp_path: Path
) -> None:
    missing = Launch("Cursor", ("cursor-agent-nobody-has",), "/")
    with pytest.raises(ProgramMissing, match="cursor-agent-nobody-has"):
        run.in_tmux([("alice", _launch("/")), ("bob", missing)])
    with pytest.raises(run.DirectoryGone, match="gone is not there"):
        run.in_tmux([("alice", _launch("/")), ("bob", _launch(str(tmp_path / "gone")))])
    done = subprocess.run(["tmux", "list-windows", "-a"], check=False, capture_output=True)
    assert done.returncode != 0  # not even a server runs


def test_a_process_becomes_the_cli(cli: Cli, hostile: str) -> None:
    code = (
        "import json, sys; from fleetctl.launch import run, commands\n"
        "words, directory, presets = json.loads(sys.argv[1])\n"
        "run.in_place(commands.Launch('Claude Code', tuple(words), directory, presets))"
    )
    said = json.dumps([["claude", HOSTILE], hostile, {"FLEET_AGENT_ID": "alice"}])
    process = subprocess.Popen([sys.executable, "-c", code, said])
    told = cli.told()
    assert process.wait(timeout=WAIT_S) == 0
    assert told == {
        "argv": [HOSTILE],
        "cwd": hostile,
        "pwd": hostile,
        "pid": process.pid,
        "agent": "alice",
    }
    assert not [*Path(hostile).rglob("owned")]


def test_nothing_is_started_in_a_directory_that_is_gone(cli: Cli, tmp_path: Path) -> None:
    with pytest.raises(run.DirectoryGone):
        run.in_place(_launch(str(tmp_path / "gone")))


def test_what_the_system_cannot_run_is_an_error_of_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bin" / "claude").write_text("#!/nowhere/python\n")
    before = Path.cwd()
    with pytest.raises(run.CannotRun, match="Claude Code cannot be started: No such file"):
        run.in_place(_launch(None))
    assert Path.cwd() == before
