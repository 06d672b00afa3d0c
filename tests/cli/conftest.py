"""The command line in this process, with the daemon of the fixtures above to talk to."""

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl import cli
from fleetctl.integrations import hook_command
from tests.support.hook_client import HOOK, compiled
from tests.support.processes import Daemon, Result

RUNS = hook_command.runs


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Return a function that runs a command in this process."""

    def command(*argv: str) -> Result:
        capsys.readouterr()
        status = cli.main(argv)
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return command


@pytest.fixture
def done(run: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that runs a command which must succeed."""

    def command(*argv: str) -> Result:
        result = run(*argv)
        assert result.status == 0, result
        return result

    return command


@pytest.fixture(autouse=True)
def client_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have hooks run the client in Python, whether or not a compiled one was built here."""
    monkeypatch.setattr(hook_command, "runs", lambda _program: False)


@pytest.fixture
def client_in_c(home: Path, monkeypatch: pytest.MonkeyPatch, client_in_python: None) -> Path:
    """Have hooks run a compiled client; return it."""
    program = home / "an installation" / "fleetctl" / "_hook_client"
    program.parent.mkdir(parents=True)
    shutil.copy(compiled(), program)
    in_python = program.with_name("hook.py")
    for each in (in_python, program.with_name("hook_client.py")):
        shutil.copy(HOOK.with_name(each.name), each)
    monkeypatch.setattr(hook_command, "client", lambda: in_python)
    monkeypatch.setattr(hook_command, "runs", RUNS)
    return program


@pytest.fixture
def mission(daemon: Daemon, done: Callable[..., Result]) -> str:
    """Return the id of a mission in progress with two sorties."""
    created = done("mission", "create", "Test", "--sortie", "One", "--sortie", "Two")
    done("mission", "start")
    return created.id("msn")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts somebody at the terminal who answers the next question."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def say(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(text + "\n"))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("NO_COLOR", "1")

    return say


@pytest.fixture
def subprocess_run(home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command as a process of its own, without a terminal."""

    def command(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fleetctl", *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )

    return command


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a user who has Claude Code, and the hooks in it."""
    user = home / "home"
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    programs = home / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    (programs / "claude").write_text("#!/bin/sh\necho '2.1.200 (Claude Code)'\n")
    (programs / "claude").chmod(0o755)
    return user


@pytest.fixture
def settings(machine: Path, done: Callable[..., Result]) -> Path:
    """Return Claude Code's settings with the hooks in them."""
    done("hooks", "install", "claude", "--yes")
    return machine / ".claude" / "settings.json"
