"""How the tools reach the daemon; knows no tool.

Each request has a connection of its own: a server that rests for hours takes no place in the
daemon, which has only so many, and none of it goes stale.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

from fleetd.protocol.errors import FleetError, Unavailable
from fleetd.protocol.request import Request

from ..client import AsyncEvents, AsyncFleet, ConnectionLost, TooSlow
from ..client.retry import RESTART_S, keyed, new_key

R = TypeVar("R")
# How long the same call again means the one that was lost: an agent calls again at once or asks
# its user first.
KEPT_S = 120.0
_What = tuple[str, bytes]


class _Kept(NamedTuple):
    key: str
    until: float
    """By the clock of the link."""


class Link:
    """Carries requests to the daemon, over its restarts; only the client sends one again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._was_there = False
        self._clock = clock
        self._unknown: dict[_What, _Kept] = {}

    async def call(self, request: Request[R], *, once: bool = False) -> R:
        """Return the answer to a request; raises FleetError.

        A daemon that was there a moment ago is waited for, since it may be starting again. What is
        to be done ``once`` has its key again when the same is asked soon after the connection
        failed: an agent that was told to call again is answered what came of the first call.
        """
        what = (request.method, request.encoded())
        key = self._kept(what) if once else new_key()
        try:
            answer = await self._once(keyed(request, key))
        except FleetError as error:
            self._was_there = not isinstance(error, Unavailable)
            # Whoever cancels a call knows that it may be done; to ask again is a new wish then.
            if once and isinstance(error, ConnectionLost | TooSlow):
                self._unknown[what] = _Kept(key, self._clock() + KEPT_S)
            raise
        self._was_there = True
        return answer

    def _kept(self, what: _What) -> str:
        """Return the key of the same call when nobody knows what became of it, else a new one."""
        now = self._clock()
        self._unknown = {each: kept for each, kept in self._unknown.items() if kept.until > now}
        kept = self._unknown.pop(what, None)
        return kept.key if kept else new_key()

    @asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncEvents]:
        """Follow the event log from now on, over restarts; raises FleetError."""
        async with AsyncFleet() as fleet, fleet.events() as events:
            yield events

    async def _once(self, request: Request[R]) -> R:
        async with AsyncFleet(away_s=RESTART_S if self._was_there else 0) as fleet:
            return await fleet.call(request)
