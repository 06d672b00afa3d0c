"""Event subscription: follow the log over reconnects, and move the cursor of a consumer.

Only the transport waits: trio's lets other tasks run, the blocking one blocks.
"""

import time as wall
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeVar

import msgspec

from fleetd.protocol.errors import FleetError, Incompatible, InvalidState, NotFound, Unavailable
from fleetd.protocol.records import Event
from fleetd.protocol.request import Request, learned
from fleetd.protocol.requests.event import (
    CursorAdvance,
    CursorGap,
    CursorGet,
    CursorPosition,
    EventList,
    EventSubscribe,
    Subscription,
)
from fleetd.protocol.requests.system import SystemHello

from .models import incompatible
from .protocol import ConnectionLost, Reply, RpcProtocol, TooSlow
from .retry import CONNECT_S, READ_S, RESTART_PAUSE_S, RESTART_S, is_going_away, run_blocking
from .transport import SocketTransport

if TYPE_CHECKING:
    from .sync import Fleet

R = TypeVar("R")


class StoreReplaced(Incompatible):
    """The store was replaced since the last contact: old positions in the log mean nothing now.

    A client that builds its state from events reads that state again, and follows from there.
    """


class EventsMissed(UserWarning):
    """A consumer was away for so long that events it had not read were deleted."""


class Link(NamedTuple):
    """The state of a subscription's connection, since when (seconds since 1970), and why."""

    state: Literal["connected", "away", "back"]
    since: float
    error: FleetError | None = None


class Clock(Protocol):
    """The clock on which a client waits."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class Transport(Clock, Protocol):
    """One connection at a time."""

    async def dial(self, path: str, deadline: float) -> None:
        """Open a connection after closing the previous one; raises Unavailable or Denied."""

    async def send(self, data: bytes, wait_s: float) -> None:
        """Send all data; raises TooSlow, ConnectionLost."""

    async def receive(self, wait_s: float) -> bytes:
        """Return the next bytes; raises TooSlow when none come, ConnectionLost at the end."""

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""


class SubscriptionOptions(NamedTuple):
    """Which events to follow, from which position, and how long to wait for an absent daemon."""

    since: int | None
    epoch: str | None
    types: Sequence[str] | None
    mission_id: str | None
    consumer: str | None
    away_s: float | None
    on_link: Callable[[Link], None] | None
    agent_id: str | None = None


class CallDaemon(Protocol):
    """The function that reads and moves the consumer's cursor."""

    async def __call__(self, request: Request[R]) -> R:
        """Send a request and return its result."""


# How often a consumer without new events touches its cursor. A cursor keeps events only while it
# is in use, and a touch releases those that the consumer does not want.
TOUCH_INTERVAL_S = 3_600.0


class ConsumerCursor:
    """A consumer's cursor, which the daemon keeps; does nothing without a consumer."""

    def __init__(self, options: SubscriptionOptions, call: CallDaemon) -> None:
        self.gap: CursorGap | None = None
        """Events that were deleted before the consumer read them, None when there are none."""
        self._options = options
        self._call = call
        self._consumer = options.consumer or ""
        self._stream = f"mission:{options.mission_id}" if options.mission_id else "fleet"
        # The position up to which no wanted event came, and when this was checked.
        self._skipped_until = 0
        self._touched_at = 0.0

    async def get(self) -> CursorPosition:
        """Return the consumer's position; warns with EventsMissed when it missed events."""
        found = await self._call(CursorGet(self._consumer, self._stream))
        self.gap = found.gap
        if self.gap is not None:
            warnings.warn(
                f"The cursor of {self._consumer} on {self._stream} was unused for a long time."
                f" Events up to {self.gap.missed_until} were deleted before it read them. It"
                f" continues with event {self.gap.first_available}.",
                EventsMissed,
                stacklevel=2,
            )
        return found

    async def advance(self, position: int | None) -> None:
        """Move the cursor to a processed event; raises the daemon's error."""
        if self._consumer and position is not None:
            await self._call(CursorAdvance(self._consumer, self._stream, position))

    async def touch(self, position: int | None) -> None:
        """Keep the cursor in use, and move it past events that the consumer does not want."""
        now = wall.time()
        if not self._consumer or position is None or abs(now - self._touched_at) < TOUCH_INTERVAL_S:
            return
        self._touched_at = now
        try:
            looked = await self._skippable_until(position)
            if looked > max(position, self._skipped_until):
                self._skipped_until = looked
                await self.advance(looked)
            else:
                await self._call(CursorGet(self._consumer, self._stream))
        except (Unavailable, InvalidState, NotFound):
            return  # away, a consumer of the same name is further, or the mission was deleted

    async def _skippable_until(self, position: int) -> int:
        """Return the position up to which no wanted event follows; ``position`` if one does."""
        until: int | None = None
        for kind in self._options.types or ():
            request = EventList(self._options.mission_id, kind, since=position, limit=1)
            page = await self._call(request)
            if page.events:
                return position
            until = page.position if until is None else min(page.position, until)
        return position if until is None else until


# A signal just before the system call does not interrupt it. With a timeout, Ctrl-C takes effect a
# moment later instead of at the next event.
WAKE_S = 0.5
# A short disconnection does not count as away: the daemon may have cut off a slow reader.
LINK_GRACE_S = 0.3
AWAY_PAUSE_S = 1.0
# After this much silence the client asks whether the daemon is still there.
QUIET_S = 30.0
# How many events a consumer may process before its cursor follows.
UNSAVED = 100


class LogSubscription:
    """Gives the events of a log in order, each once, whatever happens to the connection."""

    def __init__(
        self, path: str, transport: Transport, options: SubscriptionOptions, call: CallDaemon
    ) -> None:
        self.position: int | None = options.since
        self.epoch: str | None = options.epoch
        self.link = Link("away", wall.time())
        self.closed = False
        self._path = path
        self._transport = transport
        self._options = options
        self.cursor = ConsumerCursor(options, call)
        self._protocol = RpcProtocol()
        # When the last request was sent; None when no reply is pending.
        self._asked: float | None = None
        self._connected = False
        self._started = self._started_before = False
        self._lost_at: float | None = None
        self._received_at = self._dial_at = 0.0
        self._unsaved = 0

    async def begin(self) -> None:
        """Subscribe; raises the daemon's error, Unavailable when there is no daemon."""
        if self._options.consumer and self.position is None:
            found = await self.cursor.get()
            self.position = found.position
            self.epoch = self.epoch or found.epoch
        await self._transport.dial(self._path, self._transport.now() + CONNECT_S)
        until = self._transport.now() + RESTART_S
        try:
            await self._subscribe()
            while not self._started:
                await self._wait_for_start(until)
        except BaseException:
            self.close()
            raise

    async def _wait_for_start(self, until: float) -> None:
        """Take one step towards the reply; waits for a daemon that is just stopping."""
        try:
            message = self._protocol.next_message()
            if isinstance(message, Reply):
                self._on_reply(message)
            elif message is None:
                await self._advance(WAKE_S)
        except ConnectionLost:
            if self._transport.now() > until:
                raise
            self._disconnect()

    async def next_event(self, wait_s: float | None = None) -> Event | None:
        """Return the next event; None when ``wait_s`` seconds passed without one.

        Raises StoreReplaced, ConnectionLost when the daemon is away for too long, and the error
        with which the daemon refuses the subscription. Each of them ends the subscription.
        """
        until = None if wait_s is None else self._transport.now() + wait_s
        while not self.closed:
            try:
                if self._unsaved >= UNSAVED:
                    await self.save()
                if (event := self._next_buffered()) is not None:
                    self.position = event.seq
                    self._unsaved += 1
                    return event
                if self._connected:
                    await self.save()
                    await self.cursor.touch(self.position)
                left = WAKE_S if until is None else min(until - self._transport.now(), WAKE_S)
                if left <= 0:
                    return None
                await self._advance(left)
            except ConnectionLost as error:
                self._on_lost(error)
            except FleetError:
                self.close()
                raise
        return None

    async def save(self) -> None:
        """Move the consumer's cursor to the last event that was returned.

        While the daemon is away the cursor stays, and the next process gets the same events again.
        """
        if not self._unsaved or self.closed:
            return
        try:
            await self.cursor.advance(self.position)
        except Unavailable:
            return
        self._unsaved = 0

    async def end(self, *, saved: bool) -> None:
        """End it; ``saved`` moves the consumer's cursor, unless an exception left the loop."""
        try:
            if saved:
                await self.save()
        finally:
            self.close()

    def close(self) -> None:
        """End it; no more events come."""
        self.closed = True
        self._disconnect()

    # One connection

    async def _subscribe(self) -> None:
        options = self._options
        self._connected = True
        self._protocol.begin()
        self._started = False
        types = None if options.types is None else list(options.types)
        await self._ask(
            EventSubscribe(self.position, types, options.mission_id, self.epoch, options.agent_id)
        )

    async def _ask(self, request: Request[Any]) -> None:
        _, line = self._protocol.ask(request.method, request.encoded())
        self._asked = self._transport.now()
        try:
            await self._transport.send(line, READ_S)
        except BaseException:
            self._disconnect()  # half a line may have been sent
            raise

    async def _check_silence(self) -> None:
        now = self._transport.now()
        if self._asked is not None:
            if now - max(self._asked, self._received_at) > READ_S:
                raise ConnectionLost("fleetd no longer answers.")
        elif now - self._received_at > QUIET_S:
            await self._ask(SystemHello())

    def _next_buffered(self) -> Event | None:
        """Return the next buffered event; handles the messages before it."""
        while (message := self._protocol.next_message()) is not None:
            if isinstance(message, Reply):
                self._on_reply(message)
            elif message.method == "event":
                return _converted(message.params.event, Event)
        return None

    def _on_reply(self, reply: Reply) -> None:
        self._asked = None
        if (error := reply.error) is not None:
            raise self._error_of(error)
        if self._started:
            return
        started = _converted(reply.result, Subscription)
        self._started, self._received_at = True, self._transport.now()
        if self.position is None:
            self.position = started.position
        self.epoch = started.epoch
        self._lost_at = None
        if self.link.state == "away":
            self._set_link("back" if self._started_before else "connected")
        self._started_before = True

    def _error_of(self, error: FleetError) -> FleetError:
        if is_going_away(error):
            return ConnectionLost(error.message, hint=error.hint, **error.values)
        if isinstance(error, Incompatible) and "epoch" in error.values:
            return StoreReplaced(error.message, hint=error.hint, **error.values)
        return error

    # From one connection to the next

    async def _advance(self, wait_s: float) -> None:
        if self._connected:
            try:
                self._protocol.feed(await self._transport.receive(wait_s))
            except TooSlow:
                await self._check_silence()
            else:
                self._received_at = self._transport.now()
            return
        # The pause continues over several calls, so that short waits reach its end as well.
        if (pause := self._dial_at - self._transport.now()) > 0:
            await self._transport.sleep(min(pause, wait_s))
            return
        self._dial_at = self._transport.now() + RESTART_PAUSE_S
        try:
            await self._transport.dial(self._path, self._transport.now() + wait_s)
        except Unavailable as error:
            raise ConnectionLost(error.message, hint=error.hint) from error
        await self._subscribe()

    def _disconnect(self) -> None:
        self._transport.close()
        self._connected = False
        self._asked = None
        self._dial_at = self._transport.now() + RESTART_PAUSE_S

    def _on_lost(self, error: ConnectionLost) -> None:
        """Record that the daemon is away; raises the error when it is away for too long."""
        self._disconnect()
        now = self._transport.now()
        if "away_ms" in error.values:  # the daemon is there, but its store is not
            self._dial_at = now + AWAY_PAUSE_S
        if self._lost_at is None:
            self._lost_at = now
        if self.link.state != "away" and now - self._lost_at > LINK_GRACE_S:
            self._set_link("away", error)
        away_s = self._options.away_s
        if away_s is not None and now - self._lost_at >= away_s:
            self.close()
            raise error

    def _set_link(
        self, state: Literal["connected", "away", "back"], error: FleetError | None = None
    ) -> None:
        self.link = Link(state, wall.time(), error)
        if self._options.on_link is not None:
            self._options.on_link(self.link)


def _converted(value: Any, kind: type[R]) -> R:
    """Return plain data as a record; raises Incompatible when it does not fit."""
    try:
        return msgspec.convert(value, learned(kind))
    except ValueError as error:
        raise incompatible(error) from error


class EventPosition:
    """The properties that blocking and trio subscriptions share."""

    _log: LogSubscription

    @property
    def position(self) -> int:
        """Return the ``seq`` of the last event that was returned, else of the one before."""
        return self._log.position or 0

    @property
    def epoch(self) -> str:
        """Return the epoch of the store to which the position belongs."""
        return self._log.epoch or ""

    @property
    def gap(self) -> CursorGap | None:
        """Return the events that the consumer missed for good, None when it missed none."""
        return self._log.cursor.gap

    @property
    def link(self) -> Link:
        """Return the state of the connection to the daemon."""
        return self._log.link


class Events(EventPosition):
    """Events in the order of the log, each once, over restarts of the daemon; ends with its Fleet.

    It has its own connection. Nothing is read ahead of the loop: a slow loop lags behind and loses
    nothing. With a ``consumer``, asking for the next event confirms that the previous ones are
    processed. ``with`` confirms the last one too, unless it ends by an exception.

    The loop raises StoreReplaced when the store was replaced, and ConnectionLost when the daemon is
    away for longer than was allowed.
    """

    def __init__(
        self,
        fleet: "Fleet",
        path: str,
        transport: SocketTransport,
        options: SubscriptionOptions,
    ) -> None:
        async def call(request: Request[R]) -> R:
            return fleet.call(request)

        self._log = LogSubscription(path, transport, options, call)
        run_blocking(self._log.begin())

    @property
    def closed(self) -> bool:
        """Return whether no more events come."""
        return self._log.closed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = run_blocking(self._log.next_event())
        if event is None:
            raise StopIteration
        return event

    def next(self, wait_s: float) -> Event | None:
        """Return the next event; None when ``wait_s`` seconds passed without one."""
        return run_blocking(self._log.next_event(wait_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        run_blocking(self._log.end(saved=kind is None))

    def close(self) -> None:
        """End it; a consumer's cursor keeps its last position."""
        self._log.close()
