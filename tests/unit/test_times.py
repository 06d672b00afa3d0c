"""Timestamps and durations as they stand on the wire."""

import pytest

from fleetd.domain.missions.milestones import highest_milestone
from fleetd.protocol.display import duration
from fleetd.protocol.records import percent
from fleetd.protocol.timestamps import iso, to_ms


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_614_400_000, "2026-01-05T12:00:00.000Z"),
        (1_767_614_400_007, "2026-01-05T12:00:00.007Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_timestamp_comes_back_as_it_went(ms, text):
    assert iso(ms) == text
    assert to_ms(text) == ms


def test_text_order_is_time_order():
    moments = [0, 999, 1_000, 59_999, 86_399_999, 1_767_614_400_000]
    assert sorted(iso(ms) for ms in moments) == [iso(ms) for ms in moments]


def test_a_time_without_zone_is_utc_and_others_are_converted():
    assert to_ms("2026-01-05T12:00:00") == to_ms("2026-01-05T13:00:00+01:00")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(-5, "0s"), (999, "0s"), (59_000, "59s"), (61_000, "1m 1s"), (9_000_000, "2h 30m")],
)
def test_durations_read_like_people_say_them(ms, text):
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("completed", "total", "expected"),
    [
        (0, 0, 0),
        (0, 4, 0),
        (1, 4, 25),
        (1, 3, 33),
        (2, 3, 67),
        (1, 8, 13),
        (1, 200, 1),
        (7, 7, 100),
    ],
)
def test_progress_rounds_half_a_percent_up(completed, total, expected):
    assert percent(completed, total) == expected


def test_the_highest_milestone_counts():
    reached = [highest_milestone(p) for p in (0, 24, 25, 49, 50, 74, 75, 100)]
    assert reached == [0, 0, 25, 25, 50, 50, 75, 75]
