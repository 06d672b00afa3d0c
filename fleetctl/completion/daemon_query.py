"""Asks the daemon for what a shell offers: at once or not at all, silent, and starts nobody."""

import os
import signal
import time
from typing import Any

from fleetd.host import paths
from fleetd.protocol.errors import FleetError

from ..client import Fleet
from ..output import console
from .candidates import KINDS, candidates, line

# A person has pressed a key and waits: what takes longer than this is not worth it.
PATIENCE_S = 0.3


def print_candidates(kind: str, prefix: str) -> None:
    """Print ids with what they stand for, or nothing: whatever is wrong is no matter here."""
    if kind not in KINDS:
        return
    # Whatever hangs, a pipe in the place of a file too, this ends it.
    signal.signal(signal.SIGALRM, lambda _number, _frame: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        found = _asked(kind, prefix)
    except (FleetError, OSError):
        return
    columns = console.terminal_width() if "COLUMNS" in os.environ else None
    text = "".join(f"{line(each, columns)}\n" for each in found)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(text, end="")


def _asked(kind: str, prefix: str) -> list[Any]:
    path = paths.socket_path()
    if not _somebody_serves(path):
        return []
    deadline = time.monotonic() + PATIENCE_S
    with Fleet(path, connect_s=PATIENCE_S) as client:

        def ask(method: str, **params: Any) -> Any:
            return client.call_raw(method, params, reply_s=max(0.01, deadline - time.monotonic()))

        return candidates(kind, prefix, ask)


def _somebody_serves(socket: Any) -> bool:
    """Whether a process lives that has signed the socket's lock.

    A socket of systemd would start a daemon for whoever only presses a key. Nobody tries the lock
    itself: a daemon that starts at this moment would find it taken.
    """
    try:
        os.kill(int(paths.lock_of_socket(socket).read_text("ascii")), 0)
    except (OSError, ValueError):
        return False
    return True
