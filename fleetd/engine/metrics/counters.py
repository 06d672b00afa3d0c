"""Counters: requests of clients and their latencies, and whether the timers run."""

import msgspec
import trio

from ...host.histogram import Histogram


class Traffic:
    """Latencies by method, errors by kind and connections, since the daemon's start.

    Latencies are in microseconds, from the moment a request is parsed and has its place among those
    in flight (within a batch: from the end of the one before) until its reply is ready to be sent.
    Nothing here grows with what clients send: methods and kinds are the protocol's own.
    """

    def __init__(self) -> None:
        self.methods: dict[str, Histogram] = {}
        self.errors: dict[str, int] = {}
        self.open = 0
        self.most_open = 0
        self.accepted = 0
        self.refused = 0
        """Clients of another user."""
        self.cut_off = 0
        """Clients that broke a limit, or did not send or take a line in time."""

    def answered(self, method: str, micros: int) -> None:
        """Count a request of a known method."""
        histogram = self.methods.get(method)
        if histogram is None:
            histogram = self.methods[method] = Histogram()
        histogram.note(micros)

    def failed(self, kind: str) -> None:
        """Count an error that was answered."""
        self.errors[kind] = self.errors.get(kind, 0) + 1

    def opened(self) -> int:
        """Count a connection; returns its number."""
        self.accepted += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return self.accepted

    def closed(self) -> None:
        """Count the end of a connection."""
        self.open -= 1


class Pulse(msgspec.Struct, frozen=True):
    """The last round of a timer, and when the next one is late, both by trio's clock."""

    beat: float
    late: float


class TimerHealth:
    """The last round of each timer."""

    def __init__(self) -> None:
        self._pulses: dict[str, Pulse] = {}

    def beat(self, name: str, within_s: float) -> None:
        """Note a round of a timer, and within how many seconds the next must follow."""
        now = trio.current_time()
        self._pulses[name] = Pulse(now, now + within_s)

    @property
    def names(self) -> list[str]:
        """Return the timers that ever ran, in the order of their first rounds."""
        return list(self._pulses)

    def late(self, name: str) -> bool:
        """Return whether a timer has missed its next round."""
        return trio.current_time() > self._pulses[name].late

    def since_s(self, name: str) -> float:
        """Return how many seconds ago a timer last ran."""
        return trio.current_time() - self._pulses[name].beat
