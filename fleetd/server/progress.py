"""Progress reports: of a start to the log and systemd, of a long request to its client."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import trio

from ..host import progress
from ..host.systemd import Notifier
from ..protocol.records import Progress

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
# Ten times a second is enough for anybody who looks at it, and a burden for nobody.
NOTIFY_S = 0.1
_encode = msgspec.json.Encoder().encode


@contextmanager
def report_start(notifier: Notifier, tasks: trio.Nursery) -> Iterator[None]:
    """Tell how far a block is, as long as it takes, and say nothing of one that is quick."""
    over = trio.CancelScope()
    with progress.tracked() as found:
        tasks.start_soon(_tell, found, notifier, over)
        try:
            yield
        finally:
            over.cancel()


async def _tell(
    found: progress.ProgressTracker, notifier: Notifier, over: trio.CancelScope
) -> None:
    told, rounds = found.count, 0
    with over:
        while True:
            await trio.sleep(PAUSE_S)
            if found.count == told or found.count.total == 0:
                continue
            told = found.count
            text = f"Starting: {said(told)}"
            notifier.send(f"STATUS={text}", f"EXTEND_TIMEOUT_USEC={MORE_S * 1_000_000}")
            if rounds % LOGGED_EVERY == 0:
                log.info("%s", text)
            rounds += 1


def said(count: progress.ProgressCount) -> str:
    """Return in words what a start is at, and how far."""
    of = "" if count.total is None else f" of {count.total:,}"
    return _PHASES.get(count.what, count.what).format(f"{count.done:,}{of}")


@contextmanager
def report_to_client(
    token: str, offer: Callable[[bytes], None], tasks: trio.Nursery
) -> Iterator[None]:
    """Offer a line whenever a block has come further, until it ends: the reply is next.

    What cannot be sent at once is left out, so a client that does not read holds up nothing.
    """
    asleep = trio.CancelScope()
    with progress.tracked() as found:
        tasks.start_soon(_notify, token, found, offer, asleep)
        try:
            yield
        finally:
            asleep.cancel()


async def _notify(
    token: str,
    found: progress.ProgressTracker,
    offer: Callable[[bytes], None],
    asleep: trio.CancelScope,
) -> None:
    told = found.count
    with asleep:
        while True:
            await trio.sleep(NOTIFY_S)
            if found.count != told:
                told = found.count
                offer(_line(token, told))


def _line(token: str, count: progress.ProgressCount) -> bytes:
    params = Progress(token=token, what=count.what, done=count.done, total=count.total)
    return b'{"jsonrpc":"2.0","method":"progress","params":%b}\n' % _encode(params)
