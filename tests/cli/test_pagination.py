"""Lists that are longer than what the daemon returns at once."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetctl.client.models import AgentRegister, Record
from fleetctl.client.pagination import PAGE, all_pages
from tests.support.processes import Daemon


@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 5])
def test_every_page_is_read_once(count: int) -> None:
    there = [Record(id=f"x-{number:06}") for number in range(count)]
    asked: list[dict[str, str]] = []

    def page(**more: str) -> list[Any]:
        asked.append(more)
        return [each for each in there if each.id > more.get("after", "")][:PAGE]

    assert all_pages(page) == there
    assert len(asked) == count // PAGE + 1
    assert asked[0] == {}


def test_a_list_shows_what_is_behind_the_first_page_too(
    daemon: Daemon, done: Callable[..., Any]
) -> None:
    names = [f"agent-{number:04}" for number in range(PAGE + 2)]
    with Fleet(daemon.socket) as client:
        for name in names:
            client.call(AgentRegister(agent_id=name, role="specialist"))

    agents = json.loads(done("agent", "list", "--json").out)

    assert [each["id"] for each in agents] == names
