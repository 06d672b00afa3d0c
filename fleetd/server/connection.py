"""One client's connection: lines in, replies out, within limits of number, size and time."""

import logging
import select
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from ..config import Limits
from ..domain.core.context import Caller
from ..engine.engine import Engine
from ..protocol.display import shown
from ..protocol.errors import FleetError, LimitExceeded, NotFound, Unavailable
from ..protocol.framing import Line
from ..protocol.request import LongMutation, Query, Request
from ..protocol.requests.event import EventSubscribe, EventUnsubscribe, Subscription, Unsubscribed
from ..protocol.requests.system import RpcDiscover
from . import openrpc, rpc
from .lines import LargeLineLimit, LineReader, LineWriter, SendBudget
from .progress import report_to_client
from .rpc import Dispatcher, RpcMessage, error_reply
from .subscription import Follower, subscribe

T = TypeVar("T")
log = logging.getLogger(__name__)

_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLNVAL
_GONE_POLL_SECONDS = 0.1
_LINGER_SECONDS = 1.0
_LINGER_LINES = 4


class LeaderFollowers(Generic[T]):
    """Calls ``receive`` in one task at a time, and ``work`` in the task that received.

    Each piece of work in progress has a task, and one more task waits for work. Work begins in the
    order in which it was received. A new task for every request would begin one round of the
    scheduler after the read. That costs more than most requests.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        receive: Callable[[], Awaitable[T | None]],
        work: Callable[[T], Awaitable[None]],
    ) -> None:
        self._nursery = nursery
        self._receive = receive
        self._work = work
        self._next: trio.lowlevel.Task | None = None
        self._over = False

    async def run(self) -> None:
        """Take turns until ``receive`` has returned None; the nursery holds the busy tasks."""
        while not self._over:
            piece = await self._receive()
            self._over = piece is None
            self._hand_over()
            if piece is None:
                return
            await self._work(piece)
            del piece  # free its memory while this task waits for a turn
            if self._over or self._next is not None:
                return
            await self._wait()

    def _hand_over(self) -> None:
        """Give the turn to a waiting or new task, which begins when this task has to wait."""
        if self._next is not None:
            trio.lowlevel.reschedule(self._next)
            self._next = None
        elif not self._over:
            self._nursery.start_soon(self.run)

    async def _wait(self) -> None:
        self._next = trio.lowlevel.current_task()

        def give_up(_: object) -> trio.lowlevel.Abort:
            self._next = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)


def is_gone(sock: socket.socket | trio.socket.SocketType) -> bool:
    """Return whether the other end is fully closed; one that only stopped sending is not gone."""
    poll = select.poll()
    poll.register(sock, 0)
    return any(events & _HUNG_UP for _, events in poll.poll(0))


class CallContext:
    """The context of the methods for the line that is being answered."""

    def __init__(self, connection: "ClientConnection", size: int) -> None:
        self._connection = connection
        self._size = size
        self._refused = connection.draining
        self.followers: list[Follower] = []

    async def perform(self, request: Request[Any]) -> Any:
        """Carry out one request of the line; raises FleetError."""
        if self._refused:
            raise Unavailable(
                "fleetd is shutting down.",
                hint="Try again after it has started.",
                retry=True,
            )
        match request:
            case EventSubscribe():
                follower, start = await self._connection.subscribe(request)
                self.followers.append(follower)
                return start
            case EventUnsubscribe():
                return self._connection.unsubscribe(request.subscription_id)
            case RpcDiscover():
                return openrpc.document()
            case LongMutation(progress_token=str(token)):
                with self._connection.reporting(token):
                    return await self._perform(request)
        return await self._perform(request)

    async def _perform(self, request: Request[Any]) -> Any:
        if isinstance(request, Query):
            async with self._connection.reading():
                return await self._connection.engine.handle(request, self._connection.caller)
        return await self._connection.engine.handle(
            request, self._connection.caller, size=self._size, behind=self._connection.cleaning
        )


class ClientConnection:
    """Reads lines and answers each while it waits for the next, until one side has had enough.

    ``serve`` returns when the connection is over. Nothing that a client does raises out of it.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        caller: Caller,
        engine: Engine,
        dispatcher: Dispatcher,
        limits: Limits,
        large: LargeLineLimit,
        unsent: SendBudget,
    ) -> None:
        self.caller = caller
        self.engine = engine
        self.draining = False
        self._stream = stream
        self._dispatcher = dispatcher
        self._limits = limits
        self._large = large
        self._lines = LineReader(
            stream, limit=limits.line_bytes, timeout_ms=limits.line_timeout_ms, large=large
        )
        self._reply_seconds = limits.reply_timeout_ms / 1000
        self._scope = trio.CancelScope()
        self._room = trio.Semaphore(limits.requests_in_flight)
        self._in_flight = 0
        self._replies = LineWriter(
            stream,
            seconds=self._reply_seconds,
            unsent=unsent,
            too_slow=self._cut_off,
            gone=self.evict,
        )
        self._reading = trio.StrictFIFOLock()
        self._followers: dict[str, Follower] = {}
        self._subscribing = 0
        self._since = trio.current_time()
        self._violation: LimitExceeded | None = None
        # Keeps requests in order while a long one is searched for secrets.
        self.cleaning = trio.StrictFIFOLock()
        self.answered = False
        """Whether a request of the client was ever answered."""

    @property
    def socket(self) -> trio.socket.SocketType:
        """Return the client's socket."""
        return self._stream.socket

    @property
    def idle_since(self) -> float | None:
        """Return since when the connection is idle, None if it is busy; ignores half a line."""
        busy = self._in_flight or self._followers or self._replies.lines
        return None if busy else self._since

    def evict(self) -> None:
        """Close the connection silently: no request waits for a reply."""
        self._scope.cancel()

    async def serve(self) -> None:
        """Serve the client until it leaves, breaks a limit, or the daemon stops."""
        with self._scope:
            async with trio.open_nursery() as self._background:
                async with trio.open_nursery() as self._requests:
                    await LeaderFollowers(self._requests, self._read, self._answer).run()
                if self._violation is not None:
                    await self._linger()
                self._scope.cancel()

    def drain(self) -> None:
        """Refuse further requests, and close as soon as nothing is in flight."""
        self.draining = True
        self._close_when_drained()

    def _close_when_drained(self) -> None:
        if self.draining and not self._in_flight:
            self._scope.cancel()

    # Reading

    async def _read(self) -> RpcMessage | None:
        """Return the next message, which has its place; None after the client's last one."""
        try:
            while (line := await self._lines.next_line()) is not None:
                if len(line) > self._limits.line_bytes:
                    await self._take_large(line)
                elif (message := await self._parse(line, rpc.parse)) is not None:
                    await self._take_place()
                    return message
                del line  # free its memory while this task waits for the next one
        except LimitExceeded as violation:
            self._violation = violation
        await self._end_of_input()
        return None

    async def _take_large(self, line: Line) -> None:
        """Answer a large line before reading on, and give its room to the next."""
        try:
            message = await self._parse(line, rpc.parse_large)
            if message is not None:
                await self._take_place()
                await self._answer(message)
        finally:
            self._large.leave()

    async def _parse(self, line: Line, parse: Callable[..., RpcMessage]) -> RpcMessage | None:
        """Return the requests of a line; None when it was refused and the connection goes on."""
        try:
            work = partial(parse, line, depth=self._limits.depth, batch=self._limits.batch)
            return await self.engine.cpu_worker.run(work, len(line))
        except LimitExceeded:
            raise
        except FleetError as error:
            self.engine.traffic.failed(error.kind)
            await self.send(error_reply(error) + b"\n")
            # A refusal never waits: without this, a block of junk would block all other clients.
            await trio.lowlevel.checkpoint()
            return None

    async def _take_place(self) -> None:
        """Wait until the limit of requests in flight allows one more, and count it."""
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_when_gone)
                await self._room.acquire()
                nursery.cancel_scope.cancel()
        self._in_flight += 1

    async def _cancel_when_gone(self) -> None:
        """Watch for a client that disconnects while nothing reads from it, and cancel its work.

        Without this, its place in the queue for a lock would outlive it.
        """
        gone = False
        while not gone:
            # Sleep first, so that requests that a client sent before it left can start.
            await trio.sleep(_GONE_POLL_SECONDS)
            gone = is_gone(self._stream.socket)
        self._scope.cancel()

    # Answering

    async def _answer(self, message: RpcMessage) -> None:
        since_ns = time.perf_counter_ns()
        call = CallContext(self, message.size)
        try:
            reply = await self._dispatcher.answer(message, call, since_ns)
            if reply is not None:
                await self.send(reply)
            for follower in call.followers:
                self._background.start_soon(self._follow, follower)
            self.answered = True
        finally:
            self._in_flight -= 1
            self._since = trio.current_time()
            self._room.release()
            self._close_when_drained()

    async def send(self, data: bytes) -> None:
        """Send whole lines; a client that does not take them in time loses its connection."""
        await self._replies.send(data)

    def _cut_off(self) -> None:
        self.engine.traffic.cut_off += 1
        log.info("A client did not read its reply in time; its connection is closed.")
        self._scope.cancel()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Wait until the client's earlier reads are done, and the client has taken the replies.

        Otherwise the daemon makes 32 large replies for a client that asks for much and takes
        nothing, and other clients that read wait for all of them.
        """
        try:
            self._reading.acquire_nowait()
        except trio.WouldBlock:
            await self._reading.acquire()
        try:
            await self._replies.drained()
            yield
        finally:
            self._reading.release()

    def reporting(self, token: str) -> AbstractContextManager[None]:
        """Report the progress of a block to the client, until the block ends."""
        return report_to_client(token, self._replies.offer, self._background)

    # Subscriptions

    async def subscribe(self, request: EventSubscribe) -> tuple[Follower, Subscription]:
        """Prepare a subscription; it starts when the reply that announces it is sent."""
        allowed = self._limits.requests_in_flight
        if len(self._followers) + self._subscribing >= allowed:
            raise LimitExceeded(
                f"This connection has {allowed} subscriptions, the maximum.",
                hint="End one with event.unsubscribe, or open another connection.",
                limit="subscriptions",
                allowed=allowed,
            )
        self._subscribing += 1  # take its place before the first wait
        try:
            follower, start = await subscribe(self.engine, request, self.caller)
            self._followers[follower.id] = follower
        finally:
            self._subscribing -= 1
        return follower, start

    def unsubscribe(self, subscription_id: str) -> Unsubscribed:
        """End a subscription of this connection; raises NotFound for any other."""
        follower = self._followers.pop(subscription_id, None)
        if follower is None:
            raise NotFound(
                f"This connection has no subscription {shown(subscription_id)}.",
                hint="A subscription belongs to the connection that created it.",
                subscription_id=subscription_id,
            )
        follower.end()
        return Unsubscribed(unsubscribed=True)

    async def _follow(self, follower: Follower) -> None:
        try:
            await follower.run(self.send)
        except FleetError as error:
            # A gap would go unnoticed; a closed connection makes the client resume.
            log.warning("A subscription ended: %s", error)
            self._scope.cancel()

    # The end

    async def _end_of_input(self) -> None:
        """Stop what lasts only while the client sends; requests in flight are finished."""
        for follower in self._followers.values():
            follower.end()
        self._background.start_soon(self._cancel_when_gone)
        if (broken := self._violation) is not None:
            self.engine.traffic.cut_off += 1
            self.engine.traffic.failed(broken.kind)
            log.info("A client exceeded a limit and was disconnected: %s", broken)
            self._requests.cancel_scope.deadline = trio.current_time() + self._reply_seconds
            await self.send(error_reply(broken) + b"\n")

    async def _linger(self) -> None:
        """Close in a way that lets the error arrive.

        Closing while the client still sends would cut it off before it reads what it did wrong.
        """
        with trio.move_on_after(_LINGER_SECONDS):
            try:
                await self._stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            await self._lines.discard(_LINGER_LINES * self._limits.line_bytes)
