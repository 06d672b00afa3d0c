"""The state of the live view: what the daemon reported last, and the queue that threads fill.

Times come from two clocks. ``now_ms`` is the wall clock (ms since 1970), like the daemon's
timestamps. ``tick_ms`` is a monotonic clock, which measures silences.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetd.protocol.event_types import ALL, Part

from ..output.times import ms_of

# The number of newest events that are kept, and requested when a connection begins.
TAIL = 300
# How long a lost agent is shown.
LOST_MS = 24 * 3_600_000
# The order of sorties by their interest to a user, since there are few lines.
_RANK = {
    "in_progress": 0,
    "blocked": 1,
    "assigned": 2,
    "pending": 2,
    "failed": 3,
    "completed": 4,
}

ConnectionState = Literal["starting", "waiting", "connected", "away"]
EVERYTHING: frozenset[Part] = frozenset((*ALL, "events"))
# Parts that change without an event: heartbeats, leases that activity renews, silences.
SILENT_CHANGES: frozenset[Part] = frozenset(("status", "agents", "locks"))


def moment(timestamp: str | None) -> int:
    """Return a timestamp of the protocol as ms since 1970; 0 for an invalid one."""
    return ms_of(timestamp or "") or 0


@dataclass
class WatchState:
    """Everything that is shown."""

    connection: ConnectionState = "starting"
    # When the connection got its current state, and how long it was away before (``tick_ms``).
    connection_since: int = 0
    was_away_ms: int = 0
    trouble: str = ""
    epoch: str = ""
    status: Any = None
    status_at: int = 0
    listed: list[Any] = field(default_factory=list)
    agents: list[Any] = field(default_factory=list)
    locks: list[Any] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    # The parts that belong to one mission, and its ID.
    sorties: list[Any] = field(default_factory=list)
    sorties_of: str | None = None
    checkpoints: list[Any] = field(default_factory=list)
    checkpoints_of: str | None = None
    events: deque[Any] = field(default_factory=lambda: deque(maxlen=TAIL))

    def connected(self, epoch: str, tick_ms: int) -> None:
        """Note that the daemon is there; if its store is another one, forget everything."""
        if self.connection == "connected":
            return
        self.was_away_ms = tick_ms - self.connection_since if self.connection == "away" else 0
        self.connection, self.connection_since, self.trouble = "connected", tick_ms, ""
        if self.epoch not in ("", epoch):
            self.forget()
        self.epoch = epoch

    def away(self, trouble: str, tick_ms: int) -> None:
        """Note that the daemon is away; its last data stays visible."""
        gone: ConnectionState = "waiting" if self.connection in ("starting", "waiting") else "away"
        if self.connection != gone:
            self.connection_since = tick_ms
        self.connection, self.trouble = gone, trouble

    def forget(self) -> None:
        """Forget everything that the daemon reported."""
        self.status = None
        self.listed, self.agents, self.locks, self.messages = [], [], [], []
        self.sorties, self.sorties_of = [], None
        self.checkpoints, self.checkpoints_of = [], None
        self.events.clear()

    def add_events(self, events: Iterable[Any]) -> None:
        """Add new events, in their order."""
        last = self.events[-1].seq if self.events else 0
        for event in events:
            if event.seq > last:
                self.events.append(event)
                last = event.seq

    def take(self, part: Part, answer: Any, subject: str | None, tick_ms: int) -> None:
        """Store the daemon's answer; ``subject`` is the mission that it is about."""
        if part == "status":
            self.status, self.status_at = answer, tick_ms
        elif part == "sorties":
            # Current work first; sorted once here, since there may be thousands.
            answer = sorted(answer, key=lambda sortie: _RANK.get(sortie.status, 2))
            self.sorties, self.sorties_of = answer, subject
        elif part == "checkpoints":
            self.checkpoints, self.checkpoints_of = answer, subject
        elif part == "events":
            # The events of the answer go before those that arrived meanwhile.
            last = answer[-1].seq if answer else 0
            newer = [event for event in self.events if event.seq > last]
            self.events.clear()
            self.events.extend([*answer, *newer])
        else:
            setattr(self, {"missions": "listed", "mail": "messages"}.get(part, part), answer)


class UpdateQueue:
    """Keeps only the newest of everything, so that a burst of events does not make it grow.

    The adding thread calls ``notify`` when the queue was empty before.
    """

    def __init__(self, notify: Callable[[], object], tick: Callable[[], int]) -> None:
        self._notify = notify
        self._tick = tick
        self._lock = threading.Lock()
        self._connection_changes: list[Callable[[WatchState], None]] = []
        self._answers: dict[Part, tuple[Any, str | None, int]] = {}
        self._events: deque[Any] = deque(maxlen=TAIL)
        self._count = 0
        self._notified = False

    def connected(self, epoch: str) -> None:
        """Report that the daemon is there."""
        now = self._tick()
        with self._adding():
            # Earlier answers and events belong to another connection, maybe to another store.
            self._answers.clear()
            self._events.clear()
            self._connection_changes.append(lambda state: state.connected(epoch, now))

    def away(self, trouble: str) -> None:
        """Report that the daemon is away, and why."""
        now = self._tick()
        with self._adding():
            del self._connection_changes[:-1]
            self._connection_changes.append(lambda state: state.away(trouble, now))

    def event(self, event: Any) -> None:
        """Add an event."""
        with self._adding():
            self._events.append(event)
            self._count += 1

    def answer(self, part: Part, answer: Any, subject: str | None) -> None:
        """Add an answer, which replaces an earlier one to the same question."""
        now = self._tick()
        with self._adding():
            self._answers[part] = (answer, subject, now)

    def waiting(self) -> int:
        """Return how many events have arrived since the last take, including dropped ones."""
        return self._count

    def take(self, state: WatchState) -> None:
        """Move everything into a state."""
        with self._lock:
            self._notified = False
            changes, answers, events = self._connection_changes, self._answers, list(self._events)
            self._connection_changes, self._answers, self._count = [], {}, 0
            self._events.clear()
        for change in changes:
            change(state)
        for part, (answer, subject, at) in answers.items():
            state.take(part, answer, subject, at)
        state.add_events(events)

    @contextmanager
    def _adding(self) -> Iterator[None]:
        with self._lock:
            yield
            first, self._notified = not self._notified, True
        if first:
            self._notify()
