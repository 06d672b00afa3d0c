"""Server clock: the server's time, kept by this machine's clock between two readings of it."""

import time
from typing import NamedTuple

from ...host.clock import Uptime
from ...protocol.timestamps import to_ms
from .connection import ServerConnection

# Of one store all "awake" figures are of one clock, whichever machine wrote them.
BOOT = "shared"
# Counts on while the machine sleeps, and nobody steps it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_QUESTIONS = 3
# A quicker answer is good enough: it is off by half of its round trip at most.
_QUICK_MS = 5
# An answer that took longer says too little: a clock may have been set by half of that.
_TOO_SLOW_MS = 100
# A clock that is ahead goes at half its speed until it is not: it never goes back.
_SLOWER = 2
NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_ASK = f"SELECT {NOW_MS}".encode()
_LAST_TIMES = (
    b"SELECT (SELECT max(heard_awake_ms) FROM machines),"
    b" (SELECT timestamp FROM events ORDER BY seq DESC LIMIT 1)"
)
# A server that was further ahead than that had a wrong clock: nobody goes at half speed for weeks.
_FURTHEST_MS = 3_600_000


def own_ns() -> int:
    """Return the time of this machine's clock."""
    return time.clock_gettime_ns(_CLOCK)


def _own_ms() -> int:
    return own_ns() // 1_000_000


class ClockReading(NamedTuple):
    """How long a server took to tell its time, and how far that is ahead of this machine's clock.

    The difference is right to within half of the time that the answer took.
    """

    took_ms: float
    ahead_ms: int


def reading(asked_ns: int, server_ms: int, answered_ns: int) -> ClockReading:
    """Return a reading, given the times of ``own_ns`` before the question and after the answer."""
    took_ms = (answered_ns - asked_ns) / 1_000_000
    return ClockReading(took_ms, server_ms - (asked_ns + answered_ns) // 2_000_000)


class ServerClock:
    """Tells the server's time in ms since the Unix epoch; the machine's own until it was asked.

    It never goes back once the server was asked: if it is ahead, it runs at half speed until the
    server has caught up. It does not begin before the last time in the store either.
    """

    def __init__(self) -> None:
        self._asked = False
        # Always replaced as a whole, as other threads read it: how far the server's clock is ahead
        # of ours, how far this clock was ahead of that, and when.
        self._course = (time.time_ns() // 1_000_000 - _own_ms(), 0, _own_ms())

    def ask(self, connection: ServerConnection) -> None:
        """Compare with the server's clock; of several answers the quickest is the truest."""
        readings: list[ClockReading] = []
        for _ in range(_QUESTIONS):
            asked = own_ns()
            row = connection.execute(_ASK).fetchone()
            readings.append(reading(asked, int(row[0]) if row else 0, own_ns()))
            if readings[-1].took_ms < _QUICK_MS:
                break
        self.set(min(readings).ahead_ms)

    def accept(self, found: ClockReading) -> bool:
        """Go by a quick reading; return whether this clock need not ask the server again.

        A slow reading changes nothing, and agrees with this clock if both can be right.
        """
        if found.took_ms < _QUICK_MS:
            self.set(found.ahead_ms)
            return True
        if not self._asked or found.took_ms > _TOO_SLOW_MS:
            return False
        ahead, _, _ = self._course
        return abs(found.ahead_ms - ahead) <= (found.took_ms + _QUICK_MS) / 2

    def begin(self, connection: ServerConnection) -> None:
        """Compare with the server's clock, and begin no earlier than the last time in the store.

        The server's clock may have been set back, or another server may be behind. A daemon that
        connects then agrees with the machines that were connected all the time.
        """
        self.ask(connection)
        heartbeat_ms, last = connection.execute(_LAST_TIMES).fetchone() or (None, None)
        self.advance_to(max(heartbeat_ms or 0, to_ms(last) if last else 0))

    def advance_to(self, stored_ms: int) -> None:
        """Be no earlier than a time of other machines, unless their clock was wrong by hours."""
        ahead, _, _ = self._course
        own = _own_ms()
        if self.now_ms() < stored_ms <= own + ahead + _FURTHEST_MS:
            self._course = (ahead, stored_ms - (own + ahead), own)

    def set(self, ahead_ms: int) -> None:
        """Go by a server that is ``ahead_ms`` ahead of this machine's clock."""
        own = _own_ms()
        excess = max(0, self.now_ms() - (own + ahead_ms)) if self._asked else 0
        self._course = (ahead_ms, excess, own)
        self._asked = True

    def now_ms(self) -> int:
        """Return the time of the fleet."""
        ahead, excess, since = self._course
        own = _own_ms()
        if excess:
            return own + ahead + max(0, excess - (own - since) // _SLOWER)
        return own + ahead

    def uptime(self) -> Uptime:
        """Return the same as a clock that nobody steps."""
        return Uptime(self.now_ms(), BOOT)
