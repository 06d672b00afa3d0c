"""What the methods know about the line that asked: its connection; must not read or write it."""

from typing import TYPE_CHECKING, Any

from ..protocol.errors import Unavailable
from ..protocol.progress import LongMutation
from ..protocol.request import Query, Request
from ..protocol.requests.event import EventSubscribe, EventUnsubscribe, Subscription
from ..protocol.requests.system import RpcDiscover
from . import openrpc
from .subscription import Follower

if TYPE_CHECKING:
    from .connection import Connection


class Call:
    """One line being answered: what the methods know about where it came from."""

    def __init__(self, connection: "Connection", size: int) -> None:
        self._connection = connection
        self._size = size
        self._refused = connection.draining
        self.followers: list[Follower] = []

    async def perform(self, request: Request[Any]) -> Any:
        """Carry out one request of the line; raises FleetError."""
        if self._refused:
            raise Unavailable(
                "fleetd is shutting down.",
                hint="Try again when it has been started again.",
                retry=True,
            )
        if isinstance(request, EventSubscribe):
            return await self._subscribe(request)
        if isinstance(request, EventUnsubscribe):
            return self._connection.unsubscribe(request.subscription_id)
        if isinstance(request, RpcDiscover):
            return openrpc.document()
        if isinstance(request, LongMutation) and request.progress_token is not None:
            with self._connection.telling(request.progress_token):
                return await self._perform(request)
        return await self._perform(request)

    async def _perform(self, request: Request[Any]) -> Any:
        if isinstance(request, Query):
            async with self._connection.reading():
                return await self._connection.engine.handle(request, self._connection.caller)
        return await self._connection.engine.handle(
            request, self._connection.caller, size=self._size, behind=self._connection.cleaning
        )

    async def _subscribe(self, request: EventSubscribe) -> Subscription:
        follower, start = await self._connection.subscribe(request)
        self.followers.append(follower)
        return start


async def perform(request: Request[Any], call: Call) -> Any:
    """Carry out a request in the context of its line: what the method table calls."""
    return await call.perform(request)
