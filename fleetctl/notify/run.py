"""The run of ``fleetctl notify run``: follow the daemon, and report the states that are due.

One task follows the events, one reads what agents need, one reports, and each channel has its own.
"""

import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

import trio

from fleetd.protocol.errors import (
    Denied,
    FleetError,
    Incompatible,
    InvalidParams,
    MethodNotFound,
)

from ..client import AsyncFleet, Link, StoreReplaced
from ..client.models import AttentionList
from .due import DueStates, Key
from .message import Message, message_of
from .outbox import Channel, Outbox, only

# Events within this time cause a single read of the agents.
GATHER_S = 0.1
RETRY_S = 1.0
MOST_AGENTS = 1_000
AWAY = "fleetd is not running"
# Errors that a retry does not fix.
FINAL = (Denied, Incompatible, InvalidParams, MethodNotFound)


class Notifier:
    """Reports what agents need over channels, until it is cancelled.

    ``log`` takes lines for the log, ``on_message`` each message when it is handed out, ``keep`` the
    reported states.
    """

    def __init__(
        self,
        due: DueStates,
        channels: Sequence[Channel],
        *,
        log: Callable[[str], None],
        on_message: Callable[[Message], None],
        keep: Callable[[list[Key]], object],
    ) -> None:
        self.outboxes = [Outbox(each, log) for each in channels]
        self._due = due
        self._log = log
        self._on_message = on_message
        self._keep = keep
        # Agents that changed since they were read; None means all of them.
        self._changed: set[str | None] = set()
        self._wake_reader = trio.Event()
        self._wake_reporter = trio.Event()
        self._away = False

    async def run(self) -> None:
        """Follow and report until SIGTERM; raises errors that a retry does not fix."""
        try:
            async with trio.open_nursery() as nursery:
                for outbox in self.outboxes:
                    nursery.start_soon(outbox.run)
                nursery.start_soon(self._report_due)
                nursery.start_soon(self._follow)
                with trio.open_signal_receiver(signal.SIGTERM) as signals:
                    await anext(aiter(signals))
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _report_due(self) -> None:
        """Put each state that is due into every outbox, without waiting for any channel."""
        while True:
            states = self._due.take_due(trio.current_time())
            for message in map(message_of, states):
                for outbox in self.outboxes:
                    outbox.put(message)
                self._on_message(message)
            if states:
                await trio.to_thread.run_sync(self._keep, self._due.reported)
            self._wake_reporter = trio.Event()
            with trio.move_on_at(self._due.next_due()):
                await self._wake_reporter.wait()

    async def _follow(self) -> None:
        """Follow the daemon over its restarts, and from one store to another."""
        while True:
            try:
                await self._follow_once()
            except (FleetError, BaseExceptionGroup) as error:
                found = _first(error)
                if not isinstance(found, FleetError) or _is_final(found):
                    raise found from None
                if not isinstance(found, StoreReplaced):
                    self._on_away(found)
            await trio.sleep(RETRY_S)

    async def _follow_once(self) -> None:
        async with AsyncFleet() as fleet:
            following = fleet.events(types=["agent_needs"], on_link=self._on_link)
            async with following as events, trio.open_nursery() as nursery:
                self._mark(None)
                nursery.start_soon(self._read, fleet)
                async for event in events:
                    self._mark(event.agent_id)

    def _mark(self, agent_id: str | None) -> None:
        self._changed.add(agent_id)
        self._wake_reader.set()

    def _on_link(self, link: Link) -> None:
        if link.state == "away" and link.error:
            self._on_away(link.error)
        elif link.state != "away":
            self._mark(None)

    def _on_away(self, error: FleetError) -> None:
        if not self._away:
            known = error.message.startswith(AWAY)
            self._log(f"{AWAY}; retrying" + ("." if known else f": {error.message}"))
        self._away = True

    async def _read(self, fleet: AsyncFleet) -> None:
        """Read what agents need whenever that changes."""
        while True:
            await self._wake_reader.wait()
            await trio.sleep(GATHER_S)
            self._wake_reader = trio.Event()
            changed, self._changed = self._changed, set()
            await self._read_agents(fleet, next(iter(changed)) if len(changed) == 1 else None)

    async def _read_agents(self, fleet: AsyncFleet, agent_id: str | None) -> None:
        try:
            page = await fleet.call(
                AttentionList(agent_id=agent_id, waiting=self._due.waiting_only, limit=MOST_AGENTS)
            )
        except MethodNotFound as error:
            raise MethodNotFound(
                "The fleetd that runs is too old to tell what agents need.",
                hint="Restart it with: fleetctl daemon restart",
            ) from error
        if self._away:
            self._log("fleetd answers again.")
        self._away = False
        now, wall_ms = trio.current_time(), time.time_ns() // 1_000_000
        observe = partial(self._due.observe, now=now, wall_ms=wall_ms)
        if agent_id is None and len(page.agents) >= MOST_AGENTS:
            # The list is incomplete: agents that it leaves out may still need something.
            for state in page.agents:
                observe([state], only=state.agent_id)
        else:
            observe(page.agents, only=agent_id)
        if agent_id is not None and all(each.agent_id != agent_id for each in page.agents):
            # It needs nothing any more, or is a subagent, whose needs belong to the agent of its
            # session.
            await self._read_agents(fleet, None)
        self._wake_reporter.set()


def _is_final(error: FleetError) -> bool:
    """Return whether a retry would be useless."""
    return isinstance(error, FINAL) and not isinstance(error, StoreReplaced)


def _first(error: BaseException) -> BaseException:
    """Return the error of the daemon inside a group, else the only one, else the group."""
    if isinstance(error, BaseExceptionGroup):
        ours, rest = error.split(FleetError)
        if ours is not None and rest is None:
            error = ours
            while isinstance(error, BaseExceptionGroup):
                error = max(error.exceptions, key=lambda each: isinstance(each, FINAL))
    return only(error)
