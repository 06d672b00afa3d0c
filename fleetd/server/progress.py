"""Tells how far a start is that has much to do: the log, and systemd; must not do any of it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ..host import progress
from ..host.systemd import Notifier

log = logging.getLogger("fleetd")

# Most starts are over by then. The log is read later, so it is told less often.
PAUSE_S = 1.0
LOGGED_EVERY = 5
# A start that gets on is given more time; one that hangs is not.
MORE_S = 60
_PHASES = {
    "missions": "comparing checkpoints with their files, {} missions",
    "runs": "comparing snapshots with their files, {} runs",
    "rows": "finishing what was to be forgotten, {} rows",
    "database": "reading the whole database",
}


@contextmanager
def starting(notifier: Notifier, tasks: trio.Nursery) -> Iterator[None]:
    """Tell how far a block is, as long as it takes, and say nothing of one that is quick."""
    over = trio.CancelScope()
    with progress.followed() as found:
        tasks.start_soon(_tell, found, notifier, over)
        try:
            yield
        finally:
            over.cancel()


async def _tell(found: progress.Headway, notifier: Notifier, over: trio.CancelScope) -> None:
    told, rounds = found.stand, 0
    with over:
        while True:
            await trio.sleep(PAUSE_S)
            if found.stand == told or found.stand.total == 0:
                continue
            told = found.stand
            text = f"Starting: {said(told)}"
            notifier.send(f"STATUS={text}", f"EXTEND_TIMEOUT_USEC={MORE_S * 1_000_000}")
            if rounds % LOGGED_EVERY == 0:
                log.info("%s", text)
            rounds += 1


def said(stand: progress.Stand) -> str:
    """Return in words what a start is at, and how far."""
    of = "" if stand.total is None else f" of {stand.total:,}"
    return _PHASES.get(stand.what, stand.what).format(f"{stand.done:,}{of}")
