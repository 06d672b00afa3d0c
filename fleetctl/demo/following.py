"""A client that waits for facts in the event log, with a deadline; must not know what they mean."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from fleetd.protocol.records import Event

from ..client import Fleet

PATIENCE_S = 30.0

T = TypeVar("T")


class NothingCame(Exception):
    """A fact that had to come did not come in time."""


class Follower(Fleet):
    """A client with one subscription."""

    def follow(self, types: Sequence[str]) -> None:
        """Subscribe to events of these types, from the beginning of the log."""
        self._followed = self.events(since=0, types=types)

    def next_event(self, wait_s: float) -> Event | None:
        """Return the next event; None when ``wait_s`` seconds went by without one."""
        return self._followed.next(wait_s)

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """Look now and after every event until there is something to see; raises NothingCame."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := look()) is None:
            if self.next_event(deadline - time.monotonic()) is None:
                raise NothingCame(f"Waited {PATIENCE_S:.0f} s in vain: {what}")
        return found
