"""The resources of a daemon: its memory and its CPU time; must not send it requests."""

import os
import time
from pathlib import Path

# How long a daemon must have been idle, and the share of that time that counts as idle.
REST_S, REST_SHARE = 0.3, 0.05
PATIENCE_S = 60.0


class Process:
    """A process observed from outside, by its id."""

    def __init__(self, pid: int) -> None:
        self._place = Path(f"/proc/{pid}")

    def cpu_ms(self) -> float:
        """Return the total CPU time of all its threads."""
        tasks = (self._place / "task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6

    def rss_mb(self) -> float:
        """Return its resident memory now, including mapped files."""
        pages = int((self._place / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def rest(self) -> None:
        """Wait until it is idle, so that its background work does not count."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            before = self.cpu_ms()
            time.sleep(REST_S)
            if self.cpu_ms() - before < REST_SHARE * REST_S * 1_000:
                return
        raise TimeoutError(f"fleetd is still busy after {PATIENCE_S:.0f} s; look at its log")
