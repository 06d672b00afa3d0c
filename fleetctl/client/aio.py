"""The client for trio: many calls at a time on one connection; must not know how calls outlive it.

What the blocking client does by blocking is done here by waiting; all else is what both share.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from fleetd.protocol.errors import Unavailable
from fleetd.protocol.request import Request

from .async_connection import Connection
from .async_subscription import AsyncEvents
from .async_transport import TrioCarrier
from .protocol import Conversation, Progress
from .records import encode
from .retry import (
    CONNECT_S,
    REPLY_S,
    RESTART_S,
    answer,
    insisted,
    keyed,
    new_key,
    opened_again,
    patience,
    users_socket,
)
from .subscription_options import Link, Wanted

R = TypeVar("R")


class AsyncFleet:
    """This user's daemon, over one connection, with as many calls in flight as there are tasks.

    ``async with AsyncFleet() as fleet`` connects at once and closes at its end; ``path`` is another
    socket than the user's own. A daemon that is not there then is waited for ``away_s`` seconds.
    When the daemon is restarted, it connects again and sends what was not answered again, for up to
    ``restart_s`` seconds. A call that is cancelled leaves the others
    whole; whether the daemon acted on it is not known.

    Raises what ``Fleet`` raises.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        connect_s: float = CONNECT_S,
        restart_s: float = RESTART_S,
        away_s: float = 0.0,
    ) -> None:
        self._path = users_socket() if path is None else Path(path)
        self._connect_s = connect_s
        self._away_s = away_s
        self._restart_s = restart_s
        self._conversation = Conversation()
        self._connecting = trio.StrictFIFOLock()
        self._connection: Connection | None = None
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        carrier = await self._first()
        self._lifetime = trio.open_nursery()
        self._nursery = await self._lifetime.__aenter__()
        self._adopt(carrier)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is None:
            return
        nursery.cancel_scope.shield = True  # it ends at once, whoever is cancelled
        nursery.cancel_scope.cancel()
        # An error of the body goes its own way: in a group with nothing else it would be hidden.
        await self._lifetime.__aexit__(None, None, None)

    async def call(
        self,
        request: Request[R],
        *,
        reply_s: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> R:
        """Send a request and return its result; waits up to ``reply_s`` seconds in all.

        By default that is two minutes for what changes something, else 15 seconds; longer by what
        the daemon is told to wait, and a day for what takes long.

        A call that may change something carries an idempotency key, so that it can be sent again
        when the daemon went away before it answered, and is applied once all the same.

        ``progress`` is told a few times a second how far a call is that takes long.
        """
        request, token = keyed(request), new_key()
        if progress is not None:
            request = request.tracked(token)
        wait_s = patience(request, reply_s)
        result = await self._insist(request.method, request.encoded(), wait_s, token, progress)
        return answer(request, result)

    async def call_raw(
        self, method: str, params: Any = None, *, reply_s: float = REPLY_S, again: bool = False
    ) -> Any:
        """Send any method with any parameters and return its result as plain data.

        ``again`` allows it to be sent again over a restart of the daemon: for what changes nothing
        and for what has an idempotency key.
        """
        sent = encode({} if params is None else params)
        if again:
            return await self._insist(method, sent, reply_s)
        connection = await self._connected()
        return await connection.exchange(method, sent, reply_s)

    def events(
        self,
        *,
        since: int | None = None,
        types: Sequence[str] | None = None,
        mission_id: str | None = None,
        epoch: str | None = None,
        consumer: str | None = None,
        away_s: float | None = None,
        agent_id: str | None = None,
        on_link: Callable[[Link], None] | None = None,
    ) -> AsyncEvents:
        """Follow the event log from after ``since``, or from now on; see ``AsyncEvents``.

        The parameters are those of ``Fleet.events``.
        """
        wanted = Wanted(since, epoch, types, mission_id, consumer, away_s, on_link, agent_id)
        return AsyncEvents(self, self._path, wanted)

    async def _insist(
        self,
        method: str,
        params: bytes,
        reply_s: float,
        token: str = "",
        progress: Callable[[Progress], None] | None = None,
    ) -> Any:
        """Exchange a call for its result, over restarts of the daemon."""

        async def exchange() -> Any:
            connection = await self._connected(patient=True)
            return await connection.exchange(method, params, reply_s, token, progress)

        async def come_back(deadline: float) -> Connection:
            return await opened_again(self._open, TrioCarrier(), deadline)

        return await insisted(exchange, come_back, TrioCarrier(), self._restart_s)

    async def _first(self) -> TrioCarrier:
        """Connect for the first time; raises Unavailable when nobody is there in time."""
        deadline = trio.current_time() + self._away_s
        try:
            return await self._dialled(trio.current_time() + self._connect_s)
        except Unavailable:
            if not self._away_s:
                raise
            return await opened_again(self._dialled, TrioCarrier(), deadline)

    async def _connected(self, *, patient: bool = False) -> Connection:
        """Return a connection that is not known to be broken.

        ``patient`` waits for a daemon as long as a restart may take.
        """
        if (connection := self._connection) is not None and not connection.broken:
            return connection
        try:
            return await self._open(trio.current_time() + self._connect_s)
        except Unavailable:
            if not patient or self._nursery is None:
                raise
            deadline = trio.current_time() + self._restart_s
            return await opened_again(self._open, TrioCarrier(), deadline)

    async def _open(self, deadline: float) -> Connection:
        """Return a new connection, or the one that another call has opened meanwhile."""
        async with self._connecting:
            if (connection := self._connection) is not None and not connection.broken:
                return connection
            return self._adopt(await self._dialled(deadline))

    async def _dialled(self, deadline: float) -> TrioCarrier:
        carrier = TrioCarrier()
        await carrier.dial(self._path, deadline)
        return carrier

    def _adopt(self, carrier: TrioCarrier) -> Connection:
        if self._nursery is None:
            carrier.close()
            raise Unavailable("This AsyncFleet is not open.", hint="async with AsyncFleet() ...")
        self._connection = Connection(carrier, self._conversation)
        self._conversation.begin()
        self._nursery.start_soon(self._connection.serve)
        return self._connection
