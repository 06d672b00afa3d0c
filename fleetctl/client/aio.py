"""The client for trio: many concurrent calls on one connection.

It waits where the blocking client blocks. Both share everything else.
"""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

import trio

from fleetd.host.socket_place import tidy
from fleetd.protocol.errors import FleetError, Unavailable
from fleetd.protocol.records import Event
from fleetd.protocol.request import Request

from .models import encode
from .protocol import (
    OutgoingCall,
    Progress,
    Reply,
    RpcProtocol,
    TooSlow,
    connection_lost,
    progress_of,
)
from .retry import (
    CONNECT_S,
    REPLY_S,
    RESTART_S,
    answer,
    default_socket,
    keyed,
    outgoing,
    reconnect,
    retried,
)
from .subscription import EventPosition, Link, LogSubscription, SubscriptionOptions
from .transport import PAUSE_S, try_dial


class TrioTransport:
    """A Unix socket with one connection at a time, on trio's clock."""

    def __init__(self) -> None:
        self._stream: trio.SocketStream | None = None

    def now(self) -> float:
        """Return trio's clock in seconds."""
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)

    async def dial(self, path: str, deadline: float) -> None:
        """Open a connection after closing the previous one; raises Unavailable or Denied."""
        self.close()
        while (found := try_dial(path, deadline - trio.current_time())) is None:  # noqa: ASYNC110
            await trio.sleep(PAUSE_S)
        connected = trio.socket.from_stdlib_socket(socket.socket(fileno=found.detach()))
        self._stream = trio.SocketStream(connected)

    async def send(self, data: bytes, wait_s: float) -> None:
        """Send all data; raises TooSlow, ConnectionLost."""
        stream = self._current()
        with trio.move_on_after(wait_s) as waiting:
            try:
                await stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # A daemon that refuses the line sends the reason before it closes: read it next.
                return
        if waiting.cancelled_caught:
            raise TooSlow

    async def receive(self, wait_s: float) -> bytes:
        """Return the next bytes; raises TooSlow when none come, ConnectionLost at the end."""
        stream = self._current()
        with trio.move_on_after(wait_s):
            try:
                data = await stream.receive_some(262_144)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise connection_lost() from error
            if not data:
                raise connection_lost()
            return bytes(data)
        raise TooSlow

    def _current(self) -> trio.SocketStream:
        if self._stream is None:
            raise connection_lost()
        return self._stream

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""
        if self._stream is not None:
            self._stream.socket.close()
            self._stream = None


# How many calls the send queue holds. When it is full, callers wait for room.
UNSENT = 32
# A silent connection is not a broken one: each call has its own timeout.
FOR_EVER = float("inf")


class _PendingReply:
    """One call that waits for its reply."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.outcome: Reply | FleetError = connection_lost()


class AsyncConnection:
    """One connection and the calls that are in flight on it."""

    def __init__(self, transport: TrioTransport, protocol: RpcProtocol) -> None:
        self.broken = False
        self._transport = transport
        self._protocol = protocol
        self._waiting: dict[int, _PendingReply] = {}
        self._listeners: dict[str, Callable[[Progress], None]] = {}
        self._to_send, self._to_take = trio.open_memory_channel[tuple[int, bytes]](UNSENT)

    async def exchange(self, call: OutgoingCall) -> Any:
        """Return a call's result; raises the daemon's error, TooSlow, ConnectionLost."""
        number, line = self._protocol.ask(call.method, call.params)
        waiting = self._waiting[number] = _PendingReply()
        if call.progress is not None:
            self._listeners[call.token] = call.progress
        try:
            with trio.move_on_after(call.reply_s):
                with suppress(trio.ClosedResourceError):  # the connection ended: see _end
                    await self._to_send.send((number, line))
                await waiting.over.wait()
        finally:
            # A cancelled call does not affect the others: its reply is ignored.
            del self._waiting[number]
            self._protocol.forget(number)
            self._listeners.pop(call.token, None)
        if not waiting.over.is_set():
            raise TooSlow
        if isinstance(waiting.outcome, FleetError):
            raise waiting.outcome
        if waiting.outcome.error is not None:
            raise waiting.outcome.error
        return waiting.outcome.result

    async def serve(self) -> None:
        """Send calls and hand out replies until the connection ends."""
        why: FleetError = connection_lost()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                why = await self._receive()
                nursery.cancel_scope.cancel()
        finally:
            self._end(why)

    async def _send(self) -> None:
        async for number, line in self._to_take:
            if number in self._waiting:
                # Half a line corrupts all that follow: cancelling a call does not stop its send.
                await self._transport.send(line, FOR_EVER)

    async def _receive(self) -> FleetError:
        """Hand out replies; return why there are no more."""
        try:
            while True:
                self._protocol.feed(await self._transport.receive(FOR_EVER))
                while (message := self._protocol.next_message()) is not None:
                    if isinstance(message, Reply):
                        if (waiting := self._waiting.get(message.number)) is not None:
                            waiting.outcome = message
                            waiting.over.set()
                    elif (update := progress_of(message)) is not None:
                        token, progress = update
                        if token in self._listeners:
                            self._listeners[token](progress)
        except FleetError as error:
            return error

    def _end(self, why: FleetError) -> None:
        self.broken = True
        self._transport.close()
        self._to_send.close()
        self._to_take.close()
        for waiting in self._waiting.values():
            if not waiting.over.is_set():
                waiting.outcome = why
                waiting.over.set()


R = TypeVar("R")


class AsyncEvents(EventPosition):
    """``Events`` for trio; ``async with fleet.events() as events`` subscribes and ends it.

    A loop that was cancelled while it waited can be started again.
    """

    def __init__(self, fleet: "AsyncFleet", path: str, options: SubscriptionOptions) -> None:
        self._log = LogSubscription(path, TrioTransport(), options, fleet.call)

    async def __aenter__(self) -> Self:
        await self._log.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._log.end(saved=kind is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._log.next_event()
        if event is None:
            raise StopAsyncIteration
        return event


class AsyncFleet:
    """This user's daemon, over one connection that any number of tasks can use concurrently.

    ``async with AsyncFleet() as fleet`` connects immediately and closes at its end; ``path`` is
    another socket than the user's own. If no daemon is there, it waits up to ``away_s`` seconds.
    Without ``connect`` the first call connects, and fails where there is no daemon.
    When the daemon restarts, it connects again and resends unanswered calls, for up to
    ``restart_s`` seconds. Cancelling a call does not affect the others; whether the daemon acted
    on it is unknown.

    Raises what ``Fleet`` raises.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        connect_s: float = CONNECT_S,
        restart_s: float = RESTART_S,
        away_s: float = 0.0,
        connect: bool = True,
    ) -> None:
        self._path = default_socket() if path is None else tidy(os.fspath(path))
        self._connect_s = connect_s
        self._away_s = away_s
        self._connects = connect
        self._restart_s = restart_s
        self._protocol = RpcProtocol()
        self._connecting = trio.StrictFIFOLock()
        self._connection: AsyncConnection | None = None
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        transport = await self._connect_first() if self._connects else None
        self._lifetime = trio.open_nursery()
        self._nursery = await self._lifetime.__aenter__()
        if transport is not None:
            self._adopt(transport)
        return self

    async def __aexit__(self, *_: object) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is None:
            return
        nursery.cancel_scope.shield = True  # it ends immediately, also when cancelled
        nursery.cancel_scope.cancel()
        # An error of the body propagates unchanged: a group of one would hide it.
        await self._lifetime.__aexit__(None, None, None)

    async def call(
        self,
        request: Request[R],
        *,
        reply_s: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> R:
        """Send a request and return its result; see ``Fleet.call``."""
        request = keyed(request)
        return answer(
            request, await self._exchange_with_retries(outgoing(request, reply_s, progress))
        )

    async def call_raw(
        self, method: str, params: Any = None, *, reply_s: float = REPLY_S, again: bool = False
    ) -> Any:
        """Send any method and return its result as plain data; see ``Fleet.call_raw``."""
        call = OutgoingCall(method, encode({} if params is None else params), reply_s)
        if again:
            return await self._exchange_with_retries(call)
        return await (await self._connected()).exchange(call)

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
        """Follow the event log; see ``AsyncEvents``, and ``Fleet.events`` for the parameters."""
        options = SubscriptionOptions(
            since, epoch, types, mission_id, consumer, away_s, on_link, agent_id
        )
        return AsyncEvents(self, self._path, options)

    async def _exchange_with_retries(self, call: OutgoingCall) -> Any:
        """Return a call's result; retries over restarts of the daemon."""

        async def exchange() -> Any:
            return await (await self._connected(wait_for_restart=True)).exchange(call)

        return await retried(exchange, self._open, TrioTransport(), self._restart_s)

    async def _connect_first(self) -> TrioTransport:
        """Connect for the first time; raises Unavailable when no daemon listens in time."""
        deadline = trio.current_time() + self._away_s
        try:
            return await self._dial(trio.current_time() + self._connect_s)
        except Unavailable:
            if not self._away_s:
                raise
            return await reconnect(self._dial, TrioTransport(), deadline)

    async def _connected(self, *, wait_for_restart: bool = False) -> AsyncConnection:
        """Return a connection that is not known to be broken.

        With ``wait_for_restart`` it waits for a daemon as long as a restart may take.
        """
        if (connection := self._connection) is not None and not connection.broken:
            return connection
        try:
            return await self._open(trio.current_time() + self._connect_s)
        except Unavailable:
            # A daemon that was never connected is not restarting.
            if not wait_for_restart or self._nursery is None or self._connection is None:
                raise
            deadline = trio.current_time() + self._restart_s
            return await reconnect(self._open, TrioTransport(), deadline)

    async def _open(self, deadline: float) -> AsyncConnection:
        """Return a new connection, or the one that another call has opened meanwhile."""
        async with self._connecting:
            if (connection := self._connection) is not None and not connection.broken:
                return connection
            return self._adopt(await self._dial(deadline))

    async def _dial(self, deadline: float) -> TrioTransport:
        transport = TrioTransport()
        await transport.dial(self._path, deadline)
        return transport

    def _adopt(self, transport: TrioTransport) -> AsyncConnection:
        if self._nursery is None:
            transport.close()
            raise Unavailable("This AsyncFleet is not open.", hint="async with AsyncFleet() ...")
        self._connection = AsyncConnection(transport, self._protocol)
        self._protocol.begin()
        self._nursery.start_soon(self._connection.serve)
        return self._connection
