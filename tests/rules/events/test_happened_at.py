"""When an event happened, which is not always when it was recorded."""

from typing import Any

import pytest

from fleetd.domain.core.event_log import happened_at

RECORDED = "2026-01-05T12:00:00.000Z"
BEFORE = "2026-01-05T11:58:30.000Z"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, RECORDED),
        ({"happened_at": BEFORE}, BEFORE),
        ({"happened_at": "2026-01-05T12:58:30+01:00"}, BEFORE),
        ({"happened_at": "2099-01-01T00:00:00.000Z"}, RECORDED),
        ({"happened_at": "yesterday"}, RECORDED),
        ({"happened_at": "9999-12-31T23:59:59-23:59"}, RECORDED),
        ({"happened_at": 7}, RECORDED),
        ({"happened_at": None}, RECORDED),
    ],
)
def test_an_event_happened_at_a_valid_time_before_it_was_recorded(
    data: dict[str, Any], expected: str
) -> None:
    assert happened_at({"timestamp": RECORDED}, data) == expected
