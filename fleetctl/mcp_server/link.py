"""How the tools reach the daemon; knows no tool.

Each request has a connection of its own: a server that rests for hours takes no place in the
daemon, which has only so many, and none of it goes stale.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from fleetd.wire.base import Request
from fleetd.wire.errors import FleetError, Unavailable

from ..client import AsyncEvents, AsyncFleet, ConnectionLost, TooSlow
from ..client.insisting import RESTART_S, keyed, new_key

R = TypeVar("R")


class Link:
    """Carries requests to the daemon, over its restarts; only the client sends one again."""

    def __init__(self) -> None:
        self._was_there = False
        self._unknown: dict[tuple[str, bytes], str] = {}

    async def call(self, request: Request[R], *, once: bool = False) -> R:
        """Return the answer to a request; raises FleetError.

        A daemon that was there a moment ago is waited for, since it may be starting again. What is
        to be done ``once`` has its key again when the same is asked after nobody knew what became
        of it: an agent that was told to call again is answered what came of the first call.
        """
        what = (request.method, request.encoded())
        key = (self._unknown.pop(what, None) if once else None) or new_key()
        known = False
        try:
            answer = await self._once(keyed(request, key))
            known = self._was_there = True
        except FleetError as error:
            self._was_there = not isinstance(error, Unavailable)
            known = not isinstance(error, ConnectionLost | TooSlow)
            raise
        finally:
            if once and not known:
                self._unknown[what] = key
        return answer

    @asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncEvents]:
        """Follow the event log from now on, over restarts; raises FleetError."""
        async with AsyncFleet() as fleet, fleet.events() as events:
            yield events

    async def _once(self, request: Request[R]) -> R:
        async with AsyncFleet(away_s=RESTART_S if self._was_there else 0) as fleet:
            return await fleet.call(request)
