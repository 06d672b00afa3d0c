"""Whether a process still is the one that it was, and when it ends; must not know agents."""

import os
from pathlib import Path

import trio

POLL_S = 0.5


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


async def ended(pid: int, then: str | None) -> None:
    """Return once the process that was started at ``then`` is gone, within a second."""
    descriptor = _descriptor(pid)
    if descriptor is None:
        while same(pid, then):  # noqa: ASYNC110 - nothing tells us
            await trio.sleep(POLL_S)
        return
    try:
        # Asked only now: the descriptor holds the process that has the pid at this moment.
        if same(pid, then):
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _descriptor(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, where there is such.

    None on other systems than Linux, for a process that is gone, and when descriptors are used up.
    """
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        descriptor: int = opener(pid)
    except OSError:
        return None
    return descriptor
