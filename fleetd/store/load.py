"""How busy a store's writer is and was; must not know which store."""

import msgspec

from ..host.histogram import Histogram


class Load(msgspec.Struct, frozen=True):
    """How busy the writer is and was; ``commits`` are microseconds, ``batches`` jobs."""

    waiting: int
    most_waiting: int
    batches: Histogram
    commits: Histogram
