"""Counting statements: that the counts are those of the request, and the same every time."""

import json
from typing import Any

import pytest

from tests.support.benchmarks import run


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """Return what was counted, by the name of the request."""
    names = ("event.append", "hook", "lock", "message", "sortie", "mission.get")
    return {each["name"]: each for each in json.loads(run("statements", "--json", *names))}


def test_an_event_is_one_transaction_that_begins_and_ends(found: dict[str, dict[str, Any]]) -> None:
    event = found["event.append"]
    assert event["before"]["writes"] == 1
    assert event["before"]["pages"] > 0
    assert event["texts"][0].startswith("BEGIN IMMEDIATE")
    assert "COMMIT" in event["texts"]
    assert event["before"]["statements"] + event["later"]["statements"] == len(event["texts"])


def test_a_read_writes_nothing(found: dict[str, dict[str, Any]]) -> None:
    before = found["mission.get"]["before"]
    assert (before["writes"], before["pages"]) == (0, 0)
    assert before["statements"] > 0


def test_whatever_the_tool_prepares_is_no_part_of_a_request(
    found: dict[str, dict[str, Any]],
) -> None:
    for name in ("lock.acquire", "lock.release", "message.send", "message.ack"):
        assert found[name]["before"]["writes"] == 1


def test_the_counts_are_the_same_again(found: dict[str, dict[str, Any]]) -> None:
    for each in json.loads(run("statements", "--json", "event.append", "lock")):
        assert each["before"]["statements"] == found[each["name"]]["before"]["statements"]


def test_the_statements_themselves_are_shown() -> None:
    shown = run("statements", "--show", "event.append").splitlines()
    assert shown[0] == "event.append"
    assert any("INSERT INTO events" in line for line in shown)
