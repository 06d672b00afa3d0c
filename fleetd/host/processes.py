"""Process identity: whether a pid still belongs to the same process, and when it ends."""

import os
from pathlib import Path
from typing import NamedTuple

import trio

from .paths import LAUNCHER

POLL_S = 0.5
STAT_BYTES = 4_096
MOST_ANCESTORS = 100
# Programs that run between an agent and its hook or tool server.
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", "env", "timeout"})
SHELLS |= {"uv", "uvx", "pipx", LAUNCHER}


def started(pid: int) -> str | None:
    """Return when a process was started, in the kernel's own units; None when it is gone.

    A pid alone proves nothing: sooner or later another process gets it. Where the kernel does not
    report the time, ``"?"`` means that the process exists.
    """
    stat = _stat(pid)
    if stat is None:
        return "?" if not Path("/proc/self/stat").exists() and _exists(pid) else None
    return stat.started


class _Stat(NamedTuple):
    """What the kernel reports about a process: its name, and the fields after it."""

    name: str
    fields: list[str]

    @property
    def parent(self) -> int:
        return int(self.fields[1])

    @property
    def started(self) -> str | None:
        state, start_time = self.fields[0], self.fields[19]
        return None if state in ("Z", "X") else start_time


def _stat(pid: int) -> _Stat | None:
    """Return what the kernel reports about a process; None when it is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = os.read(descriptor, STAT_BYTES)
    except OSError:  # it ended just now
        return None
    finally:
        os.close(descriptor)
    # The name in parentheses may itself contain spaces and parentheses.
    before, _, after = stat.decode("utf-8", "replace").rpartition(")")
    return _Stat(before.partition("(")[2], after.split())


def agent_behind(client: int) -> tuple[int, str | None] | None:
    """Return the agent that a hook client runs for, and when the agent was started.

    That is the nearest ancestor that is no shell. None where the kernel does not report it, and
    when only init is left.
    """
    stat = _stat(client)
    while stat is not None and (pid := stat.parent) > 1:
        stat = _stat(pid)
        if stat is not None and stat.name not in SHELLS:
            return pid, stat.started
    return None


def ancestors(client: int) -> tuple[tuple[int, str | None], ...]:
    """Return all processes above a client except init, nearest first, each with its start."""
    found: list[tuple[int, str | None]] = []
    stat = _stat(client)
    while stat is not None and (pid := stat.parent) > 1 and len(found) < MOST_ANCESTORS:
        stat = _stat(pid)
        if stat is not None:
            found.append((pid, stat.started))
    return tuple(found)


def itself(client: int) -> tuple[int, str | None] | None:
    """Return a client that is itself an agent, and when it was started; None when it is gone."""
    stat = _stat(client)
    return (client, stat.started) if stat is not None and stat.started is not None else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def same(pid: int, then: str | None) -> bool:
    """Return whether the process with this pid exists and was started at the same time."""
    now = started(pid)
    return now is not None and (then is None or now == then)


async def ended(pid: int, then: str | None) -> None:
    """Return once the process that was started at ``then`` is gone, within a second."""
    descriptor = _descriptor(pid)
    if descriptor is None:
        while same(pid, then):  # noqa: ASYNC110 - there is no notification
            await trio.sleep(POLL_S)
        return
    try:
        # Checked only now: the descriptor holds the process that had the pid when it was opened.
        if same(pid, then):
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _descriptor(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, where there is one.

    None on systems other than Linux, for a process that is gone, and when descriptors run out.
    """
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        descriptor: int = opener(pid)
    except (OSError, OverflowError):  # no process has such a large pid
        return None
    return descriptor
