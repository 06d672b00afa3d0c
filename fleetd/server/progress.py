"""Progress reports: of a start to the log and systemd, of a long request to its client."""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import msgspec
import trio

from ..host import progress
from ..host.systemd import Notifier
from ..protocol.records import ProgressNotification

log = logging.getLogger("fleetd")

# Most starts are over by then. The log is read later, so it gets fewer reports.
PAUSE_S = 1.0
LOGGED_EVERY = 5
# A start that makes progress gets more time; one that hangs does not.
MORE_S = 60
_PHASES = {
    "missions": "comparing checkpoints with their files, {} missions",
    "runs": "comparing snapshots with their files, {} runs",
    "rows": "finishing an interrupted deletion, {} rows",
    "database": "reading the whole database",
}
# Ten times a second is enough for every reader, and costs little.
NOTIFY_S = 0.1
_encode = msgspec.json.Encoder().encode


Report = Callable[[progress.ProgressCount], None]


def report_start(notifier: Notifier, tasks: trio.Nursery) -> AbstractContextManager[None]:
    """Report the progress of a block while it runs, and nothing about a quick one."""
    rounds = itertools.count()

    def report(count: progress.ProgressCount) -> None:
        if count.total == 0:
            return
        of = "" if count.total is None else f" of {count.total:,}"
        phase = _PHASES.get(count.what, count.what).format(f"{count.done:,}{of}")
        notifier.send(f"STATUS=Starting: {phase}", f"EXTEND_TIMEOUT_USEC={MORE_S * 1_000_000}")
        if next(rounds) % LOGGED_EVERY == 0:
            log.info("Starting: %s", phase)

    return _reported(report, PAUSE_S, tasks)


def report_to_client(
    token: str, offer: Callable[[bytes], None], tasks: trio.Nursery
) -> AbstractContextManager[None]:
    """Offer a line whenever a block has made progress, until it ends: the reply is next.

    A line that cannot be sent now is dropped, so a client that does not read blocks nothing.
    """

    def report(count: progress.ProgressCount) -> None:
        params = ProgressNotification(
            token=token, what=count.what, done=count.done, total=count.total
        )
        offer(b'{"jsonrpc":"2.0","method":"progress","params":%b}\n' % _encode(params))

    return _reported(report, NOTIFY_S, tasks)


@contextmanager
def _reported(report: Report, every_s: float, tasks: trio.Nursery) -> Iterator[None]:
    over = trio.CancelScope()
    with progress.tracked() as tracker:

        async def watch() -> None:
            reported = tracker.count
            with over:
                while True:
                    await trio.sleep(every_s)
                    if tracker.count != reported:
                        reported = tracker.count
                        report(reported)

        tasks.start_soon(watch)
        try:
            yield
        finally:
            over.cancel()
