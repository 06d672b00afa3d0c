"""The demo's sandbox: its directory, its repository, and its processes from start to end."""

import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from fleetd.host import paths

from . import project

_OURS = ("FLEET_", "FLIGHTLINE_", "XDG_", "GIT_", "LISTEN_", "NOTIFY_", "WATCHDOG_")
_FOLDERS = ("home", "run", "data", "config", "state", "cache")


@contextmanager
def temporary_directory(*, keep: bool) -> Iterator[Path]:
    """Provide a directory with a place for everything; removes it at the end unless kept."""
    socket_path = Path(tempfile.gettempdir(), "fleet-demo-12345678", "run", "fleetd.sock")
    try:
        paths.check_socket_length(socket_path)
        directory = Path(tempfile.mkdtemp(prefix="fleet-demo-"))
    except paths.PathRefused:
        # Paths in /tmp are short enough for a socket.
        directory = Path(tempfile.mkdtemp(prefix="fleet-demo-", dir="/tmp"))
    try:
        for name in _FOLDERS:
            (directory / name).mkdir(mode=0o700)
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, once, so that nothing is left behind.

    The provided function makes further signals ignored: the cleanup must not stop halfway.
    """
    ignored = Event()

    def interrupt(number: int, _frame: object) -> None:
        if not ignored.is_set():
            ignored.set()
            raise KeyboardInterrupt(signal.Signals(number).name)

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield ignored.set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def environment(directory: Path) -> dict[str, str]:
    """Return an environment that keeps the user's files out of reach."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    here = str(Path(__file__).parents[2])
    env |= {
        "HOME": str(directory / "home"),
        # Packages that pip installed for the user stay importable despite another HOME.
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONPATH": os.pathsep.join(filter(None, (here, env.get("PYTHONPATH")))),
        "PYTHONDONTWRITEBYTECODE": "1",
        # The briefing goes through a pipe unchanged, whatever the terminal can show.
        "PYTHONUTF8": "1",
        "FLEET_SOCKET": str(directory / "run" / "fleetd.sock"),
        "FLEET_DB_PATH": str(directory / "data" / "squawk.db"),
        "FLEET_CONFIG": str(directory / "config" / "config.toml"),
        "FLIGHTLINE_DIR": str(directory / "flightline"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "operator",
        "GIT_COMMITTER_NAME": "operator",
        "GIT_AUTHOR_EMAIL": "demo@example.invalid",
        "GIT_COMMITTER_EMAIL": "demo@example.invalid",
    }
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        env[f"XDG_{name}_HOME"] = str(directory / name.lower())
    env["XDG_RUNTIME_DIR"] = str(directory / "run")
    return env


READY_S = 20.0
LEAVE_S = 10.0
LOG_LINES = 20


class StageFailed(Exception):
    """The demo cannot continue; the text says why."""


class Stage:
    """A temporary directory with a repository, a daemon and agents."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.project = directory / "textstats"
        self.socket = directory / "run" / "fleetd.sock"
        self.log = directory / "fleetd.log"
        self.checkpoints = directory / "flightline" / "checkpoints"
        self.env = environment(directory)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def lay_out(self) -> None:
        """Create the repository with the task in it."""
        self.project.mkdir()
        project.lay_out(self.project)
        for arguments in (
            ("init", "--quiet", "--initial-branch=main"),
            ("add", "."),
            ("commit", "--quiet", "-m", "A library without its functions"),
        ):
            done = self.run("git", *arguments)
            if done.returncode:
                raise StageFailed(f"git {arguments[0]} failed: {done.stdout}")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the repository; stdout and stderr come back as one text."""
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )

    def start_daemon(self) -> int:
        """Start ``fleetd``, wait until it reports that it is ready, and return its pid."""
        address = self.directory / "ready.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(address))
            process = self._start(
                "fleetd",
                [sys.executable, "-m", "fleetd"],
                {**self.env, "NOTIFY_SOCKET": str(address)},
            )
            self._await_readiness(ready)
        return process.pid

    def _await_readiness(self, ready: socket.socket) -> None:
        ready.settimeout(0.2)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                if b"READY=1" in ready.recv(4096):
                    return
            self.check()
        raise StageFailed(f"fleetd was not ready after {READY_S:.0f} s")

    def start_agent(self, program: str, agent_id: str, *arguments: str) -> int:
        """Start an agent's program and return its pid."""
        command = [sys.executable, "-m", "fleetctl.demo.agents", program, agent_id, *arguments]
        name = {**self.env, "GIT_AUTHOR_NAME": agent_id, "GIT_COMMITTER_NAME": agent_id}
        return self._start(agent_id, command, name).pid

    def _start(
        self, name: str, command: Sequence[str], env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                # The daemon must not hold a directory, agents work in theirs.
                cwd=self.directory if name == "fleetd" else self.project,
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches only the demo, which then ends everything in order.
                start_new_session=True,
            )
        self._running[name] = process
        return process

    def send_input(self, agent_id: str, text: str) -> None:
        """Give an agent its whole input."""
        stdin = self._running[agent_id].stdin
        if stdin is None:
            raise AssertionError("every process is started with a pipe")
        stdin.write(text.encode())
        stdin.close()

    def kill(self, agent_id: str) -> int:
        """End an agent with SIGKILL and return its former pid."""
        process = self._running.pop(agent_id)
        process.kill()
        _reap(process)
        return process.pid

    def leave(self, agent_id: str) -> int:
        """Wait until an agent has ended and return its exit status."""
        process = self._running.pop(agent_id)
        try:
            return process.wait(LEAVE_S)
        except subprocess.TimeoutExpired as error:
            raise StageFailed(f"{agent_id} does not end") from error
        finally:
            _end_group(process)

    def check(self) -> None:
        """Raise StageFailed when a process that should run has failed."""
        for name, process in self._running.items():
            if process.poll():
                raise StageFailed(f"{name} ended with status {process.returncode}")

    def log_tail(self) -> list[str]:
        """Return the last lines of the daemon's log, to which failing agents also write."""
        with suppress(OSError):
            return self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return []

    def close(self) -> None:
        """End every process, the daemon last."""
        for name in sorted(self._running, key=lambda name: name == "fleetd"):
            process = self._running[name]
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE_S)
            _end_group(process)
        self._running.clear()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the rest of a process and of everything that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _reap(process)


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()


@contextmanager
def open_stage(*, keep: bool) -> Iterator[Stage]:
    """Provide a stage; ends its processes and removes its directory, whatever happens."""
    if shutil.which("git") is None:
        raise StageFailed("The demo works in a git repository, but git is not installed.")
    with interruptible() as ignore_signals, temporary_directory(keep=keep) as directory:
        stage = Stage(directory)
        try:
            try:
                yield stage
            finally:
                ignore_signals()
        finally:
            # Two steps, so that a signal just before signals are ignored does not skip this.
            stage.close()
