"""One subscriber that follows the event log; must not know sockets, only how to send lines."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from .domain.context import Caller
from .domain.streams import EventTail
from .engine import Engine
from .wire.model import Event
from .wire.requests.event import EventPage, EventSubscribe, Subscription

log = logging.getLogger(__name__)

# Keeps the memory of a subscriber that lags behind small, and each of its turns short.
PAGE = 64
_encode = msgspec.json.Encoder().encode


class Follower:
    """Sends every matching event of the log, in order and without gaps, until it is ended.

    It reads the log by position, so a subscriber that is slow lags behind and loses nothing.
    """

    def __init__(
        self, engine: Engine, caller: Caller, request: EventSubscribe, start: Subscription
    ) -> None:
        self.id = start.subscription_id
        self._engine = engine
        self._caller = caller
        self._request = request
        self._position = start.position
        self._ended = False
        self._looking = trio.CancelScope()

    def end(self) -> None:
        """Stop; a line that is being sent is finished, since half a line would be garbage."""
        self._ended = True
        self._looking.cancel()

    async def run(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Follow the log; raises FleetError when it cannot be read any more."""
        while not self._ended:
            page: EventPage | None = None
            with trio.CancelScope() as self._looking:
                page = await self._next_page()
            if page is not None and not self._ended:
                self._position = page.position
                if page.events:
                    await send(b"".join(self._notification(event) for event in page.events))

    async def _next_page(self) -> EventPage:
        """Return the next page that leads further, waiting at the bell until there is one."""
        while True:
            # Taken before looking: what is committed in between still rings it.
            ticket = self._engine.bell.ticket()
            page = await self._engine.perform(self._tail(), self._caller)
            if page.events or page.position > self._position:
                return page
            await ticket.wait()

    def _tail(self) -> EventTail:
        return EventTail(
            since=self._position,
            types=self._request.types,
            mission_id=self._request.mission_id,
            limit=PAGE,
        )

    def _notification(self, event: Event) -> bytes:
        params: dict[str, Any] = {"subscription_id": self.id, "event": event}
        return _encode({"jsonrpc": "2.0", "method": "event", "params": params}) + b"\n"
