"""The event log as something to loop over in trio; must not know how it outlives a restart."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from fleetd.protocol.records import Event
from fleetd.protocol.request import Request
from fleetd.protocol.requests.event import CursorGap

from .async_transport import TrioCarrier
from .subscription import Following
from .subscription_options import Link, Wanted

if TYPE_CHECKING:
    from .aio import AsyncFleet

R = TypeVar("R")


class AsyncEvents:
    """Events in the order of the log, each once, over restarts of the daemon.

    ``async with fleet.events() as events`` subscribes and ends it. It has a connection of its own.
    Nothing is read ahead of the loop: one that is slow lags behind and loses nothing. What was
    cancelled while it waited may be asked again. With a ``consumer`` whoever asks for the next
    event has dealt with those before, and the end of the block says so of the last one too, unless
    it was left by an exception.

    The loop raises StoreReplaced when the store is not the one it was, and ConnectionLost when the
    daemon is away for longer than was allowed.
    """

    def __init__(self, fleet: "AsyncFleet", path: Path, wanted: Wanted) -> None:
        async def call(request: Request[R]) -> R:
            return await fleet.call(request)

        self._following = Following(path, TrioCarrier(), wanted, call)

    @property
    def position(self) -> int:
        """Return the ``seq`` of the last event that was given out, else of the one before."""
        return self._following.position or 0

    @property
    def epoch(self) -> str:
        """Return of which store the position is one."""
        return self._following.epoch or ""

    @property
    def gap(self) -> CursorGap | None:
        """Return which events the consumer has missed for good, None when it missed none."""
        return self._following.cursor.gap

    @property
    def link(self) -> Link:
        """Return how it stands with the daemon."""
        return self._following.link

    async def __aenter__(self) -> Self:
        await self._following.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self._following.save()
        finally:
            self._following.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._following.next_event()
        if event is None:
            raise StopAsyncIteration
        return event
