"""What is offered for an id: what the command can do something with, at once or not at all."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fleetctl.completion import shells
from fleetctl.integrations import config_file as files
from fleetctl.integrations import settings_backups
from fleetctl.output.text import cut, width
from tests.support.processes import Daemon, Result, fleetctl
from tests.support.terminal import Terminal, terminal

HOSTILE = "$(touch pwned) `touch pwned` \"q\" 's' a:b [c] {d} \\ %F{red} ; | & > < * ?"


def offered(kind: str, prefix: str = "", **options: Any) -> list[str]:
    """Return the lines that the scripts of the shells read; there is never anything else."""
    asked = fleetctl("completions", "--ids", kind, prefix, **options)
    assert (asked.status, asked.err) == (0, "")
    return asked.out.splitlines()


def ids(kind: str, prefix: str = "") -> list[str]:
    return [line.partition("\t")[0] for line in offered(kind, prefix)]


class TestIds:
    def test_missions_are_offered_by_what_a_command_can_do_with_them(
        self, mission: str, done: Callable[..., Result]
    ) -> None:
        pending = done("mission", "create", "Later").id("msn")
        ended = done("mission", "create", "Never").id("msn")
        done("mission", "cancel", ended, "--reason", "x")

        assert ids("mission.begun") == [mission]
        assert ids("mission.pending") == [pending]
        assert ids("mission.open") == [mission, pending]
        assert ids("mission.ended") == [ended]
        assert ids("mission") == [mission, pending, ended]
        assert offered("mission.begun") == [f"{mission}\tin_progress 0%  Test"]

    def test_what_a_command_could_not_use_is_offered_when_nothing_else_fits(
        self, mission: str, done: Callable[..., Result]
    ) -> None:
        pending = done("mission", "create", "Later").id("msn")

        assert ids("mission.begun", pending) == [pending]
        assert ids("mission.begun", "nothing") == []

    def test_sorties_are_those_of_the_mission_here(
        self, mission: str, done: Callable[..., Result], home: Path, monkeypatch: Any
    ) -> None:
        elsewhere = home / "elsewhere"
        elsewhere.mkdir()
        here = [line.split()[0] for line in done("sortie", "list").out.splitlines()[1:]]
        monkeypatch.chdir(elsewhere)
        done("mission", "create", "Other", "--sortie", "Third")
        done("mission", "start")
        third = done("sortie", "list").id("srt")
        done("sortie", "start", third, "--agent", "alice")

        assert ids("sortie") == [third, *here]
        assert ids("sortie.waiting") == here
        assert ids("sortie.begun") == [third]
        assert ids("sortie.open") == [third, *here]
        assert offered("sortie.begun") == [f"{third}\tin_progress alice  Third"]

    def test_checkpoints_come_newest_first_and_undo_checkpoints_last(
        self, mission: str, done: Callable[..., Result]
    ) -> None:
        first = done("checkpoint", "--note", "Before").id("chk")
        done("sortie", "create", "More")
        second = done("checkpoint").id("chk")
        done("sortie", "create", "Still more")
        done("resume", "--checkpoint", first, "--yes")

        *others, undo = offered("checkpoint")
        assert undo.endswith(f"compaction 0%  Before recovery from {first}")
        assert [line.split()[0] for line in others][-2:] == [second, first]
        assert offered("checkpoint", first)[0].endswith("manual 0%  Before")

    def test_locks_messages_agents_runs_and_sessions(
        self, mission: str, done: Callable[..., Result]
    ) -> None:
        done("agent", "start", "alice")
        done("agent", "start", "claude:1")
        done("agent", "start", "bob")
        done("agent", "deregister", "bob")
        lock = done("lock", "acquire", "a b.py", "--agent", "alice").id("lck")
        done("lock", "acquire", "c.py", "--agent", "alice")
        mail = ("mail", "send", "Hello\nyou", "--from", "alice")
        read = done(*mail, "--to", "claude:1", "--thread", "t-1").id("msg")
        letter = done(*mail, "--to", "claude:1").id("msg")
        done("mail", "ack", read, "--agent", "claude:1")
        recorded = ("snapshot", "record", "--agent", "alice", "--run", "run-1", "--json")
        snapshot = done(*recorded).json["snapshot_id"]

        assert ids("agent") == ["alice", "claude:1", "bob"]
        assert ids("agent", "cl") == ["claude:1"]
        assert ids("lock.active", lock) == [lock]
        assert offered("lock.active", lock)[0].endswith("a b.py")
        assert ids("message.open") == [letter]
        assert offered("message.open") == [f"{letter}\talice to claude:1  Hello you"]
        assert ids("thread") == ["t-1"]
        assert ids("run") == ["run-1"]
        assert ids("snapshot") == [snapshot, "run-1"]
        assert ids("session") == ["run-1"]

    def test_an_unknown_kind_is_nothing(self, daemon: Daemon) -> None:
        assert offered("nonsense") == []


class TestNobodyAnswers:
    def test_no_daemon_is_no_offer(self, home: Path) -> None:
        assert offered("mission") == []

    def test_a_daemon_that_was_killed_is_no_offer(self, daemon: Daemon) -> None:
        daemon.kill()
        assert offered("mission") == []

    def test_a_daemon_that_hangs_is_no_offer(self, home: Path) -> None:
        with listening(home):
            sign(home, os.getpid())
            assert offered("mission") == []

    def test_a_pipe_in_the_place_of_the_lock_is_no_offer(self, home: Path) -> None:
        os.mkfifo(home / "run" / "fleetd.lock")
        assert offered("mission") == []

    def test_nobody_is_started_who_waits_for_a_first_client(
        self, home: Path, mortal: Callable[[], subprocess.Popen[bytes]]
    ) -> None:
        ended = mortal()
        ended.kill()
        ended.wait()
        for signed in ("", "nonsense", str(ended.pid)):
            with listening(home) as server:
                sign(home, signed)
                assert offered("mission") == []
                with pytest.raises(BlockingIOError):
                    server.accept()

    def test_a_directory_that_is_gone_is_no_error(self, mission: str, home: Path) -> None:
        gone = home / "gone"
        gone.mkdir()
        # The timer must be off at the end: the interpreter takes the handler away, and then the
        # signal would kill it.
        code = (
            "import atexit, os, signal\n"
            "from fleetctl.cli import main\n"
            "os.rmdir(os.getcwd())\n"
            "atexit.register(lambda: print(signal.getitimer(signal.ITIMER_REAL)[0]))\n"
            "main()"
        )
        command = [sys.executable, "-c", code, "completions", "--ids", "sortie", ""]
        done = subprocess.run(command, cwd=gone, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"0.0\n", b"")


def listening(home: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    path = home / "run" / "d.sock"
    path.unlink(missing_ok=True)
    server.bind(str(path))
    server.listen()
    server.setblocking(False)
    return server


def sign(home: Path, pid: object) -> None:
    (home / "run" / "fleetd.lock").write_text(f"{pid}\n")


@pytest.fixture
def shell(home: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that starts an interactive shell, with fleetctl on its PATH."""
    programs = home / "bin"
    programs.mkdir()
    for name in ("fleetctl", "fleet"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleetctl "$@"\n')
        program.chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "INPUTRC": "/dev/null"}
    with ExitStack() as shells_open:

        def start(*begin: str, columns: int = 80) -> Terminal:
            program = "zsh" if any("compinit" in line for line in begin) else "bash"
            options = ["-f", "-i"] if program == "zsh" else ["--noprofile", "--norc", "-i"]
            if (found := shutil.which(program)) is None:
                pytest.skip(f"{program} is not installed")
            run = terminal([found, *options], env=env, cwd=home / "project", columns=columns)
            opened = shells_open.enter_context(run)
            # A shell at a terminal does not heed SIGTERM.
            shells_open.callback(opened.process.kill)
            opened.press("PS1='> '; unset PROMPT_COMMAND\r")
            for line in begin:
                opened.press(f"{line}\r")
            # The answer is not in the line that asks, so that it is seen when it is there.
            opened.press("clear; echo rea''dy\r")
            opened.until(lambda text: text.splitlines()[:2] == ["ready", ">"])
            return opened

        yield start


WITHOUT = ('eval "$(fleetctl completions bash)"',)
PACKAGE = Path("/usr/share/bash-completion/bash_completion")
WITH = (f". {PACKAGE}", *WITHOUT)
ZSH = ("autoload -Uz compinit; compinit -u -D", 'eval "$(fleetctl completions zsh)"')
SHELLS = {"bash": WITHOUT, "bash with bash-completion": WITH, "zsh": ZSH}


@pytest.fixture(params=SHELLS.values(), ids=SHELLS.keys())
def completing(request: pytest.FixtureRequest, shell: Callable[..., Terminal]) -> Terminal:
    if request.param is WITH and not PACKAGE.exists():
        pytest.skip("bash-completion is not installed")
    return shell(*request.param)


def typed(opened: Terminal, text: str, becomes: str) -> None:
    """Type a text, press TAB, and wait for what it becomes; then empty the line."""
    opened.press(text, "tab")
    # zsh puts the = behind an option, and takes it away again when a space follows.
    opened.until(lambda screen: {f"> {becomes}", f"> {becomes}="} & set(screen.splitlines()))
    opened.press("\x15", "\x0c")
    opened.until(lambda screen: screen.strip() == ">")


class TestShells:
    def test_commands_options_words_and_files_are_completed(self, completing: Terminal) -> None:
        Path("a file.txt").touch()
        Path("a-directory").mkdir()
        typed(completing, "fleetctl checkpoint pr", "fleetctl checkpoint prune")
        typed(completing, "fleet mission list --stat", "fleet mission list --status")
        typed(
            completing, "fleet mission list --status comp", "fleet mission list --status completed"
        )
        typed(completing, "fleetctl call mission.cre", "fleetctl call mission.create")
        typed(completing, "fleetctl hooks install anti", "fleetctl hooks install antigravity")
        typed(completing, "fleetctl hooks install gem", "fleetctl hooks install gemini")
        typed(completing, "fleetctl backup a\\ f", "fleetctl backup a\\ file.txt")
        typed(
            completing,
            "fleetctl mission list --project-dir a",
            "fleetctl mission list --project-dir a-directory/",
        )
        typed(completing, "fleetd --log-level DEB", "fleetd --log-level DEBUG")

    def test_ids_are_completed(
        self, completing: Terminal, mission: str, done: Callable[..., Result]
    ) -> None:
        for agent in ("alice", "claude:1", "claude:2"):
            done("agent", "start", agent)
        typed(completing, "fleetctl mission complete m", f"fleetctl mission complete {mission}")
        typed(completing, "fleet events --mission=m", f"fleet events --mission={mission}")
        typed(completing, "fleet events --mission m", f"fleet events --mission {mission}")
        typed(completing, "fleetctl agent show cl", "fleetctl agent show claude:")
        typed(
            completing,
            "fleetctl agent list; fleet agent show ali",
            "fleetctl agent list; fleet agent show alice",
        )
        typed(
            completing,
            "fleet sortie list --agent=al",
            "fleet sortie list --agent=alice",
        )

    @pytest.mark.parametrize("columns", [80, 40])
    @pytest.mark.parametrize("begin", SHELLS.values(), ids=SHELLS.keys())
    def test_hostile_titles_are_shown_and_nothing_else(
        self,
        shell: Callable[..., Terminal],
        daemon: Daemon,
        done: Callable[..., Result],
        begin: tuple[str, ...],
        columns: int,
    ) -> None:
        if begin is WITH and not PACKAGE.exists():
            pytest.skip("bash-completion is not installed")
        found = [done("mission", "create", HOSTILE + "\x1b[31m\n\tx").id("msn") for _ in range(2)]
        opened = shell(*begin, columns=columns)
        opened.press("fleetctl mission start ", "tab")
        opened.until("start msn-")
        opened.press("tab", "tab")
        text = opened.until(lambda screen: all(each in screen for each in found))
        for each in found:
            row = next(line for line in text.splitlines() if line.startswith(each))
            assert row == cut(f"{each}  pending  {HOSTILE}", columns - 1)
        assert not Path("pwned").exists()

    def test_without_a_daemon_nothing_is_offered_and_nothing_said(
        self, completing: Terminal, home: Path
    ) -> None:
        typed(completing, "fleetctl mission show m", "fleetctl mission show m")
        typed(completing, "fleetctl mission sho", "fleetctl mission show")


def test_what_an_id_stands_for_is_cut_by_columns(monkeypatch, done, daemon):
    done("mission", "create", "漢字" * 40)
    monkeypatch.setenv("COLUMNS", "80")

    told = done("completions", "--ids", "mission", "").out.rstrip("\n")

    assert told.endswith("…")
    assert 77 <= width(told.replace("\t", "  ")) <= 79


class TestInstall:
    @pytest.mark.parametrize("name", shells.SHELLS)
    def test_it_shows_asks_writes_and_is_content(
        self, run: Callable[..., Result], home: Path, answer: Callable[[str], None], name: str
    ) -> None:
        directory = shells.directory(name)
        shown = run("completions", name, "--install", "--dry-run")
        assert shown.status == 0
        assert f"{directory}/" in shown.out
        assert "[DRY RUN]" in shown.out
        assert not directory.exists()

        answer("n")
        refused = run("completions", name, "--install")
        assert (refused.status, directory.exists()) == (3, False)

        answer("y")
        written = run("completions", name, "--install")
        assert written.status == 0
        files = {file.name: file.read_text() for file in directory.iterdir()}
        assert len(files) == len(shells._LOADERS[name])
        again = run("completions", name, "--install", "--yes", "--json")
        assert again.json["changed"] is False

    def test_what_somebody_else_had_put_there_is_kept(self, done: Callable[..., Result]) -> None:
        theirs = shells.directory("bash") / "fleetd"
        theirs.parent.mkdir(parents=True)
        theirs.write_text("complete -W start fleetd\n")
        told = done("completions", "bash", "--install", "--yes").out
        kept = settings_backups.place(files.read(theirs))
        assert f"What was there before: {kept}" in told
        assert kept.read_text() == "complete -W start fleetd\n"
        assert "fleetctl completions bash" in theirs.read_text()

    def test_bash_loads_what_was_installed(
        self, shell: Callable[..., Terminal], done: Callable[..., Result], mission: str
    ) -> None:
        if not PACKAGE.exists():
            pytest.skip("bash-completion is not installed")
        done("completions", "bash", "--install", "--yes")
        opened = shell(WITH[0])
        typed(opened, "fleet mission complete m", f"fleet mission complete {mission}")
        typed(opened, "fleetctl mission complete m", f"fleetctl mission complete {mission}")

    def test_zsh_loads_what_was_installed(
        self, shell: Callable[..., Terminal], done: Callable[..., Result], mission: str
    ) -> None:
        done("completions", "zsh", "--install", "--yes")
        opened = shell(f"fpath=({shells.directory('zsh')} $fpath)", ZSH[0])
        typed(opened, "fleet mission complete m", f"fleet mission complete {mission}")
        typed(opened, "fleetctl mission complete m", f"fleetctl mission complete {mission}")

    def test_a_shell_must_be_named(self, run: Callable[..., Result]) -> None:
        refused = run("completions")
        assert refused.status == 2
        assert "Name your shell: bash or zsh." in refused.err
