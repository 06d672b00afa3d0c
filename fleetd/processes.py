"""Whether a process still is the one that it was; must not know agents."""

import os
from pathlib import Path


def started(pid: int) -> str | None:
    """Return when a process was started, in the kernel's own units; None when it is gone.

    A pid alone proves nothing: it is given to another process sooner or later. Where the kernel
    does not tell the time, ``"?"`` says that the process is there.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return "?" if not Path("/proc/self/stat").exists() and _exists(pid) else None
    # The name in parentheses may hold spaces and parentheses of its own.
    fields = stat.rpartition(")")[2].split()
    state, start_time = fields[0], fields[19]
    return None if state in ("Z", "X") else start_time


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def same(pid: int, then: str | None) -> bool:
    """Whether the process with this pid is there and was started at the same time."""
    now = started(pid)
    return now is not None and (then is None or now == then)
