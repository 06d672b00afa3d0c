"""A process and its children, as an outside process stops and ends them."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

GONE_S = 60


def family(pid: int) -> list[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_until_gone(pids: Iterable[int]) -> None:
    deadline = time.monotonic() + GONE_S
    for pid in pids:
        while _lives(pid):
            assert time.monotonic() < deadline, f"process {pid} does not end"
            time.sleep(0.005)


def _lives(pid: int) -> bool:
    """Return whether a process still runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
