"""Server-sent events: the daemon's log as the page follows it, over restarts of the daemon."""

import re
import time
from typing import Any

import msgspec
import trio

from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.records import Event
from fleetd.protocol.requests.event import EventPage
from fleetd.protocol.timestamps import iso

from ..client import AsyncEvents, Link, StoreReplaced
from .connection import Reply
from .messages import NO_STORE, WebRequest
from .raw_results import RawFleet

CONTENT_TYPE = "text/event-stream"
KEEP_ALIVE_S = 15.0
# A page that is further behind reloads everything faster than it processes each event.
FAR_BEHIND = 10_000
_POSITION = re.compile(r"([!-9;-~]{1,64}):([0-9]{1,18})")


class EventStream:
    """One page that follows the log."""

    def __init__(self, fleet: RawFleet, request: WebRequest) -> None:
        self._fleet = fleet
        self._links: list[Link] = []
        self._waiting = trio.CancelScope()
        self._epoch, self._since = _last_event(request.header("last-event-id"))

    async def run(self, reply: Reply) -> None:
        """Send events until the page leaves or the store is replaced; raises FleetError before."""
        events = self._fleet.events(since=self._since, epoch=self._epoch, on_link=self._on_link)
        try:
            async with events:
                if await self._is_far_behind():
                    raise StoreReplaced("The page missed too many events.")
                await reply.begin(CONTENT_TYPE, NO_STORE)
                await reply.write(_begin(events))
                await self._follow(events, reply)
        except (StoreReplaced, InvalidParams) as error:
            if isinstance(error, InvalidParams) and error.values.get("field") != "since":
                raise
            if not reply.begun:
                await reply.begin(CONTENT_TYPE, NO_STORE)
            await reply.write(_frame("replaced", {}))
            await reply.end()

    async def _follow(self, events: AsyncEvents, reply: Reply) -> None:
        while True:
            event: Event | None = None
            with trio.move_on_after(KEEP_ALIVE_S) as self._waiting:
                if not self._links:
                    event = await anext(events)
            quiet = not self._links
            while self._links:
                await reply.write(_frame("link", {"state": self._links.pop(0).state}))
            if event is not None:
                position = f"{events.epoch}:{event.seq}"
                await reply.write(_frame("event", event, position))
            elif quiet:
                await reply.write(b": keep-alive\n\n")

    def _on_link(self, link: Link) -> None:
        """Queue a change of the link for the page, and interrupt the wait for an event."""
        self._links.append(link)
        self._waiting.cancel()

    async def _is_far_behind(self) -> bool:
        if self._since is None:
            return False
        newest = {"newest": True, "limit": 1}
        result = await self._fleet.call_raw("event.list", newest, again=True)
        page = msgspec.json.decode(result, type=EventPage)
        return any(event.seq - self._since > FAR_BEHIND for event in page.events)


def _last_event(given: str | None) -> tuple[str | None, int | None]:
    """Return where the page left off; raises InvalidParams for an invalid position."""
    if given is None:
        return None, None
    if (found := _POSITION.fullmatch(given)) is None:
        raise InvalidParams(
            "Last-Event-ID is no position of the log.", hint="Send an id as it came, or none."
        )
    return found[1], int(found[2])


def _begin(events: AsyncEvents) -> bytes:
    now = iso(time.time_ns() // 1_000_000)
    data = {"position": events.position, "epoch": events.epoch, "now": now}
    return _frame("begin", data, f"{events.epoch}:{events.position}")


def _frame(name: str, data: Any, position: str = "") -> bytes:
    """Return an event in the format of the stream; encoded JSON has no line breaks."""
    head = f"id: {position}\n" if position else ""
    return f"{head}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
