"""Who is let in while the store is away or not caught up yet; must not know what kind it is."""

from collections.abc import Callable
from typing import Any

import trio

from ..domain.core.context import Caller
from ..domain.core.registry import REGISTERED
from ..protocol.request import Request
from ..store.api import Availability, StoreAway

LOOK_S = 10.0


class Admission:
    """Stands between clients and the store; what the daemon does by itself goes round it.

    It is shut until the daemon has made itself ready, and again while the store is away and until
    everything that has to come first is done: what waits in the spool is older than what comes.
    """

    def __init__(self, availability: Availability, now_ms: Callable[[], int]) -> None:
        self._availability = availability
        self._now_ms = now_ms
        self._opened = trio.Event()
        self._down: trio.Event | None = None

    @property
    def _is_open(self) -> bool:
        """Whether it was opened, and the store has not been away since."""
        return self._down is not None and not self._down.is_set()

    def open(self) -> None:
        """Let everybody in, until the store is away."""
        self._down = self._availability.down
        self._opened.set()

    def shut(self) -> None:
        """Let nobody in who needs the store."""
        self._down = None

    def admit(self, request: Request[Any], caller: Caller) -> None:
        """Let a request through; raises StoreAway for one that has to come again later."""
        if self._is_open:
            return
        if caller.kind != "client" or REGISTERED[type(request)].without_store(request):
            return
        if self._availability.away is not None:
            raise self._availability.away.refusal(self._now_ms())
        raise StoreAway(
            "The store is there, and fleetd catches up with it.",
            hint="That is over in a moment: try again.",
            retry=True,
        )

    async def admitted(self, beat: Callable[[], None]) -> None:
        """Wait until it is open, however long, and give a sign of life meanwhile."""
        while not self._is_open:
            beat()
            if self._opened.is_set():  # of the last time: it says nothing of the next
                self._opened = trio.Event()
            with trio.move_on_after(LOOK_S):
                await self._opened.wait()
