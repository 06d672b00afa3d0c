"""Reading lists page by page, the event log backwards, and the fleet's overview."""

from __future__ import annotations

from fleetd.protocol.errors import Unavailable

from . import Fleet
from .models import Event, EventList, Status, SystemStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")
# How many the daemon returns at most, of what it lists whole when there are fewer.
PAGE = 1_000


def all_pages(page: Callable[..., Sequence[T]]) -> list[T]:
    """Return all of a list; ``page`` asks for what follows ``after``, else for the first ones.

    ``limit`` is left to the daemon: one that knows no pages would refuse to hear of them.
    """
    found = list(page())
    last: Sequence[Any] = found
    while len(last) == PAGE:
        last = page(after=last[-1].id)
        found += last
    return found


def newest_events(
    client: Fleet, *, limit: int = PAGE, agent_id: str | None = None, **terms: Any
) -> Iterator[Event]:
    """Yield events, newest first, as far back as somebody asks; pages have ``limit`` at most.

    ``terms`` are others of ``EventList``.
    """
    before = None
    while True:
        page = client.call(
            EventList(
                **terms, agent_id=agent_id, newest=True, before=before, limit=min(limit, PAGE)
            )
        )
        yield from page.events
        if page.position == before or not (page.events or agent_id):
            return
        before = page.position


def overview(client: Fleet) -> Status:
    """Return the status; raises Unavailable while the store is away, of which it would tell."""
    status = client.call(SystemStatus())
    if status.counts is None:
        away = status.store.away if status.store else None
        raise Unavailable(
            f"The store is away: {away.message if away else 'the daemon ends'}",
            hint="fleetctl status says since when.",
            away_ms=away.for_ms if away else 0,
        )
    return status


def position_of(client: Fleet) -> int:
    """Return the ``seq`` of the newest event; raises Unavailable while the store is away."""
    return overview(client).position or 0
