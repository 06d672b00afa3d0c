"""The loop of a peer's program: a request per line of stdin, samples or facts on stdout."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Work = Callable[..., Any]


def serve(begin: Work, works: dict[str, Work]) -> None:
    """Answer until stdin ends: first ``open`` with a directory, then works with their inputs.

    A work returns how long each of its runs took, in ms; None when it only prepares something.
    """
    for line in sys.stdin:
        asked = json.loads(line)
        work = asked.pop("work")
        done = begin(**asked) if work == "open" else {"times_ms": works[work](**asked)}
        sys.stdout.write(json.dumps(done) + "\n")
        sys.stdout.flush()


def timed(operation: Callable[[int], object], runs: int) -> list[float]:
    """Run an operation so many times; return how long each took, in ms."""
    times = []
    for number in range(runs):
        begun = time.perf_counter()
        operation(number)
        times.append((time.perf_counter() - begun) * 1_000)
    return times


def synchronous(level: int) -> str:
    """Return SQLite's own word for a level of ``PRAGMA synchronous``."""
    return ("OFF", "NORMAL", "FULL", "EXTRA")[level]
