"""The state of the live view: what the daemon told last, and the queue that threads fill.

Times that come in are of two clocks: ``now_ms`` is the wall clock (ms since 1970), which the
daemon's timestamps are of; ``tick_ms`` is a clock that nobody steps, by which silences grow.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetd.protocol.event_types import ALL, Part

from ..output.times import ms_of

# The newest events that are kept, and asked for when a connection begins.
TAIL = 300
# A lost agent of a mission that is over is of interest for so long.
LOST_MS = 24 * 3_600_000
# Sorties in the order in which a person wants to know of them, in few lines.
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
# What goes on without an event: heartbeats, leases that activity prolongs, silences.
SILENT_CHANGES: frozenset[Part] = frozenset(("status", "agents", "locks"))


def moment(timestamp: str | None) -> int:
    """Return a timestamp of the wire as ms since 1970; 0 for what is none."""
    return ms_of(timestamp or "") or 0


@dataclass
class WatchState:
    """All that is shown."""

    connection: ConnectionState = "starting"
    # When the connection became what it is, and how long it was away before (by ``tick_ms``).
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
    # What belongs to one mission, and to which.
    sorties: list[Any] = field(default_factory=list)
    sorties_of: str | None = None
    checkpoints: list[Any] = field(default_factory=list)
    checkpoints_of: str | None = None
    events: deque[Any] = field(default_factory=lambda: deque(maxlen=TAIL))
    told: int = 0

    def connected(self, epoch: str, tick_ms: int) -> None:
        """Note that the daemon is there; of another store nothing that was known is true."""
        if self.connection == "connected":
            return
        self.was_away_ms = tick_ms - self.connection_since if self.connection == "away" else 0
        self.connection, self.connection_since, self.trouble = "connected", tick_ms, ""
        if self.epoch not in ("", epoch):
            self.forget()
        self.epoch = epoch

    def away(self, trouble: str, tick_ms: int) -> None:
        """Note that the daemon is not there; what it told stays, to be looked at."""
        gone: ConnectionState = "waiting" if self.connection in ("starting", "waiting") else "away"
        if self.connection != gone:
            self.connection_since = tick_ms
        self.connection, self.trouble = gone, trouble

    def forget(self) -> None:
        """Forget all that was told."""
        self.status = None
        self.listed, self.agents, self.locks, self.messages = [], [], [], []
        self.sorties, self.sorties_of = [], None
        self.checkpoints, self.checkpoints_of = [], None
        self.events.clear()

    def tell(self, events: Iterable[Any]) -> None:
        """Take in events that came, in their order."""
        last = self.events[-1].seq if self.events else 0
        for event in events:
            if event.seq > last:
                self.events.append(event)
                last = event.seq
                self.told += 1

    def take(self, part: Part, answer: Any, subject: str | None, tick_ms: int) -> None:
        """Take in what the daemon answered; ``subject`` is the mission it was asked about."""
        if part == "status":
            self.status, self.status_at = answer, tick_ms
        elif part == "sorties":
            # What is worked on first; once, since there may be thousands.
            answer = sorted(answer, key=lambda sortie: _RANK.get(sortie.status, 2))
            self.sorties, self.sorties_of = answer, subject
        elif part == "checkpoints":
            self.checkpoints, self.checkpoints_of = answer, subject
        elif part == "events":
            # The newest events go before those that came meanwhile.
            last = answer[-1].seq if answer else 0
            newer = [event for event in self.events if event.seq > last]
            self.events.clear()
            self.events.extend([*answer, *newer])
        else:
            setattr(self, {"missions": "listed", "mail": "messages"}.get(part, part), answer)


class UpdateQueue:
    """Keeps of everything the newest only, so that no storm of events makes it grow.

    ``notify`` is called, in whatever thread, when something lies in it that was empty before.
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
        """Say that the daemon is there."""
        now = self._tick()
        with self._adding():
            # Answers and events of before belong to another connection, maybe another store.
            self._answers.clear()
            self._events.clear()
            self._connection_changes.append(lambda state: state.connected(epoch, now))

    def away(self, trouble: str) -> None:
        """Say that the daemon is not there, and why."""
        now = self._tick()
        with self._adding():
            del self._connection_changes[:-1]
            self._connection_changes.append(lambda state: state.away(trouble, now))

    def event(self, event: Any) -> None:
        """Leave an event."""
        with self._adding():
            self._events.append(event)
            self._count += 1

    def answer(self, part: Part, answer: Any, subject: str | None) -> None:
        """Leave an answer; one to the same question from before is forgotten."""
        now = self._tick()
        with self._adding():
            self._answers[part] = (answer, subject, now)

    def waiting(self) -> int:
        """Return how many events came that were not taken yet, also those that had no room."""
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
        state.tell(events)

    @contextmanager
    def _adding(self) -> Iterator[None]:
        with self._lock:
            yield
            first, self._notified = not self._notified, True
        if first:
            self._notify()
