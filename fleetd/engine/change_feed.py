"""Change feed: a bell that rings with each commit, and one reading of the log for all."""

from collections.abc import Awaitable, Callable

import msgspec
import trio

from ..domain.events import streams
from ..protocol.records import Event
from ..protocol.requests.event import EventPage

# Keeps the memory of a subscriber that lags behind small, and each of its turns short.
PAGE = 64
# How many are told before others get their turn: each is told by a write to its socket.
AT_ONCE = 32
_encode = msgspec.json.Encoder().encode


class Bell:
    """Rings for everybody at once. Whoever takes a ticket before looking misses nothing."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def ticket(self) -> trio.Event:
        """Return a ticket for the next ring: take it before you look, wait for it after."""
        return self._event

    def ring(self) -> None:
        """Wake everybody who holds a ticket."""
        self._event.set()
        self._event = trio.Event()


class FeedPage(msgspec.Struct, frozen=True):
    """Events of any kind and mission, in order, each with its text; and up to where that is all."""

    position: int
    events: list[tuple[Event, bytes]]

    @property
    def full(self) -> bool:
        """Whether there may be many more behind it."""
        return len(self.events) == PAGE


def told(page: EventPage) -> FeedPage:
    """Return a page with the text of its events."""
    return FeedPage(page.position, [(event, _encode(event)) for event in page.events])


class _Reading:
    """One who reads, and those who wait for what comes of it."""

    def __init__(self) -> None:
        self.waiting = trio.lowlevel.ParkingLot()
        self.told: FeedPage | None = None


class ChangeFeed:
    """Tells what follows a position, whenever it comes.

    Who asks from where somebody waits already waits along: one of them looks when the bell rings.
    Of 500 subscribers each would read the same rows, and everybody else wait for their readings.
    """

    def __init__(self, read: Callable[..., Awaitable[EventPage]], bell: Bell) -> None:
        self._read_when_available = read
        self._bell = bell
        self._readings: dict[int, _Reading] = {}

    async def after(self, position: int) -> FeedPage:
        """Return what follows a position, as soon as anything does; raises FleetError."""
        while (reading := self._readings.get(position)) is not None:
            await reading.waiting.park()
            if reading.told is not None:
                return reading.told
            # Whoever read has gone, or met an error: of it everybody shall hear for himself.
        return await self._read(position)

    async def _read(self, position: int) -> FeedPage:
        reading = self._readings[position] = _Reading()
        try:
            reading.told = await self._next(position)
        finally:
            # Before anybody is told: who asks from here on might otherwise miss what is newer.
            del self._readings[position]
            if reading.told is None:
                reading.waiting.unpark_all()
        try:
            while reading.waiting:
                reading.waiting.unpark(count=AT_ONCE)
                await trio.lowlevel.checkpoint()
        finally:
            reading.waiting.unpark_all()
        return reading.told

    async def _next(self, position: int) -> FeedPage:
        while True:
            # Taken before looking: what is committed in between still rings it.
            ticket = self._bell.ticket()
            page = await self._read_when_available(streams.tail, position, PAGE)
            if page.position > position:
                return told(page)
            await ticket.wait()
