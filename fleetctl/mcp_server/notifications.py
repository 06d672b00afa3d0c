"""Tells clients that what they read has changed; follows the daemon's log while somebody listens.

A newer client listens on a stream of its own, an older one is told by plain notifications.
"""

import logging
from typing import Any

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from fleetd.protocol.errors import FleetError

from . import resources
from .daemon_client import Link
from .session import Desk

log = logging.getLogger("fleetctl.mcp")
# What happens together is told once.
TOGETHER_S = 0.5
AWAY_S = 2.0


class Notices:
    """Who listens to what, and what has happened since they were told."""

    def __init__(self, link: Link, desk: Desk) -> None:
        self._link = link
        self._desk = desk
        self._bus = InMemorySubscriptionBus()
        self._stream = ListenHandler(self._bus)
        self._told_plainly: dict[str, Any] = {}
        self._wanted = anyio.Event()
        self._missions: set[str] = set()
        self._happened = anyio.Event()

    async def listen(
        self, ctx: Any, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of a newer client, until it ends it."""
        self._wanted.set()
        return await self._stream(ctx, params)

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Tell an older client of one resource from now on."""
        self._told_plainly[params.uri] = ctx.session
        self._wanted.set()
        return types.EmptyResult()

    async def unsubscribe(
        self, _ctx: Any, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell it of that no more."""
        self._told_plainly.pop(params.uri, None)
        return types.EmptyResult()

    async def follow(self) -> None:
        """Follow the log, for ever, once somebody listens."""
        await self._wanted.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell)
            while True:
                try:
                    async with self._link.events() as events:
                        async for event in events:
                            if event.mission_id is not None:
                                self._missions.add(event.mission_id)
                                self._happened.set()
                except FleetError as error:
                    log.info("The log cannot be followed now: %s", error.message)
                await anyio.sleep(AWAY_S)

    async def _tell(self) -> None:
        while True:
            await self._happened.wait()
            await anyio.sleep(TOGETHER_S)
            missions, self._missions = self._missions, set()
            self._happened = anyio.Event()
            for uri in await self._changed(missions):
                await self._bus.publish(ResourceUpdated(uri=uri))
                if (session := self._told_plainly.get(uri)) is not None:
                    await session.send_resource_updated(uri)

    async def _changed(self, missions: set[str]) -> list[str]:
        """Return the URIs behind which something else is to be read now."""
        changed = [f"{resources.MISSION}/{each}" for each in sorted(missions)]
        try:
            own = await self._desk.mission(await self._desk.known())
        except FleetError:
            own = None
        # One that has just ended is nobody's any more: what was read is out of date all the same.
        if own is None or own.id in missions:
            changed += [resources.MISSION, resources.CHECKPOINTS, resources.BRIEFING]
        return changed
