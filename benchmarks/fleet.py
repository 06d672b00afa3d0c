"""A fleetd process for the benchmarks, and missions in it; must not measure anything."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from fleetd.protocol.records import Checkpoint

from .client import Client

ROOT = Path(__file__).parents[1]
READY_S = 20.0
EXIT_S = 15.0
BACKUP_S = 10.0
AGENTS = ("dispatch", "specialist-1", "specialist-2", "specialist-3")


class Fleet:
    """A running daemon with a client. Like a tool's calls, these carry no idempotency key."""

    def __init__(self, directory: Path, socket: Path, env: dict[str, str], pid: int) -> None:
        self.directory = directory
        self.socket = socket
        self.env = env
        self.client = Client(socket)
        self.pid = pid

    def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result as plain data."""
        return self.client.call(method, params)

    def mission(self, sorties: int, project_dir: Path | None = None) -> str:
        """Start a mission whose sorties are spread over the agents; return its id."""
        wanted = [
            {
                "title": f"Port module {number} to the new API",
                "description": "Keep the old entry points until every caller has moved.",
                "files": [f"src/module_{number}.py", f"tests/test_module_{number}.py"],
                "assigned_to": AGENTS[number % len(AGENTS)],
            }
            for number in range(sorties)
        ]
        place = {"project_dir": str(project_dir)} if project_dir else {}
        made = self.call("mission.create", title="Port the tree", sorties=wanted, **place)
        self.call("mission.start", mission_id=made["id"])
        return str(made["id"])

    def checkpoint(self, mission_id: str, *, wait: bool) -> str:
        """Take a checkpoint, waiting for its file or not; return its id."""
        taken = self.call("checkpoint.create", mission_id=mission_id, wait_for_backup=wait)
        return str(taken["id"])

    def taken(self, sorties: int) -> Checkpoint:
        """Take a checkpoint of a new mission and return it."""
        taken = self.checkpoint(self.mission(sorties), wait=True)
        return msgspec.convert(self.call("checkpoint.get", checkpoint_id=taken), Checkpoint)

    @property
    def memory_bytes(self) -> int:
        """Return the daemon's memory in use, as the kernel counts it (RSS)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def settle(self) -> None:
        """Wait until every checkpoint's file is written, so that no other write shares the disk."""
        deadline = time.monotonic() + BACKUP_S
        while self.call("system.status")["backup_backlog"]:
            if time.monotonic() > deadline:
                raise TimeoutError("fleetd does not write its checkpoint files; look at its log")
            time.sleep(0.001)


@contextmanager
def running(
    directory: Path,
    base: Mapping[str, str] | None = None,
    /,
    *,
    module: str = "fleetd",
    **more: str,
) -> Iterator[Fleet]:
    """Run a daemon with all its files in ``directory``; only its socket may be elsewhere.

    ``module`` is run as the daemon. Its environment is ``base``, by default that of this process,
    with ``more``, and without the variables of another fleet.
    """
    with tempfile.TemporaryDirectory(prefix="fleetd-") as short:
        socket = Path(short) / "run" / "d.sock"
        env = _environment(directory, socket, os.environ if base is None else base) | more
        with (directory / "fleetd.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module], env=env, stdout=log, stderr=log
            )
        try:
            _wait_until_ready(process, socket, directory / "fleetd.log")
            fleet = Fleet(directory, socket, env, process.pid)
            try:
                yield fleet
            finally:
                fleet.client.close()
        finally:
            _stop(process)


def _environment(directory: Path, socket: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that does not refer to the user's own fleet.

    Variables that change Python are removed too: without compiled modules a command takes twice as
    long, and an installed one has them.
    """
    foreign = ("FLEET_", "FLIGHTLINE_", "XDG_", "PYTHON")
    kept = {name: value for name, value in base.items() if not name.startswith(foreign)}
    return kept | {
        "HOME": str(directory),
        "PYTHONPATH": str(ROOT),
        "FLEET_SOCKET": str(socket),
        "FLEET_DB_PATH": str(directory / "squawk.db"),
        "FLIGHTLINE_DIR": str(directory / "flightline"),
        "FLEET_CONFIG": str(directory / "config.toml"),
    }


def _wait_until_ready(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with Client(socket) as client:
                client.call("system.hello", {})
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"fleetd did not start:\n{log.read_text()}") from None
            time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(EXIT_S)
    finally:
        process.kill()
        process.wait()
