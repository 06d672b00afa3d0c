"""What a daemon costs: its memory and its processor time; must not ask it anything."""

import os
import time
from pathlib import Path

# How long a daemon must have done nothing, and how much of that time is nothing.
REST_S, REST_SHARE = 0.3, 0.05
PATIENCE_S = 60.0


class Process:
    """A process looked at from outside, by its id."""

    def __init__(self, pid: int) -> None:
        self._place = Path(f"/proc/{pid}")

    def cpu_ms(self) -> float:
        """Return how long all its threads were on a processor since it began."""
        tasks = (self._place / "task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6

    def rss_mb(self) -> float:
        """Return its resident memory now, of files too."""
        pages = int((self._place / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def rest(self) -> None:
        """Return once it has nothing to do, so that what it does by itself is not counted."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            before = self.cpu_ms()
            time.sleep(REST_S)
            if self.cpu_ms() - before < REST_SHARE * REST_S * 1_000:
                return
        raise TimeoutError(f"fleetd is still busy after {PATIENCE_S:.0f} s; look at its log")
