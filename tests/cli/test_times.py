"""Times as people say them."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.output import times
from fleetd.protocol.timestamps import iso, to_ms

NOON = to_ms("2026-01-05T12:00:00.000Z")  # a Monday
S, MIN, H, D = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    """Let the local time be an hour ahead of UTC, in summer two."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("passed", "told"),
    [
        (0, "now"),
        (4 * S, "now"),
        (-4 * S, "now"),
        (12 * S, "12 s ago"),
        (3 * MIN, "3 min ago"),
        (59 * MIN + 59 * S, "59 min ago"),
        (H, "1 h ago"),
        (11 * H, "11 h ago"),
        (12 * H + MIN, "today 00:59"),
        (14 * H, "yesterday 23:00"),
        (D, "yesterday 13:00"),
        (3 * D, "Fri 13:00"),
        (5 * D, "Wed 13:00"),
        (6 * D, "Tue 13:00"),
        (10 * D, "26 Dec 2025"),
        (-2 * MIN, "in 2 min"),
        (-30 * H, "tomorrow 19:00"),
        (-9 * D, "14 Jan 13:00"),
    ],
)
def test_when_something_was(passed, told):
    assert times.ago(iso(NOON - passed), NOON) == told


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (8 * MIN, "for 8 min"),
        (8 * MIN - S, "for 8 min"),
        (H - S, "for 1 h"),
        (30 * S, "for 30 s"),
        (H, "for 1 h"),
        (0, "now"),
        (-MIN, "1 min ago"),
    ],
)
def test_how_long_a_lease_still_holds(left, told):
    assert times.lease(iso(NOON + left), NOON) == told


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (-5, "0 s"),
        (59_999, "59 s"),
        (5 * MIN + 10 * S, "5 min"),
        (2 * H + 5 * MIN, "2 h 5 min"),
        (2 * H, "2 h"),
        (D, "1 day"),
        (26 * H, "1 d 2 h"),
        (3 * D + H, "3 days"),
    ],
)
def test_how_long_something_took(ms, told):
    assert times.span(ms) == told


def test_the_local_time_is_told_with_summer_and_winter():
    winter, summer = NOON, to_ms("2026-07-05T12:00:00.000Z")

    assert [times.clock(at) for at in (winter, summer)] == ["13:00", "14:00"]
    assert [times.zone(at) for at in (winter, summer)] == ["CET", "CEST"]
    assert times.clock(winter + 7 * S, seconds=True) == "13:00:07"
    assert times.day(to_ms("2026-01-05T23:30:00.000Z")) == "Tue 6 Jan 2026"


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-01-05", "2026-13-05T12:00:00.000Z", "2026-01-05T12:00:00.00xZ"]
)
def test_what_is_no_time_is_left_as_it_is(text):
    assert times.ago(text, NOON) == text
    assert times.lease(text, NOON) == text


@given(st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999))
@settings(deadline=None)
def test_times_of_the_wire_are_read_as_the_daemon_reads_them(ms):
    assert times.ms_of(iso(ms)) == ms
