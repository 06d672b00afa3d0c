"""Machines of one fleet on this computer, each with its own home, daemon and clock.

Where the kernel allows it, each also has its own host name. Must not know what is done there.
"""

import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError
from tests.chaos.campaign import CannotRun, Red
from tests.support.network import Network
from tests.support.postgres_programs import NotInstalled, binaries
from tests.support.postgres_server import OWNER, LocalPostgres
from tests.support.processes import Daemon, environment

REMOTE = "https://example.org/team/fleet.git"
# The name of a project with that remote on every machine.
NAME = "example.org/team/fleet"
PROGRAM = "tests.chaos.injected_shared_bugs"
PATIENCE_S = 60.0


@cache
def _has_names() -> bool:
    """Return whether a process can have its own host name."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(
        ["unshare", "--uts", "sh", "-c", "hostname fleet-try"], capture_output=True, check=False
    )
    return tried.returncode == 0


class FleetMachine:
    """One machine: a test may kill its daemon, set its clock, and cut its network.

    ``here`` is whether its daemon should be running.
    """

    def __init__(self, number: int, place: Path, url: str, defect: str | None) -> None:
        self.number, self.name = number, f"fleet-{number}"
        self.home = place / f"m{number}"
        self.home.mkdir()
        self.env = environment(self.home) | {"FLEET_DATABASE_URL": url}
        self.project = self.home / "project"
        self.socket = self.home / "run" / "d.sock"
        self._clock = self.home / "clock"
        self.here = threading.Event()
        self.set_clock(0)
        self._clone()
        command = [sys.executable, "-m", PROGRAM, str(self._clock), *([defect] if defect else [])]
        if _has_names():
            named = f'hostname {self.name} && exec "$@"'
            command = ["unshare", "--uts", "sh", "-c", named, "sh", *command]
        self.daemon = Daemon(self.socket, self.home / "daemon.log", env=self.env, command=command)

    def _clone(self) -> None:
        for words in (("init", "-q"), ("remote", "add", "origin", REMOTE)):
            subprocess.run(["git", *words], cwd=self.project, check=True, capture_output=True)

    def set_clock(self, ms: int) -> None:
        """Shift its wall clock by an offset from now on."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack("q", ms * 1_000_000))

    def start(self) -> None:
        """Start its daemon and wait until it answers."""
        self.daemon.start()
        self.here.set()

    def kill(self) -> None:
        """End its daemon with SIGKILL."""
        self.here.clear()
        self.daemon.kill()

    @property
    def id(self) -> str:
        """The machine's id in the rows of the store."""
        return (self.home / "data" / "machine-id").read_text().strip()

    def well(self) -> None:
        """Raise Red when the daemon has ended by itself, or logged a bug."""
        log = self.daemon.log.read_text()
        process = self.daemon.process
        if "Traceback" in log or "because of a bug" in log:
            raise Red(f"{self.name}: {log[-4_000:]}")
        if self.here.is_set() and process is not None and process.poll() is not None:
            raise Red(f"{self.name} left with {process.returncode}: {log[-2_000:]}")

    def patient(self) -> Fleet:
        """Return a client that waits for the store; raises Red when it stays unavailable."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with ExitStack() as undo:
                    client = undo.enter_context(Fleet(self.socket))
                    client.call_raw("mission.list", {"limit": 1})
                    undo.pop_all()
                    return client
            except FleetError as error:
                if time.monotonic() > deadline:
                    raise Red(f"{self.name} does not come back: {error}") from error
                time.sleep(0.1)


class FleetMachines:
    """Several machines, their server, and the network between them."""

    def __init__(
        self, place: Path, server: LocalPostgres, network: Network, number: int, defect: str | None
    ) -> None:
        self.server, self.network = server, network
        self._database = server.new_database()
        self.all = [
            FleetMachine(
                n, place, f"postgresql://{OWNER}@127.0.0.1:{port}/{self._database}", defect
            )
            for n, port in zip(range(number), network.ports, strict=True)
        ]

    def rows(self, statement: str, *values: object) -> list[dict[str, object]]:
        """Query the database directly."""
        return self.server.sql(statement, *values, database=self._database)

    def clean_up(self) -> None:
        """End every daemon."""
        for machine in self.all:
            machine.daemon.clean_up()


@contextmanager
def running(place: Path, number: int, defect: str | None) -> Iterator[FleetMachines]:
    """Run so many machines on one server that syncs; raises CannotRun."""
    try:
        binaries()
    except NotInstalled as reason:
        raise CannotRun(str(reason)) from reason
    with LocalPostgres(durable=True) as server, Network(server.port, number) as network:
        machines = FleetMachines(place, server, network, number, defect)
        try:
            for machine in machines.all:
                machine.start()
            yield machines
        finally:
            machines.clean_up()
