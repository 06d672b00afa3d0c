"""Confidence intervals of shares, by closed formulas that are valid for few runs too.

A share has Wilson's score interval. A difference of two shares has Newcombe's hybrid score
interval, which combines the two (Statistics in Medicine 17, 1998, method 10).
"""

from math import sqrt
from statistics import NormalDist

import msgspec

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


class Share(msgspec.Struct, frozen=True):
    """The number of passed runs among all."""

    passed: int
    runs: int

    @property
    def value(self) -> float | None:
        """Return the share, None without a run."""
        return self.passed / self.runs if self.runs else None

    def __add__(self, other: "Share") -> "Share":
        """Return the combined share."""
        return Share(self.passed + other.passed, self.runs + other.runs)


class Interval(msgspec.Struct, frozen=True):
    """The values that are compatible with the runs."""

    low: float
    high: float


def wilson(share: Share) -> Interval:
    """Return the score interval of a share; without a run it is the whole range."""
    if not share.runs:
        return Interval(0.0, 1.0)
    p, n = share.passed / share.runs, share.runs
    middle = p + _Z**2 / (2 * n)
    half = _Z * sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    whole = 1 + _Z**2 / n
    # With none or all passed, one end is the share itself, except for rounding.
    return Interval(
        max(0.0, (middle - half) / whole) if share.passed else 0.0,
        min(1.0, (middle + half) / whole) if share.passed < n else 1.0,
    )


def newcombe(share: Share, other: Share) -> Interval:
    """Return the hybrid score interval of the difference of two shares."""
    if share.value is None or other.value is None:
        return Interval(-1.0, 1.0)
    here, there = wilson(share), wilson(other)
    difference = share.value - other.value
    below = sqrt((share.value - here.low) ** 2 + (there.high - other.value) ** 2)
    above = sqrt((here.high - share.value) ** 2 + (other.value - there.low) ** 2)
    return Interval(difference - below, difference + above)
