"""``Fleet``, the blocking client."""

from __future__ import annotations

import os
import time
from _thread import RLock

from fleetd.host.socket_place import tidy
from fleetd.protocol.errors import Unavailable

from .models import Request, encode
from .protocol import OutgoingCall, Progress, Reply, RpcProtocol, TooSlow, progress_of
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
    run_blocking,
)
from .transport import SocketTransport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self, TypeVar

    from .subscription import Events, Link

    R = TypeVar("R")


def call(request: Request[R], *, progress: Callable[[Progress], None] | None = None) -> R:
    """Send one request over a connection of its own and return its result, as ``Fleet.call``."""
    with Fleet() as client:
        return client.call(request, progress=progress)


class Fleet:
    """This user's daemon, over one connection, one call at a time.

    It connects immediately, so a Fleet has a daemon; ``path`` is another socket than the user's
    own. When the daemon restarts, it connects again and resends unanswered calls, for up to
    ``restart_s`` seconds. Threads that share a Fleet take turns. A forked process gets its own
    connection.

    Raises Unavailable when nobody listens, Denied when the server is another user's, Incompatible
    when a reply is malformed, and the daemon's own FleetError for a call that it refused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        connect_s: float = CONNECT_S,
        restart_s: float = RESTART_S,
    ) -> None:
        self._path = default_socket() if path is None else tidy(os.fspath(path))
        self._connect_s = connect_s
        self._restart_s = restart_s
        self._transport = SocketTransport()
        self._protocol = RpcProtocol()
        self._turn = RLock()
        self._turns_of = os.getpid()
        self._subscriptions: list[Events] = []
        self._closed = False
        run_blocking(self._open(time.monotonic() + connect_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and all subscriptions to events; closing twice is harmless."""
        self._closed = True
        self._transport.close()
        while self._subscriptions:
            self._subscriptions.pop().close()

    def call(
        self,
        request: Request[R],
        *,
        reply_s: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> R:
        """Send a request and return its result; waits up to ``reply_s`` seconds in all.

        The default is two minutes for calls that may change something, else 15 seconds. A time
        that the request lets the daemon wait is added. Calls that take long get a day.

        A call that may change something carries an idempotency key. It can be sent again when the
        daemon went away before it answered, and is applied only once.

        ``progress`` receives the progress of a long call a few times a second.
        """
        request = keyed(request)
        return answer(request, self._exchange_in_turn(outgoing(request, reply_s, progress)))

    def call_raw(
        self, method: str, params: Any = None, *, reply_s: float = REPLY_S, again: bool = False
    ) -> Any:
        """Send any method with any parameters and return its result as plain data.

        ``again`` allows a retry over a restart of the daemon: for calls that change nothing and
        for calls with an idempotency key.
        """
        sent = encode({} if params is None else params)
        return self._exchange_in_turn(OutgoingCall(method, sent, reply_s), again=again)

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
    ) -> Events:
        """Follow the event log from after ``since``, or from now on; see ``Events``.

        ``types``, ``mission_id`` and ``agent_id`` filter. ``epoch`` names the store to which
        ``since`` belongs. A ``consumer`` continues at the cursor of that name, and moves it behind
        the processed events. The loop waits ``away_s`` seconds for a daemon that went away, or for
        ever; ``on_link`` is called when it goes and when it is back.
        """
        from .subscription import Events, SubscriptionOptions

        options = SubscriptionOptions(
            since, epoch, types, mission_id, consumer, away_s, on_link, agent_id
        )
        events = Events(self, self._path, SocketTransport(), options)
        self._subscriptions = [each for each in self._subscriptions if not each.closed]
        self._subscriptions.append(events)
        return events

    async def _open(self, deadline: float) -> None:
        if self._closed:
            raise Unavailable("This Fleet was closed.", hint="Open another one.")
        self._protocol.begin()
        await self._transport.dial(self._path, deadline)

    async def _reopen(self) -> None:
        """Connect again; waits for a daemon as long as a restart may take."""
        try:
            await self._open(time.monotonic() + self._connect_s)
        except Unavailable:
            if self._closed:
                raise
            await reconnect(self._open, self._transport, time.monotonic() + self._restart_s)

    def _exchange_in_turn(self, call: OutgoingCall, *, again: bool = True) -> Any:
        """Return a call's result; ``again`` retries over restarts of the daemon."""

        async def exchange() -> Any:
            if not self._transport.open:
                await (self._reopen() if again else self._open(time.monotonic() + self._connect_s))
            return await self._exchange(call)

        with self._lock():
            if not again:
                return run_blocking(exchange())
            return run_blocking(retried(exchange, self._open, self._transport, self._restart_s))

    def _lock(self) -> RLock:
        """Return the lock of threads that share this client; a fork may have copied it locked."""
        if self._turns_of != os.getpid():
            self._turn, self._turns_of = RLock(), os.getpid()
        return self._turn

    async def _exchange(self, call: OutgoingCall) -> Any:
        try:
            reply = await self._reply(call)
        except BaseException:
            # The next bytes on this connection may be half of a message.
            self._transport.close()
            raise
        if reply.error is not None:
            raise reply.error
        return reply.result

    async def _reply(self, call: OutgoingCall) -> Reply:
        number, line = self._protocol.ask(call.method, call.params)
        deadline = self._transport.now() + call.reply_s
        await self._transport.send(line, call.reply_s)
        while True:
            while (message := self._protocol.next_message()) is None:
                if (left := deadline - self._transport.now()) <= 0:
                    raise TooSlow
                self._protocol.feed(await self._transport.receive(left))
            if isinstance(message, Reply):
                if message.number == number:
                    return message
            elif call.progress is not None and (update := progress_of(message)) is not None:
                call.progress(update[1])
