"""Real daemons: ``python -m fleetd`` in a process of its own, with everything in tmp_path."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fleetd

PATIENCE = 30.0
READY = f"fleetd {fleetd.__version__} listens on"


class LineClient:
    """One blocking connection."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(path))
        self._lines = self.sock.makefile("rb")

    def send(self, method: str, params: Any = None, identity: Any = 1) -> None:
        request = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}
        self.sock.sendall(json.dumps(request).encode() + b"\n")

    def line(self) -> Any:
        """Return the next line, None at the end."""
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def call(self, method: str, params: Any = None) -> Any:
        """Return the result of a request that must succeed."""
        self.send(method, params)
        reply = self.line()
        assert reply is not None, "the daemon closed the connection"
        assert "result" in reply, reply
        return reply["result"]

    def close(self) -> None:
        self._lines.close()
        self.sock.close()


class DaemonProcess:
    """One process of fleetd."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.process = process
        self.socket = path
        self.log = ""
        self._clients: list[LineClient] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for_log(self, text: str) -> str:
        """Read the log until a line holds ``text``, and return that line."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if text in line:
                return line
        raise AssertionError(f"fleetd ended with {self.process.wait()} before {text!r}: {self.log}")

    def client_when_ready(self) -> LineClient:
        self.wait_for_log(READY)
        return self.client()

    def client(self) -> LineClient:
        client = LineClient(self.socket)
        self._clients.append(client)
        return client

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Return the exit status; the log is complete then."""
        assert self.process.stderr is not None
        self.log += self.process.stderr.read()
        return self.process.wait(PATIENCE)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def clean_up(self) -> None:
        for client in self._clients:
            client.close()
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()


class DaemonHome:
    """Starts daemons that share one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runtime = home / "run"
        self.runtime.mkdir(mode=0o700)
        self.directory = self.runtime / "fleet"
        self.socket = self.directory / "fleetd.sock"
        self._daemons: list[DaemonProcess] = []

    @property
    def env(self) -> dict[str, str]:
        foreign = ("FLEET_", "FLIGHTLINE_", "XDG_", "LISTEN_", "NOTIFY_", "WATCHDOG_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        home = str(self.home)
        return env | {
            "HOME": home,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_DATA_HOME": f"{home}/data",
            "XDG_CONFIG_HOME": f"{home}/config",
            "XDG_STATE_HOME": f"{home}/state",
            "PYTHONPATH": str(Path(fleetd.__file__).parents[1]),
        }

    def spawn(
        self, *arguments: str, env: dict[str, str] | None = None, **options: Any
    ) -> DaemonProcess:
        """Start a daemon and return at once."""
        command = options.pop("command", [sys.executable, "-m", "fleetd"])
        process = subprocess.Popen(
            [*command, *arguments],
            env=self.env | (env or {}),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        path = Path((env or {}).get("FLEET_SOCKET", self.socket))
        daemon = DaemonProcess(process, path)
        self._daemons.append(daemon)
        return daemon

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> DaemonProcess:
        """Start a daemon and return when it serves."""
        daemon = self.spawn(*arguments, env=env)
        daemon.wait_for_log(READY)
        return daemon

    def refuse(self, env: dict[str, str] | None = None) -> tuple[int, str]:
        """Start a daemon that must not come up; return its exit status and its log."""
        daemon = self.spawn(env=env)
        status = daemon.wait()
        assert READY not in daemon.log
        return status, daemon.log

    def clean_up(self) -> None:
        for daemon in self._daemons:
            daemon.clean_up()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[DaemonHome]:
    fleet = DaemonHome(tmp_path)
    yield fleet
    fleet.clean_up()


@pytest.fixture
def daemon(fleet: DaemonHome) -> DaemonProcess:
    return fleet.start()


@pytest.fixture
def notify_socket(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """A stand-in for systemd's side; returns the next notification."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE)
        sock.bind(str(tmp_path / "notify"))

        def receive() -> str:
            return sock.recv(4_096).decode()

        yield receive
