"""The event log as something to loop over; must not know how a subscription outlives a restart."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from fleetd.protocol.records import Event
from fleetd.protocol.request import Request
from fleetd.protocol.requests.event import CursorGap

from .retry import at_once
from .subscription import Following
from .subscription_options import Link, Wanted
from .transport import SocketCarrier

if TYPE_CHECKING:
    from .sync import Fleet

R = TypeVar("R")


class Events:
    """Events in the order of the log, each once, over restarts of the daemon; ends with its Fleet.

    It has a connection of its own. Nothing is read ahead of the loop: one that is slow lags behind
    and loses nothing. With a ``consumer`` whoever asks for the next event has dealt with those
    before, and ``with`` says so of the last one too, unless it was left by an exception.

    The loop raises StoreReplaced when the store is not the one it was, and ConnectionLost when the
    daemon is away for longer than was allowed.
    """

    def __init__(self, fleet: "Fleet", path: Path, carrier: SocketCarrier, wanted: Wanted) -> None:
        async def call(request: Request[R]) -> R:
            return fleet.call(request)

        self._following = Following(path, carrier, wanted, call)
        at_once(self._following.begin())

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

    @property
    def closed(self) -> bool:
        """Return whether nothing comes any more."""
        return self._following.closed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = at_once(self._following.next_event())
        if event is None:
            raise StopIteration
        return event

    def next(self, wait_s: float) -> Event | None:
        """Return the next event; None when ``wait_s`` seconds went by without one."""
        return at_once(self._following.next_event(wait_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                at_once(self._following.save())
        finally:
            self.close()

    def close(self) -> None:
        """End it; a consumer's cursor stays where it was moved last."""
        self._following.close()
