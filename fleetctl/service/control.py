"""Control of fleetd: start, stop and restart it the way this machine does, and show progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleetd.host import paths
from fleetd.protocol.errors import FleetError, InvalidState

from ..args import Namespace
from ..output import console, progress
from . import logs, process, service
from .manager import Service
from .process import Running

PAUSE_S = 0.05
_LAST_LINES = 5


def managed() -> Service | None:
    """Return the service manager, if it runs and fleetd is installed there; else None."""
    found = service()
    return found if found and found.installed() and found.runs() else None


def start() -> tuple[Running, str]:
    """Start fleetd and return it with a word on how; one that already runs is left alone.

    Raises InvalidState when it does not start; ``log`` then contains its last lines.
    """
    path, manager = paths.socket_path(), managed()
    seen = manager.state() if manager else None
    # If a manager listens for a daemon that does not run, looking would start it.
    asleep = seen is not None and seen.listening and not seen.active
    if not asleep and (found := process.look(path)):
        return found, "already running"
    if manager is None:
        return process.start(path), "started in the background"
    with _log_of(manager):
        manager.start()
    return wait_until_answering(path, manager), f"started by {manager.KIND}"


@contextmanager
def _log_of(manager: Service) -> Iterator[None]:
    """Add the last lines of the log to an error, and a hint where to find more."""
    try:
        yield
    except FleetError as error:
        error.hint = (
            "fleetctl doctor checks whether fleetd can start; fleetctl daemon logs shows why it "
            "did not."
        )
        error.values["log"] = logs.last_lines(manager, _LAST_LINES)
        raise


def wait_until_answering(path: Path, manager: Service | None) -> Running:
    """Return the daemon once it answers; raises InvalidState when it does not."""
    deadline = time.monotonic() + process.READY_S
    while time.monotonic() < deadline:
        # While fleetd starts, it or its manager already listens, but nobody answers yet.
        with suppress(process.Silent):
            if found := process.look(path):
                return found
        time.sleep(PAUSE_S)
    raise InvalidState(
        "fleetd does not answer.",
        hint="Look at its log: fleetctl daemon logs",
        log=logs.last_lines(manager, _LAST_LINES),
    )


def stop() -> str:
    """Stop fleetd, however it was started, and return a word on what was done."""
    manager = managed()
    done = ""
    if manager is not None:
        seen = manager.state()
        if seen.active or seen.listening:
            manager.stop()
            done = f"stopped by {manager.KIND}; it starts again at the next login"
    if (ended := process.end(paths.socket_path())) is not None:
        done = f"stopped (pid {ended.pid})"
    return done or "not running"


def restart() -> tuple[Running, str]:
    """Restart fleetd, so that it has the current code and settings."""
    manager = managed()
    if manager is None or not manager.state().active:
        stop()
        found, _how = start()
        return found, "started anew"
    with _log_of(manager):
        manager.restart()
    return wait_until_answering(paths.socket_path(), manager), f"started anew by {manager.KIND}"


LOOK_PAUSE_S = 1.0
# The prefix of the log lines that report the progress of fleetd's start.
_PROGRESS_PREFIX = "Starting: "


@contextmanager
def shown(args: Namespace) -> Iterator[None]:
    """Show on a terminal what the log reports about a start that takes longer than a second."""
    if not progress.drawable(args):
        yield
        return
    # Imported here: most users of this module never need it.
    import threading

    over = threading.Event()
    # A thread, because the caller blocks for seconds while it waits for the daemon's answer.
    looking = threading.Thread(target=_look, args=(over.wait,))
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def _look(over: Callable[[float], bool]) -> None:
    drawn = ""
    manager = managed()
    while not over(LOOK_PAUSE_S):
        with suppress(FleetError):
            last = "".join(logs.last_lines(manager, 1))
            _, separator, what = last.partition(_PROGRESS_PREFIX)
            if separator and what != drawn:
                drawn = what
                progress.draw(console.clean(f"fleetd is starting: {what}"))
    if drawn:
        progress.draw("")
