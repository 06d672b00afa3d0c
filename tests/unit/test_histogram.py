"""Quantiles from few buckets: how far they are off, and what they cost."""

import random

import pytest

from fleetd.host.histogram import Histogram


def histogram(*values: int) -> Histogram:
    made = Histogram()
    for value in values:
        made.note(value)
    return made


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_are_within_seven_percent(seed: int, share: float) -> None:
    chance = random.Random(seed)
    values = sorted(int(chance.lognormvariate(7, 2)) for _ in range(1_000))
    exact = values[int(share * 1_000) - 1]
    assert histogram(*values).quantile(share) == pytest.approx(exact, rel=0.07)


def test_every_number_is_remembered_within_seven_percent() -> None:
    for value in (*range(5_000), 2**20 - 1, 2**20, 2**39 + 12_345, 2**40 - 1):
        seen = histogram(value, 2**41)
        assert seen.quantile(0.5) == pytest.approx(value, rel=0.0626), value


def test_count_sum_mean_and_maximum_are_exact() -> None:
    seen = histogram(3, 1_000_003, 17, 0)
    assert (seen.count, seen.total, seen.max, seen.mean) == (4, 1_000_023, 1_000_003, 250_005.75)
    assert seen.quantile(1) <= seen.max


def test_an_empty_one_says_nothing_happened() -> None:
    seen = Histogram()
    assert (seen.quantile(0.5), seen.mean, seen.max) == (0, 0.0, 0)
    assert seen.below([16]) == [0, 0]


def test_memory_does_not_grow_with_what_is_noted() -> None:
    chance = random.Random(7)
    seen = histogram(*(chance.getrandbits(chance.randrange(1, 80)) for _ in range(20_000)))
    assert len(seen._buckets) <= 304


def test_what_lies_below_a_power_of_two_is_counted_exactly() -> None:
    chance = random.Random(3)
    values = [int(chance.lognormvariate(8, 3)) for _ in range(2_000)]
    bounds = [2**power for power in range(1, 30)]
    exact = [sum(value < bound for value in values) for bound in bounds]
    assert histogram(*values).below(bounds) == [*exact, 2_000]


def test_a_clock_that_went_back_counts_as_nothing() -> None:
    seen = histogram(-5)
    assert (seen.count, seen.total, seen.quantile(0.5)) == (1, 0, 0)
