"""The one clock of a fleet: the server's, run on by this machine's own between two looks at it."""

import time
from typing import Any

import psycopg

from ...clocks import Uptime

# Of one store all "awake" figures are of one clock, whichever machine wrote them.
BOOT = "shared"
# Counts on while the machine sleeps, and nobody steps it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _own_ms() -> int:
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class FleetClock:
    """Tells the server's time in ms since the Unix epoch; the machine's own until it was asked."""

    def __init__(self) -> None:
        self._ahead_ms = time.time_ns() // 1_000_000 - _own_ms()

    def ask(self, connection: psycopg.Connection[Any]) -> None:
        """Compare with the server's clock; what the question took is halved."""
        asked = _own_ms()
        row = connection.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        ).fetchone()
        if row is not None:
            self._ahead_ms = int(row[0]) - (asked + _own_ms()) // 2

    def now_ms(self) -> int:
        """Return the time of the fleet."""
        return _own_ms() + self._ahead_ms

    def uptime(self) -> Uptime:
        """Return the same as a clock that nobody steps."""
        return Uptime(self.now_ms(), BOOT)
