"""Change feed: a bell that rings with each commit, and one read of the log for all subscribers."""

from collections.abc import Awaitable, Callable

import msgspec
import trio

from ..domain.events import streams
from ..protocol.records import Event
from ..protocol.requests.event import EventPage
from ..store.api import Followers

# Keeps the memory of a subscriber that lags behind small, and each of its turns short.
PAGE = 64
# How many subscribers wake before other tasks run: each of them then writes to its socket.
AT_ONCE = 32
_encode = msgspec.json.Encoder().encode


class Bell:
    """Wakes all waiting tasks. A task that takes its ticket before it looks misses nothing."""

    def __init__(self) -> None:
        self.followers = Followers()
        self._event = trio.Event()

    def ticket(self) -> trio.Event:
        """Return a ticket for the next ring: take it before you look, wait for it afterwards."""
        return self._event

    async def wait(self, ticket: trio.Event) -> None:
        """Wait for the ring that a ticket is for."""
        with self.followers.waiting():
            await ticket.wait()

    def ring(self) -> None:
        """Wake every task that holds a ticket."""
        self._event.set()
        self._event = trio.Event()


class FeedPage(msgspec.Struct, frozen=True):
    """All events up to a position, in order, each with its text."""

    position: int
    events: list[tuple[Event, bytes]]

    @property
    def full(self) -> bool:
        """Whether there may be many more events behind it."""
        return len(self.events) == PAGE


def encoded(page: EventPage) -> FeedPage:
    """Return a page with the text of its events."""
    return FeedPage(page.position, [(event, _encode(event)) for event in page.events])


class _SharedRead:
    """A read of one subscriber, and the others that wait for its result."""

    def __init__(self) -> None:
        self.waiting = trio.lowlevel.ParkingLot()
        self.page: FeedPage | None = None


class ChangeFeed:
    """Returns the events after a position of the log, as soon as there are any.

    Subscribers at one position share a read: when the bell rings, one of them reads the rows.
    Otherwise each of 500 subscribers would read the same rows, and everything else would wait.
    """

    def __init__(self, read: Callable[..., Awaitable[EventPage]], bell: Bell) -> None:
        self._read_when_available = read
        self._bell = bell
        self._reads: dict[int, _SharedRead] = {}

    async def after(self, position: int) -> FeedPage:
        """Return the events after a position, as soon as there are any; raises FleetError."""
        while (shared := self._reads.get(position)) is not None:
            await shared.waiting.park()
            if shared.page is not None:
                return shared.page
            # The reader was cancelled or failed. Each of the others then meets an error itself.
        return await self._read(position)

    async def _read(self, position: int) -> FeedPage:
        shared = self._reads[position] = _SharedRead()
        try:
            shared.page = await self._next(position)
        finally:
            # Before the others go on: a subscriber that joins from here on might miss newer events.
            del self._reads[position]
            if shared.page is None:
                shared.waiting.unpark_all()
        try:
            while shared.waiting:
                shared.waiting.unpark(count=AT_ONCE)
                await trio.lowlevel.checkpoint()
        finally:
            shared.waiting.unpark_all()
        return shared.page

    async def _next(self, position: int) -> FeedPage:
        while True:
            # Taken before the read: a commit in between still rings it.
            ticket = self._bell.ticket()
            page = await self._read_when_available(streams.tail, position, PAGE)
            if page.position > position:
                return encoded(page)
            await self._bell.wait(ticket)
