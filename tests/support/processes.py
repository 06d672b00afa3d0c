"""The product as separate processes: the daemon and the command line; must not know rules."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fleetd
from fleetctl.client import Fleet
from fleetd.protocol.errors import Unavailable
from tests.support import shared_store
from tests.support.warm_daemon import WarmDaemon

READY_S = 60
EXIT_S = 60
_PROGRAM = (sys.executable, "-m", "fleetd")
# The files that a daemon leaves behind: see fleetd.host.paths.locks_of.
LOCKS = {"fleetd.lock", "squawk.db-lock", ".fleetd.lock"}


@dataclass
class Result:
    """The results of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout, which must be exactly one JSON document."""
        return json.loads(self.out)

    def id(self, prefix: str) -> str:
        """Return the first id of a kind in the output."""
        found = ids(prefix, self.out)
        assert found, f"no {prefix} id in {self.out!r} ({self.err!r})"
        return found[0]


def ids(prefix: str, text: str) -> list[str]:
    """Return every id of a kind in a text."""
    return re.findall(rf"\b{prefix}-[0-9a-f]{{8}}\b", text)


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user whose files are all below ``home``, which it creates.

    ``home`` must have a short name: a socket's path has to fit into 107 bytes.
    """
    foreign = ("FLEET_", "FLIGHTLINE_", "LISTEN_", "NOTIFY_", "WATCHDOG_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    for name, directory in (
        ("HOME", "home"),
        ("XDG_RUNTIME_DIR", "run"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_CONFIG_HOME", "config"),
    ):
        (home / directory).mkdir(mode=0o700, exist_ok=True)
        env[name] = str(home / directory)
    (home / "project").mkdir(exist_ok=True)
    return env | {
        "FLEET_SOCKET": str(home / "run" / "d.sock"),
        "FLEET_DB_PATH": str(home / "data" / "squawk.db"),
        "FLIGHTLINE_DIR": str(home / "flightline"),
        "PYTHONPATH": str(Path(fleetd.__file__).parents[1]),
        **({"FLEET_DATABASE_URL": shared_store.url(home)} if shared_store.SERVER else {}),
    }


class NeverReady(AssertionError):
    """The daemon ended before its first answer; the text is its log."""


@dataclass
class Daemon:
    """A fleetd process that a test may stop, kill and start again.

    ``env`` is its whole environment, by default the test's own. ``command`` starts it, for a daemon
    that is traced or made to misbehave. A ``warm`` daemon imports nothing.
    """

    socket: Path
    log: Path
    process: subprocess.Popen[bytes] | WarmDaemon | None = field(default=None)
    env: Mapping[str, str] | None = None
    command: Sequence[str] = _PROGRAM
    was_ready: bool = False
    warm: bool = False

    def spawn(self) -> subprocess.Popen[bytes] | WarmDaemon:
        """Start the daemon and return without waiting."""
        env = dict(os.environ if self.env is None else self.env)
        # Measuring makes a daemon twice as slow, and what it runs the tests of its rules measure.
        env.pop("COVERAGE_PROCESS_CONFIG", None)
        if self.warm and self.command == _PROGRAM:
            self.process = WarmDaemon(env, self.log)
            return self.process
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=env)
        return self.process

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        self.spawn()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the daemon answers; if it ends instead, raise an error with its log."""
        assert self.process is not None
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with Fleet(self.socket) as client:
                    client.call_raw("system.hello")
                self.was_ready = True
                return
            except Unavailable:
                if not self.was_ready and self.process.poll() is not None:
                    raise NeverReady(self.log.read_text()) from None
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.02)

    def clean_up(self) -> None:
        """End the daemon if it still runs, in whatever state it is."""
        if self.process is not None:
            self.kill()

    def stop(self) -> None:
        """Stop the daemon; it must shut down cleanly."""
        assert self.process is not None
        try:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(EXIT_S) == 0, self.log.read_text()
        finally:
            self.process.kill()
            self.process.wait()
            self.process = None

    def kill(self) -> None:
        """End the daemon with SIGKILL, so that it cannot finish anything."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None


def fleetctl(*argv: str, stdin: str | None = None, **options: Any) -> Result:
    """Run a command in a separate process, without a terminal."""
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **given,
        **options,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def agent_process() -> subprocess.Popen[bytes]:
    """Start a process that represents an agent; the caller ends it."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def with_checkpoints(client: Fleet, number: int) -> str:
    """Create a mission with many checkpoints that can be pruned; return its id."""
    wanted = {"title": "m", "description": "x" * 9_000}
    mission: str = client.call_raw("mission.create", wanted)["id"]
    client.call_raw("mission.start", {"mission_id": mission})
    for n in range(number):
        last = n == number - 1
        client.call_raw("checkpoint.create", {"mission_id": mission, "wait_for_backup": last})
    return mission
