"""Where threads leave what they learned until the screen takes it; must not know either side."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .state import TAIL, Part, Picture


class Tray:
    """Keeps of everything the newest only, so that no storm of events makes it grow.

    ``ring`` is called, in whatever thread, when something lies in it that was empty before.
    """

    def __init__(self, ring: Callable[[], None], tick: Callable[[], int]) -> None:
        self._ring = ring
        self._tick = tick
        self._lock = threading.Lock()
        self._link: list[Callable[[Picture], None]] = []
        self._answers: dict[Part, tuple[Any, str | None, int]] = {}
        self._events: deque[Any] = deque(maxlen=TAIL)
        self._count = 0
        self._rung = False

    def connected(self, epoch: str) -> None:
        """Say that the daemon is there."""
        now = self._tick()
        with self._lock:
            # Answers and events of before belong to another connection, maybe another store.
            self._answers.clear()
            self._events.clear()
            self._link.append(lambda picture: picture.connected(epoch, now))
        self._call()

    def away(self, trouble: str) -> None:
        """Say that the daemon is not there, and why."""
        now = self._tick()
        with self._lock:
            del self._link[:-1]
            self._link.append(lambda picture: picture.away(trouble, now))
        self._call()

    def event(self, event: Any) -> None:
        """Leave an event."""
        with self._lock:
            self._events.append(event)
            self._count += 1
        self._call()

    def answer(self, part: Part, answer: Any, subject: str | None) -> None:
        """Leave an answer; one to the same question from before is forgotten."""
        now = self._tick()
        with self._lock:
            self._answers[part] = (answer, subject, now)
        self._call()

    def waiting(self) -> int:
        """Return how many events came that were not taken yet, also those that had no room."""
        return self._count

    def take(self, picture: Picture) -> None:
        """Move everything into a picture."""
        with self._lock:
            self._rung = False
            link, answers, events = self._link, self._answers, list(self._events)
            self._link, self._answers, self._count = [], {}, 0
            self._events.clear()
        for change in link:
            change(picture)
        for part, (answer, subject, at) in answers.items():
            picture.take(part, answer, subject, at)
        picture.tell(events)

    def _call(self) -> None:
        with self._lock:
            if self._rung:
                return
            self._rung = True
        self._ring()
