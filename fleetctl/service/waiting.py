"""What a start is at, shown on the terminal while it is waited for; must not start anything."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fleetd.protocol.errors import FleetError

from ..output import console, progress
from . import logs
from .start import managed

PAUSE_S = 1.0
# How fleetd begins the lines of its log that tell how far its start is.
_TOLD = "Starting: "


@contextmanager
def shown(args: Namespace) -> Iterator[None]:
    """Show on a terminal what the log says of a start that takes longer than a second."""
    if not progress.drawable(args):
        yield
        return
    # Imported here: most that load this module need it never.
    import threading

    over = threading.Event()
    # What waits for the daemon waits for its answer, seconds at a time.
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
    while not over(PAUSE_S):
        with suppress(FleetError):
            last = "".join(logs.last_lines(manager, 1))
            _, told, what = last.partition(_TOLD)
            if told and what != drawn:
                drawn = what
                progress.draw(console.clean(f"fleetd is starting: {what}"))
    if drawn:
        progress.draw("")
