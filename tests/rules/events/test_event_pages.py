"""A page of events is bounded in bytes, and whoever reads on from its position misses none."""

from itertools import product
from typing import Any

import pytest

from fleetd.domain.core.context import BatchSizes
from fleetd.domain.events.streams import AT_ONCE, PAGE_BYTES
from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventAppend, EventList
from tests.support.fleet import Fleet


async def everything(fleet: Fleet, **wanted: Any) -> list[int]:
    """Return the numbers of all events that are wanted, page by page, as docs say."""
    newest = wanted.get("newest", False)
    at, seen = wanted.pop("before" if newest else "since", None if newest else 0), list[int]()
    while True:
        where = {"before": at} if newest else {"since": at}
        page = await fleet.do(EventList(**wanted, **where))
        seen += [event.seq for event in page.events]
        if page.position == at:
            return seen
        at = page.position


async def test_a_page_of_large_events_is_short_and_reading_on_misses_none(fleet: Fleet) -> None:
    size = PAGE_BYTES // 3
    for number in range(20):
        await fleet.do(EventAppend("large_one", data={"n": number, "text": "x " * (size // 2)}))

    seen: list[int] = []
    since = 0
    while (page := await fleet.do(EventList(type="large_one", since=since))).events:
        assert len(page.events) <= AT_ONCE + 3
        seen += [event.data["n"] for event in page.events]
        since = page.position

    assert seen == list(range(20))


async def test_a_page_of_small_events_has_as_many_as_were_asked_for(fleet: Fleet) -> None:
    for number in range(30):
        await fleet.do(EventAppend("small_one", data={"n": number}))

    full = await fleet.do(EventList(type="small_one", limit=20))
    assert [event.data["n"] for event in full.events] == list(range(20))
    assert full.position == full.events[-1].seq
    rest = await fleet.do(EventList(type="small_one", since=full.position, limit=20))
    assert [event.data["n"] for event in rest.events] == list(range(20, 30))


@pytest.fixture
def batches() -> BatchSizes:
    return BatchSizes(looked_at=7)


@pytest.fixture
async def log(fleet: Fleet) -> list[dict[str, Any]]:
    """Fill a log with what two agents do in two missions, a second apart; return it."""
    missions = [(await fleet.mission(0)) for _ in range(2)]
    for agent in ("a", "b"):
        await fleet.do(AgentRegister(agent, "specialist"))
    for number in range(60):
        kind = ("read_it", "wrote_it", "ran_it")[number % 3]
        mission = missions[number // 5 % 2].id
        fleet.clock.pass_by(1_000)
        await fleet.do(EventAppend(kind, mission, "ab"[number // 2 % 2]))
    found = (await fleet.do(EventList(limit=1_000))).events
    return [
        {
            "seq": each.seq,
            "type": each.type,
            "mission_id": each.mission_id,
            "agent_id": each.agent_id,
            "timestamp": each.timestamp,
        }
        for each in found
    ]


async def test_event_list_newest_agent_id_and_since_time_page_through_all_there_is(
    fleet: Fleet, log: list[dict[str, Any]]
) -> None:
    mission, time = log[-1]["mission_id"], log[len(log) // 3]["timestamp"]
    kinds = (None, ["read_it"], ["ran_it", "read_it"], ["never_was"])
    for types, of, agent, since, newest, limit in product(
        kinds, (None, mission), (None, "a", "nobody"), (None, time), (False, True), (3, 1_000)
    ):
        wanted = {
            "types": types,
            "mission_id": of,
            "agent_id": agent,
            "since_time": since,
            "newest": newest,
            "limit": limit,
        }
        expected = [
            each["seq"]
            for each in log
            if (types is None or each["type"] in types)
            and of in (None, each["mission_id"])
            and agent in (None, each["agent_id"])
            and (since is None or each["timestamp"] >= since)
        ]
        found = await everything(fleet, **wanted)
        assert found == (expected[::-1] if newest else expected), wanted


async def test_a_page_lies_between_since_and_before(
    fleet: Fleet, log: list[dict[str, Any]]
) -> None:
    last = log[-1]["seq"]
    found = await fleet.do(EventList(since=last - 5, before=last, newest=True))
    assert [each.seq for each in found.events] == [last - 1, last - 2, last - 3, last - 4]
    assert found.position == last - 4
    found = await fleet.do(EventList(since=last - 5, before=last, limit=2))
    assert [each.seq for each in found.events] == [last - 4, last - 3]
    for nothing in (EventList(newest=True, before=0), EventList(since=last), EventList(before=0)):
        assert (await fleet.do(nothing)).events == []
    later = EventList(since_time="2999-01-01T00:00:00.000Z", newest=True)
    assert (await fleet.do(later)).events == []


async def test_a_time_that_is_none_and_two_ways_to_name_types_are_refused(fleet: Fleet) -> None:
    with pytest.raises(InvalidParams, match="both given"):
        await fleet.do(EventList(type="read_it", types=["read_it"]))
