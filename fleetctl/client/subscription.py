"""A subscription over as many connections as it takes; must not know what carries them.

What is written here waits by its carrier: that of the client for trio lets others run meanwhile,
the blocking one blocks.
"""

import time as wall
from pathlib import Path
from typing import Any, Literal

import msgspec

from fleetd.protocol.errors import FleetError, Incompatible, Unavailable
from fleetd.protocol.records import Event
from fleetd.protocol.request import Request, learned
from fleetd.protocol.requests.event import EventSubscribe, Subscription
from fleetd.protocol.requests.system import SystemHello

from .cursor import Cursor
from .protocol import ConnectionLost, Conversation, Notice, Reply, TooSlow
from .records import not_understood
from .retry import CONNECT_S, READ_S, RESTART_PAUSE_S, RESTART_S, ends
from .subscription_options import Calls, Carrier, Link, StoreReplaced, Wanted

# A signal that comes just before the system call does not interrupt it: with a timeout, Ctrl-C is
# heard a moment later instead of at the next event.
WAKE_S = 0.5
# Who is connected again within a moment was never away: the daemon may have cut off a slow reader.
UNSAID_S = 0.3
AWAY_PAUSE_S = 1.0
# Who has heard nothing for so long asks whether somebody is there.
QUIET_S = 30.0
# How many events a consumer may have dealt with before its cursor follows.
UNSAVED = 100


class Following:
    """Gives the events of a log in order, each once, whatever happens to the connection."""

    def __init__(self, path: Path, carrier: Carrier, wanted: Wanted, call: Calls) -> None:
        self.position: int | None = wanted.since
        self.epoch: str | None = wanted.epoch
        self.link = Link("away", wall.time())
        self.closed = False
        self._path = path
        self._carrier = carrier
        self._wanted = wanted
        self.cursor = Cursor(wanted, call)
        self._conversation = Conversation()
        # When the daemon was asked something; None when it owes no answer.
        self._asked: float | None = None
        self._connected = False
        self._started = self._started_before = False
        self._lost_at: float | None = None
        self._heard_at = self._dial_at = 0.0
        self._unsaved = 0

    async def begin(self) -> None:
        """Subscribe; raises what the daemon refuses it with, Unavailable when there is none."""
        if self._wanted.consumer and self.position is None:
            found = await self.cursor.get()
            self.position = found.position
            self.epoch = self.epoch or found.epoch
        await self._carrier.dial(self._path, self._carrier.now() + CONNECT_S)
        until = self._carrier.now() + RESTART_S
        try:
            await self._subscribe()
            while not self._started:
                await self._wait_for_start(until)
        except BaseException:
            self.close()
            raise

    async def _wait_for_start(self, until: float) -> None:
        """Take one step towards the answer; a daemon that ends just now is waited for."""
        try:
            message = self._conversation.next_message()
            if isinstance(message, Reply):
                self._answered(message)
            elif message is None:
                await self._go_on(WAKE_S)
        except ConnectionLost:
            if self._carrier.now() > until:
                raise
            self._disconnect()

    async def next_event(self, wait_s: float | None = None) -> Event | None:
        """Return the next event; None when ``wait_s`` seconds went by without one.

        Raises StoreReplaced, ConnectionLost when the daemon is away for too long, and what it
        refuses the subscription with; that is the end of it.
        """
        until = None if wait_s is None else self._carrier.now() + wait_s
        while not self.closed:
            try:
                if self._unsaved >= UNSAVED:
                    await self.save()
                if (event := self._take()) is not None:
                    self.position = event.seq
                    self._unsaved += 1
                    return event
                if self._connected:
                    await self.save()
                    await self.cursor.stay_in_use(self.position)
                left = WAKE_S if until is None else min(until - self._carrier.now(), WAKE_S)
                if left <= 0:
                    return None
                await self._go_on(left)
            except ConnectionLost as error:
                self._lose(error)
            except FleetError:
                self.close()
                raise
        return None

    async def save(self) -> None:
        """Let the consumer's cursor follow to the last event that was handed out.

        While the daemon is away it stays: the same events come again then, to the next process.
        """
        if not self._unsaved or self.closed:
            return
        try:
            await self.cursor.advance(self.position)
        except Unavailable:
            return
        self._unsaved = 0

    def close(self) -> None:
        """End it; nothing comes any more."""
        self.closed = True
        self._disconnect()

    # One connection

    async def _subscribe(self) -> None:
        wanted = self._wanted
        self._connected = True
        self._conversation.begin()
        self._started = False
        types = None if wanted.types is None else list(wanted.types)
        await self._ask(
            EventSubscribe(self.position, types, wanted.mission_id, self.epoch, wanted.agent_id)
        )

    async def _ask(self, request: Request[Any]) -> None:
        line = self._conversation.ask(request.method, request.encoded()).line
        self._asked = self._carrier.now()
        try:
            await self._carrier.send(line, READ_S)
        except BaseException:
            self._disconnect()  # half a line may be out
            raise

    async def _hear(self, wait_s: float) -> None:
        """Take in what comes; ask whether somebody is there when nothing does for long."""
        try:
            self._conversation.feed(await self._carrier.receive(wait_s))
        except TooSlow:
            await self._mind_silence()
        else:
            self._heard_at = self._carrier.now()

    async def _mind_silence(self) -> None:
        now = self._carrier.now()
        if self._asked is not None:
            if now - max(self._asked, self._heard_at) > READ_S:
                raise ConnectionLost("fleetd does not answer any more.")
        elif now - self._heard_at > QUIET_S:
            await self._ask(SystemHello())

    def _take(self) -> Event | None:
        """Return the next event that was heard; what else was heard is dealt with."""
        while (message := self._conversation.next_message()) is not None:
            if isinstance(message, Reply):
                self._answered(message)
            elif (event := self._event(message)) is not None:
                return event
        return None

    def _event(self, notice: Notice) -> Event | None:
        if notice.method != "event":
            return None
        try:
            return msgspec.convert(notice.params.event, learned(Event))
        except ValueError as error:
            raise not_understood(error) from error

    def _answered(self, reply: Reply) -> None:
        self._asked = None
        if (error := reply.error) is not None:
            raise self._refused(error)
        if self._started:
            return
        try:
            started = msgspec.convert(reply.result, learned(Subscription))
        except ValueError as error:
            raise not_understood(error) from error
        self._started, self._heard_at = True, self._carrier.now()
        if self.position is None:
            self.position = started.position
        self.epoch = started.epoch
        self._lost_at = None
        if self.link.state == "away":
            self._tell("back" if self._started_before else "connected")
        self._started_before = True

    def _refused(self, error: FleetError) -> FleetError:
        if ends(error):
            return ConnectionLost(error.message, hint=error.hint, **error.values)
        if isinstance(error, Incompatible) and "epoch" in error.values:
            return StoreReplaced(error.message, hint=error.hint, **error.values)
        return error

    # From one connection to the next

    async def _go_on(self, wait_s: float) -> None:
        if self._connected:
            await self._hear(wait_s)
            return
        # Who is asked with short waits gets there as well: the pause goes on from one to the next.
        if (pause := self._dial_at - self._carrier.now()) > 0:
            await self._carrier.sleep(min(pause, wait_s))
            return
        self._dial_at = self._carrier.now() + RESTART_PAUSE_S
        try:
            await self._carrier.dial(self._path, self._carrier.now() + wait_s)
        except Unavailable as error:
            raise ConnectionLost(error.message, hint=error.hint) from error
        await self._subscribe()

    def _disconnect(self) -> None:
        self._carrier.close()
        self._connected = False
        self._asked = None
        self._dial_at = self._carrier.now() + RESTART_PAUSE_S

    def _lose(self, error: ConnectionLost) -> None:
        """Note that the daemon is away; raises the error when it has been for too long."""
        self._disconnect()
        now = self._carrier.now()
        if "away_ms" in error.values:  # the daemon is there, and its store is not
            self._dial_at = now + AWAY_PAUSE_S
        if self._lost_at is None:
            self._lost_at = now
        if self.link.state != "away" and now - self._lost_at > UNSAID_S:
            self._tell("away", error)
        away_s = self._wanted.away_s
        if away_s is not None and now - self._lost_at >= away_s:
            self.close()
            raise error

    def _tell(
        self, state: Literal["connected", "away", "back"], error: FleetError | None = None
    ) -> None:
        self.link = Link(state, wall.time(), error)
        if self._wanted.on_link is not None:
            self._wanted.on_link(self.link)
