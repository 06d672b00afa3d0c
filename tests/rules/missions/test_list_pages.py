"""Long lists are read page by page, each from the last of the page before; nothing is skipped."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fleetd.protocol.requests.agent import AgentList, AgentRegister
from fleetd.protocol.requests.lock import LockList
from fleetd.protocol.requests.message import MessageList
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.recovery import RecoveryList
from tests.support.fleet import Fleet

LISTS: dict[str, Callable[..., Any]] = {
    "missions": MissionList,
    "recoveries": RecoveryList,
    "agents": AgentList,
    "messages": MessageList,
    "locks": LockList,
}


@pytest.fixture
async def several(fleet: Fleet) -> Fleet:
    """Return a fleet with seven of each, some made in the same millisecond."""
    for number in range(7):
        mission = await fleet.mission(1)
        await fleet.do(AgentRegister(f"agent-{number}", "specialist", mission_id=mission.id))
        await fleet.lock(mission, f"/src/{number}.py", f"agent-{number}")
        await fleet.write(mission, [f"agent-{number}"])
        await fleet.restore(await fleet.checkpoint(mission))
        fleet.clock.pass_by(number % 3)
    return fleet


async def pages(ask: Callable[[str | None], Awaitable[list[Any]]]) -> list[str]:
    found: list[str] = []
    while page := await ask(found[-1] if found else None):
        found += [each.id for each in page]
    return found


@pytest.mark.parametrize("noun", LISTS)
async def test_pages_together_are_the_whole_list_in_its_order(several: Fleet, noun: str) -> None:
    async def some(after: str | None) -> list[Any]:
        page: list[Any] = getattr(await several.do(LISTS[noun](limit=2, after=after)), noun)
        assert len(page) <= 2
        return page

    whole = [each.id for each in getattr(await several.do(LISTS[noun]()), noun)]
    assert len(whole) >= 7
    assert await pages(some) == whole


async def test_the_pages_of_a_status_are_of_that_status(several: Fleet) -> None:
    await several.mission(1, start=False)

    async def some(after: str | None) -> list[Any]:
        page = await several.do(MissionList("in_progress", limit=3, after=after))
        assert page.total == 7
        return page.missions

    assert len(await pages(some)) == 7
