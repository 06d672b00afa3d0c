"""How the tools reach the daemon; knows no tool.

Each request has a connection of its own: a server that rests for hours takes no place in the
daemon, which has only so many, and none of it goes stale.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from fleetd.wire.base import Request
from fleetd.wire.errors import Unavailable

from ..client import AsyncEvents, AsyncFleet

R = TypeVar("R")
# systemd waits a second before it starts a daemon again that failed.
RESTART_S = 5.0
PAUSE_S = 0.1


class Link:
    """Carries requests to the daemon, over its restarts."""

    def __init__(self) -> None:
        self._was_there = False

    async def call(self, request: Request[R]) -> R:
        """Return the answer to a request; raises FleetError.

        A daemon that was there a moment ago is waited for, since it may be starting again.
        """
        deadline = trio.current_time() + (RESTART_S if self._was_there else 0)
        while True:
            try:
                answer = await self._once(request)
            except Unavailable:
                if trio.current_time() >= deadline:
                    self._was_there = False
                    raise
                await trio.sleep(PAUSE_S)
            else:
                self._was_there = True
                return answer

    @asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncEvents]:
        """Follow the event log from now on, over restarts; raises FleetError."""
        async with AsyncFleet() as fleet, fleet.events() as events:
            yield events

    async def _once(self, request: Request[R]) -> R:
        async with AsyncFleet() as fleet:
            return await fleet.call(request)
