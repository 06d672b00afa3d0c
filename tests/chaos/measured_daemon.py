"""A daemon that is measured from outside, perhaps with a defect; must not know any campaign."""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.chaos.campaign import Red
from tests.support.processes import Daemon

MB = 1024 * 1024
_BAD = re.compile(r"Traceback|Incident|\[ERROR\]|A connection failed")
_PLANT = "from tests.chaos.plant import plant\n"
_MAIN = "\nimport sys\nfrom fleetd.__main__ import main\nsys.exit(main())"


@contextmanager
def measured(
    home: Path, env: Mapping[str, str], *, settings: str = "", defect: str = ""
) -> Iterator["MeasuredDaemon"]:
    """Run a daemon with ``settings`` (TOML); ``defect`` is Python that it runs before the start."""
    directory = home / "config" / "fleet"
    directory.mkdir(mode=0o700, exist_ok=True)
    (directory / "config.toml").write_text(settings)
    command = (sys.executable, "-c", _PLANT + defect + _MAIN)
    daemon = Daemon(home / "run" / "d.sock", home / "daemon.log", env=dict(env), command=command)
    daemon.start()
    try:
        yield MeasuredDaemon(daemon)
    finally:
        daemon.clean_up()


class MeasuredDaemon:
    """The resources that a running daemon uses, and its log."""

    def __init__(self, daemon: Daemon) -> None:
        assert daemon.process is not None
        self.daemon = daemon
        self.socket = daemon.socket
        self.pid = daemon.process.pid
        self._read = 0

    def cpu_ms(self) -> float:
        """Return the CPU time of all its threads since its start."""
        # The kernel's id for the CPU clock of another process.
        return time.clock_gettime_ns((~self.pid << 3) | 2) / 1e6

    def rss(self) -> int:
        """Return its resident bytes."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """Return the peak of resident memory since ``forget_peak``, in bytes."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Reset the peak."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        """Return how many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def sockets(self) -> int:
        """Return how many sockets it has open: one for each client, and its own."""
        found = 0
        for each in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                found += os.readlink(each).startswith("socket:")
        return found

    def threads(self) -> int:
        """Return how many threads it has."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise Red(f"the daemon is gone, with its {name}")

    def at_rest(self, sockets: int, *, patience_s: float) -> None:
        """Wait until no more sockets are open than before; raises Red."""
        deadline = time.monotonic() + patience_s
        while (now := self.sockets()) > sockets:
            if time.monotonic() > deadline:
                raise Red(f"{now} sockets are open, {sockets} were at the beginning")
            time.sleep(0.01)

    def well(self) -> None:
        """Raise Red unless it runs and has logged no bug since the last call."""
        assert self.daemon.process is not None
        if (status := self.daemon.process.poll()) is not None:
            raise Red(f"the daemon ended with {status}: {self.daemon.log.read_text()[-2_000:]}")
        with self.daemon.log.open() as log:
            log.seek(self._read)
            said = log.read()
            self._read = log.tell()
        if found := _BAD.search(said):
            raise Red(f"the log complains: {said[max(0, found.start() - 200) :][:2_000]}")


def dial(path: Path, patience_s: float) -> socket.socket:
    """Connect; raise Red when nothing listens, wait while the backlog is full."""
    deadline = time.monotonic() + patience_s
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(patience_s)
        try:
            sock.connect(os.fspath(path))
        except OSError as error:
            sock.close()
            if isinstance(error, BlockingIOError) and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            raise Red(f"no connection to the daemon: {error!r}") from error
        return sock


def shut(sock: socket.socket) -> None:
    """Close a socket in any state."""
    with suppress(OSError):
        sock.close()
