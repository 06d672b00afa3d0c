"""Subscriptions: each follows the event log, and sends matching events as lines."""

from collections.abc import Awaitable, Callable

import msgspec
import trio

from ..domain.core.context import Caller
from ..domain.events import streams
from ..domain.missions import missions
from ..engine.change_feed import PAGE, FeedPage, encoded
from ..engine.engine import Engine
from ..protocol.records import Event
from ..protocol.requests.event import EventSubscribe, Subscription
from ..protocol.requests.mission import MissionGet

_encode = msgspec.json.Encoder().encode


class Follower:
    """Sends every matching event of the log, in order and without gaps, until it is ended.

    It knows its position in the log, so a subscriber that is slow lags behind and loses nothing.
    ``request`` contains the full id of its mission.
    """

    def __init__(self, engine: Engine, request: EventSubscribe, start: Subscription) -> None:
        self.id = start.subscription_id
        self._engine = engine
        self._request = request
        self._position = start.position
        self._ended = False
        self._looking = trio.CancelScope()
        # Far behind, a follower with a filter has the store filter. At the end of the log, all
        # followers get all events.
        self._picks = bool(request.types or request.mission_id or request.agent_id)
        self._behind = self._picks
        self._begin = (
            b'{"jsonrpc":"2.0","method":"event","params":{"subscription_id":%b,"event":'
            % (_encode(self.id))
        )

    def end(self) -> None:
        """Stop; a line that is being sent is finished, since half a line would be garbage."""
        self._ended = True
        self._looking.cancel()

    async def run(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Follow the log; raises FleetError when it cannot be read any more."""
        while not self._ended:
            page: FeedPage | None = None
            with trio.CancelScope() as self._looking:
                page = await self._next()
            if page is not None and not self._ended:
                self._position = page.position
                lines = [
                    b"%b%b}}\n" % (self._begin, text)
                    for event, text in page.events
                    if self._wants(event)
                ]
                if lines:
                    await send(b"".join(lines))

    async def _next(self) -> FeedPage:
        """Return the next events after the position, waiting until there are any."""
        if self._behind:
            page = await self._engine.read_when_available(
                streams.tail,
                self._position,
                PAGE,
                types=self._request.types,
                mission_id=self._request.mission_id,
                agent_id=self._request.agent_id,
            )
            self._behind = len(page.events) > 0
            if page.position > self._position:
                return encoded(page)
        found = await self._engine.feed.after(self._position)
        self._behind = self._picks and found.full
        return found

    def _wants(self, event: Event) -> bool:
        wanted = self._request
        return (
            wanted.mission_id in (None, event.mission_id)
            and wanted.agent_id in (None, event.agent_id)
            and (wanted.types is None or event.type in wanted.types)
        )


async def subscribe(
    engine: Engine, request: EventSubscribe, caller: Caller
) -> tuple[Follower, Subscription]:
    """Prepare a subscription, which begins when its follower runs; raises FleetError."""
    start = await engine.ask(request, caller)
    if request.mission_id:  # a prefix may become ambiguous later
        mission = await engine.read(missions.get, MissionGet(request.mission_id))
        request = msgspec.structs.replace(request, mission_id=mission.id)
    return Follower(engine, request, start), start
