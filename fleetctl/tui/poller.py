"""Poller: one thread receives events, another reads what they changed.

An event reports only that something changed. The poller reads the new state a moment later, once
for all changes until then. So a burst of events costs the daemon only a few reads a second.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from fleetd.protocol.errors import FleetError, NotFound, Unavailable
from fleetd.protocol.event_types import Part, event_type
from fleetd.protocol.patterns import AgentStatus

from ..client import ConnectionLost, Fleet
from ..client.models import (
    AgentList,
    AttentionList,
    CheckpointList,
    EventList,
    LockList,
    MessageList,
    MissionList,
    PlainRecord,
    SortieList,
)
from ..client.pagination import overview, position_of
from ..client.transport import NOT_RUNNING
from ..context import cwd_or_root
from .state import EVERYTHING, SILENT_CHANGES, TAIL, UpdateQueue

LISTED = 50
MESSAGES = 200
CHECKPOINTS = 30
LIVING: tuple[AgentStatus, ...] = ("active", "waiting", "idle", "lost")


def read(client: Fleet, part: Part, mission_id: str | None) -> Any:
    """Return a part of the state; an empty list for a mission that no longer exists."""
    try:
        return _read(client, part, mission_id)
    except NotFound:
        return []


def _read(client: Fleet, part: Part, mission_id: str | None) -> Any:
    match part:
        case "status":
            return overview(client)
        case "missions":
            return client.call(MissionList(limit=LISTED)).missions
        case "agents":
            pages = [client.call(AgentList(status=status)) for status in LIVING]
            states = {each.agent_id: each for each in client.call(AttentionList()).agents}
            return [
                PlainRecord(agent, state=states.get(agent.id))
                for page in pages
                for agent in page.agents
            ]
        case "locks":
            # Each with the name of its file as seen from this directory.
            page: Any = client.call(LockList(cwd=cwd_or_root()))
            return [
                PlainRecord(each, file=page.paths.get(each.id, each.file)) for each in page.locks
            ]
        case "mail":
            return client.call(MessageList(newest=True, limit=MESSAGES)).messages
        case "events":
            since = max(0, position_of(client) - TAIL)
            return client.call(EventList(since=since, limit=TAIL)).events
    if mission_id is None:
        return []
    if part == "sorties":
        return client.call(SortieList(mission_id=mission_id)).sorties
    return client.call(CheckpointList(mission_id=mission_id, limit=CHECKPOINTS)).checkpoints


RECONNECT_S = 0.5
# The least pause between reads; it is longer for a daemon that takes long to answer.
PAUSE_S = 0.3
PATIENCE, LONGEST_S = 4, 5.0
# Without an event for this long, what may have changed silently is read again.
SILENT_REFRESH_S = 15.0


class Poller:
    """Fills a queue until it is stopped; ``failed`` receives an error that ended a thread."""

    def __init__(self, queue: UpdateQueue, failed: Callable[[BaseException], object]) -> None:
        self._queue = queue
        self._failed = failed
        self._changed = threading.Condition()
        self._wanted: set[Part] = set()
        self._urgent = False
        self._there = self._hung = False
        self._epoch = ""
        self._mission_id: str | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the threads; they end with the process, whatever they wait for."""
        for work in (self._subscribe, self._poll):
            threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def stop(self) -> None:
        """Tell the threads to end."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def look_at(self, mission_id: str | None) -> None:
        """Read the sorties and checkpoints of this mission from now on."""
        if mission_id != self._mission_id:
            self._mission_id = mission_id
            self._want(frozenset(("sorties", "checkpoints")), urgent=True)

    # A view that silently stopped would show wrong data.
    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            if not self._stopped.is_set():
                self._failed(error)

    def _subscribe(self) -> None:
        """Subscribe, and subscribe again after the daemon was away."""
        while not self._stopped.is_set():
            try:
                with Fleet() as client:
                    self._follow(client)
            except FleetError as error:
                self._there = False
                self._queue.away(_trouble(error))
                if not isinstance(error, Unavailable):
                    # The daemon answers and refuses: retry less often.
                    self._stopped.wait(RECONNECT_S)
            self._stopped.wait(RECONNECT_S)

    def _follow(self, client: Fleet) -> None:
        # Always from the end of the log: missed events are read again with everything else.
        events = client.events(away_s=0)
        self._there, self._epoch = True, events.epoch
        self._queue.connected(self._epoch)
        self._want(EVERYTHING, urgent=True)
        for event in events:
            if self._stopped.is_set():
                return
            self._queue.event(event)
            self._want(frozenset(event_type(event.type).refreshes or ()))

    def _want(self, parts: frozenset[Part], *, urgent: bool = False) -> None:
        if parts <= self._wanted and not urgent:
            return
        with self._changed:
            self._wanted |= parts
            self._urgent |= urgent
            self._changed.notify_all()

    def _poll(self) -> None:
        client: Fleet | None = None
        while not self._stopped.is_set():
            parts = self._next()
            if not self._there or self._stopped.is_set():
                continue
            began = time.monotonic()
            try:
                client = client or Fleet()
                self._answer(client, parts)
            except FleetError as error:
                # The event thread reports a daemon that is gone, but not one that hangs or whose
                # store is away.
                if not isinstance(error, Unavailable) or "away_ms" in error.values:
                    self._hung = True
                    self._queue.away(error.message)
                if client is not None:
                    client.close()
                client = None
                self._want(frozenset(parts))
            pause_s = min(max(PAUSE_S, PATIENCE * (time.monotonic() - began)), LONGEST_S)
            with self._changed:
                self._changed.wait_for(lambda: self._urgent or self._stopped.is_set(), pause_s)

    def _answer(self, client: Fleet, parts: set[Part]) -> None:
        mission_id = self._mission_id
        answers = {part: read(client, part, mission_id) for part in sorted(parts)}
        if self._hung:
            self._hung = False
            self._queue.connected(self._epoch)
            self._want(EVERYTHING)
        for part, answer in answers.items():
            self._queue.answer(part, answer, mission_id)

    def _next(self) -> set[Part]:
        """Wait until something is wanted, or may have changed without an event."""
        with self._changed:
            if not self._changed.wait_for(self._has_work, SILENT_REFRESH_S):
                self._wanted |= SILENT_CHANGES
            parts, self._wanted, self._urgent = self._wanted, set(), False
        return parts

    def _has_work(self) -> bool:
        return bool(self._wanted and self._there) or self._stopped.is_set()


def _trouble(error: FleetError) -> str:
    """Return why the daemon cannot be reached; empty when it is simply not running."""
    absent = isinstance(error, ConnectionLost) or error.message.startswith(NOT_RUNNING)
    return "" if absent else error.message
