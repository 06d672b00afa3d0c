"""Times an operation beside its reference, within limits of count and time; knows no fleetd."""

import itertools
import random
import time
from collections.abc import Callable

import msgspec

Operation = Callable[[], object]
# Returns elapsed seconds, or seconds of CPU time.
Clock = Callable[[], float]
# Fewer would make a percentile random; this overrides the budget of time.
AT_LEAST = 3
# A run is divided into this many stretches to see how far its ratio moved meanwhile.
STRETCHES = 10


class Samples(msgspec.Struct):
    """How long each run of an operation took, in ms."""

    times_ms: list[float] = []

    def percentile(self, percent: float) -> float:
        """Return the time that ``percent`` per cent of the runs did not exceed."""
        ordered = sorted(self.times_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    @property
    def p50(self) -> float:
        """Return the median."""
        return self.percentile(50)

    @property
    def p95(self) -> float:
        """Return the time that only every twentieth run exceeds."""
        return self.percentile(95)

    @property
    def p99(self) -> float:
        """Return the time that one run in a hundred exceeds."""
        return self.percentile(99)


def stretches(samples: Samples, beside: Samples) -> list[float]:
    """Return the ratio of medians in each tenth of a run, or of single runs if there are fewer.

    A pair of runs shows the disk's speed at that moment more than the difference of the two.
    """
    count = min(STRETCHES, len(samples.times_ms), len(beside.times_ms))
    return [
        above.p50 / below.p50
        for above, below in zip(_cut(samples, count), _cut(beside, count), strict=True)
    ]


def _cut(samples: Samples, count: int) -> list[Samples]:
    times = samples.times_ms
    bounds = [number * len(times) // count for number in range(count + 1)]
    return [Samples(times[low:high]) for low, high in itertools.pairwise(bounds)]


def timed(operation: Operation, clock: Clock = time.perf_counter) -> float:
    """Run an operation once and return how long it took, in ms."""
    begun = clock()
    operation()
    return (clock() - begun) * 1_000


def alternate(
    operation: Operation,
    reference: Operation,
    *,
    order: random.Random,
    count: int,
    budget_s: float,
    settle: Operation | None = None,
    settle_reference: Operation | None = None,
    clock: Clock = time.perf_counter,
) -> tuple[Samples, Samples]:
    """Time an operation and its reference in turn: ``count`` times, or until the budget is spent.

    They alternate because the speed of a shared machine's disk varies from second to second.
    ``order`` is random because an operation after an fsync is slower. ``settle`` runs untimed after
    each operation and waits for its background work.
    """
    samples, beside = Samples([]), Samples([])
    turns = [(operation, settle, samples), (reference, settle_reference, beside)]
    deadline = time.monotonic() + budget_s
    while len(samples.times_ms) < count:
        if time.monotonic() > deadline and len(samples.times_ms) >= AT_LEAST:
            break
        order.shuffle(turns)
        for timed_operation, then, into in turns:
            into.times_ms.append(timed(timed_operation, clock))
            if then is not None:
                then()
    return samples, beside
