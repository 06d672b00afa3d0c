"""Well-behaved clients beside any campaign, and their observations."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.campaign import Red, Run

PROGRAM = Path(__file__).with_name("good_client.py")
P99_MS = 10.0
# When a pause lasts this much longer than requested, other programs keep the machine busy.
LATE_MS = 3.0


@dataclass
class Noticed:
    """How long a polite client waited for each answer, in ms, and its errors.

    ``late`` is by how much its own pauses were too long.
    """

    times: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def p99(self) -> float:
        """Return the 99th percentile of the times."""
        return _p99(self.times)

    def can_tell(self) -> bool:
        """Return whether the machine was idle enough to blame the daemon for slow answers."""
        return len(self.times) >= 100 and _p99(self.late) < LATE_MS


def _p99(times: list[float]) -> float:
    ordered = sorted(times)
    return ordered[len(ordered) * 99 // 100] if ordered else 0.0


@contextmanager
def polite(path: Path, *, pause_ms: int = 10, manner: str = "stay") -> Iterator[Noticed]:
    """Run a polite client during the block; its observations are complete at the end."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), str(path), str(pause_ms), manner]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    noticed = Noticed()
    try:
        yield noticed
        out, _ = process.communicate(timeout=60)
        told = json.loads(out)
        noticed.times = [each / 1_000 for each in told["us"]]
        noticed.late = [each / 1_000 for each in told["late"]]
        noticed.trouble = told["trouble"]
    finally:
        process.kill()
        process.wait()


def judge(run: Run, noticed: Noticed, who: str, *, p99_ms: float = P99_MS) -> None:
    """Add the observations of a client to the figures; raises Red for a violation."""
    run.add("answers to others", len(noticed.times))
    if noticed.trouble:
        raise Red(f"{who} was not answered: {noticed.trouble[0]}")
    if not noticed.can_tell():
        run.add("times too few, or the machine too busy, to judge")
        return
    run.worst("ms p99 of others", noticed.p99())
    if run.judged and noticed.p99() > p99_ms:
        raise Red(f"{who} waited {noticed.p99():.1f} ms (p99), {p99_ms:g} are promised")
