"""What the daemon measures of itself, as it crosses the socket; must not know requests."""

from .records import Record


class Timing(Record, frozen=True, kw_only=True):
    """How long something took, in ms since the daemon's start; p50 and p95 are within 7 %."""

    count: int
    p50_ms: float
    p95_ms: float
    max_ms: float


class MethodTiming(Timing, frozen=True, kw_only=True):
    """How long the requests of a method took.

    From the moment a request was understood and had its place among those in flight (within a batch
    of requests: from the end of the one before) until its reply was ready to be sent. What it
    waited for on purpose, such as a lock, is part of it.
    """

    method: str


class WriterFigures(Record, frozen=True, kw_only=True):
    """How busy the writer is: requests that wait, and how many each group commit carried.

    ``commit`` is the COMMIT alone, of transactions that changed something: the sync of the disk.
    """

    queue: int
    queue_max: int
    batches: int
    batch_mean: float
    batch_p95: int
    batch_max: int
    commit: Timing


class ConnectionFigures(Record, frozen=True, kw_only=True):
    """Connections now, at most so far, and allowed; the rest counts since the daemon's start.

    ``refused`` were another user's; ``cut_off`` broke a limit, or did not send or take a line in
    time.
    """

    open: int
    open_max: int
    limit: int
    accepted: int
    refused: int
    cut_off: int
