"""Pagination: read lists page by page, the event log backwards, and the fleet's overview."""

from __future__ import annotations

from fleetd.protocol.errors import Unavailable

from . import Fleet
from .models import Event, EventList, Status, SystemStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")
# The most items in one page. The daemon returns a shorter list whole.
PAGE = 1_000


def all_pages(page: Callable[..., Sequence[T]]) -> list[T]:
    """Return a whole list; ``page`` fetches the items after ``after``, else the first ones.

    It sends no ``limit``: a daemon that knows no pages would refuse the parameter.
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
    """Yield events, newest first, as far back as the caller reads; a page has at most ``limit``.

    ``terms`` are further parameters of ``EventList``.
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
    """Return the status; raises Unavailable while the store, which has its counts, is away."""
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
