"""A page of events is bounded in bytes, and whoever reads on from its position misses none."""

from fleetd.domain.streams import AT_ONCE, PAGE_BYTES
from fleetd.wire.requests.event import EventAppend, EventList
from tests.fleet import Fleet


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
