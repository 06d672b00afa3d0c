"""Histogram of whole numbers in few buckets, for quantiles."""

import math
from collections.abc import Iterable

# Eight buckets between a number and its double: the middle of one is off by 1/16 at most.
_PER_DOUBLING = 8
_EXACT_BITS = 4
# Twelve days in microseconds; larger numbers share the last bucket.
_MOST = 2**40
_LAST = (40 - _EXACT_BITS) * _PER_DOUBLING + 15


class Histogram:
    """How often each number occurred, in memory that does not grow with the count.

    Numbers below 16 are exact, larger ones within 6.25 %; count, sum and maximum are exact. One
    thread notes numbers; any other may read.
    """

    __slots__ = ("_buckets", "count", "max", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.max = 0
        self._buckets: dict[int, int] = {}

    def note(self, value: int) -> None:
        """Count one number; a negative one counts as 0."""
        # Every request runs this, so it makes no call that can be avoided.
        if value < 0:
            value = 0
        self.count += 1
        self.total += value
        if value > self.max:
            self.max = value
        shift = value.bit_length() - _EXACT_BITS
        if shift <= 0:
            bucket = value
        elif value < _MOST:
            bucket = shift * _PER_DOUBLING + (value >> shift)
        else:
            bucket = _LAST
        buckets = self._buckets
        buckets[bucket] = buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        """Return the mean of all numbers, 0 without any."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> int:
        """Return the number that ``share`` (0 to 1) of all do not exceed, 0 without any."""
        # Copied first: another thread may be counting.
        buckets = sorted(self._buckets.copy().items())
        left = math.ceil(share * sum(count for _, count in buckets))
        for bucket, count in buckets:
            left -= count
            if left <= 0:
                low, width = _range(bucket)
                return min(low + width // 2, self.max)
        return 0

    def below(self, bounds: Iterable[int]) -> list[int]:
        """Return how many numbers were less than each bound, and finally how many there were.

        Exact for bounds up to 16 and for powers of two.
        """
        buckets = self._buckets.copy()
        found = [
            sum(count for bucket, count in buckets.items() if _range(bucket)[0] < bound)
            for bound in bounds
        ]
        return [*found, sum(buckets.values())]


def _range(bucket: int) -> tuple[int, int]:
    """Return the smallest number of a bucket, and how many share it."""
    if bucket < 2 * _PER_DOUBLING:
        return bucket, 1
    shift = bucket // _PER_DOUBLING - 1
    return (bucket - shift * _PER_DOUBLING) << shift, 1 << shift
