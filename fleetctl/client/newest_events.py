"""The event log from its end backwards, page by page; must not show it."""

from collections.abc import Iterator

from . import Fleet
from .models import Event, EventList

PAGE = 1_000


def newest(
    client: Fleet,
    *,
    mission_id: str | None = None,
    types: list[str] | None = None,
    agent_id: str | None = None,
    since_time: str | None = None,
    limit: int = PAGE,
) -> Iterator[Event]:
    """Yield events, newest first, as far back as somebody asks; pages have ``limit`` at most."""
    before = None
    while True:
        page = client.call(
            EventList(
                mission_id=mission_id,
                types=types,
                agent_id=agent_id,
                since_time=since_time,
                newest=True,
                before=before,
                limit=min(limit, PAGE),
            )
        )
        yield from page.events
        if page.position == before or not (page.events or agent_id):
            return
        before = page.position
