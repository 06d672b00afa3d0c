"""A real daemon in a directory of its own, and the command line to talk to it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleetctl import cli
from fleetctl.client import Client
from fleetd.wire.errors import Unavailable

READY_S = 20
EXIT_S = 20


@dataclass
class Result:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout, which must be exactly one JSON document."""
        return json.loads(self.out)

    def id(self, prefix: str) -> str:
        """Return the first id of a kind in the output."""
        found = re.search(rf"\b{prefix}-[0-9a-f]{{8}}\b", self.out)
        assert found, f"no {prefix} id in {self.out!r} ({self.err!r})"
        return found[0]


@dataclass
class Daemon:
    """A fleetd process that a test may stop and start again."""

    socket: Path
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "fleetd"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with Client(self.socket) as client:
                    client.call_raw("system.hello")
                return
            except Unavailable:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop the daemon; it must leave in good order."""
        assert self.process is not None
        try:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(EXIT_S) == 0, self.log.read_text()
        finally:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory where nothing is; the current directory is a project in it."""
    for name in [name for name in os.environ if name.startswith(("FLEET_", "FLIGHTLINE_"))]:
        monkeypatch.delenv(name)
    for name, directory in (
        ("HOME", "home"),
        ("XDG_RUNTIME_DIR", "run"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_CONFIG_HOME", "config"),
    ):
        (tmp_path / directory).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / directory))
    monkeypatch.setenv("FLEET_SOCKET", str(tmp_path / "run" / "d.sock"))
    monkeypatch.setenv("FLEET_DB_PATH", str(tmp_path / "data" / "squawk.db"))
    monkeypatch.setenv("FLIGHTLINE_DIR", str(tmp_path / "flightline"))
    root = str(Path(cli.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", root)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return tmp_path


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    """Run a daemon; it must end with status 0."""
    running = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log")
    running.start()
    try:
        yield running
    finally:
        if running.process is not None:
            running.stop()


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
