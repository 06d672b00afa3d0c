"""Whether what the daemon does by itself still happens; must not do any of it."""

import msgspec
import trio


class Pulse(msgspec.Struct, frozen=True):
    """Something that comes round: when it last did, and when it is late, both by trio's clock."""

    beat: float
    late: float


class Pulses:
    """The last round of each timer."""

    def __init__(self) -> None:
        self._pulses: dict[str, Pulse] = {}

    def beat(self, name: str, within_s: float) -> None:
        """Note that a timer has come round, and in how many seconds it must again."""
        now = trio.current_time()
        self._pulses[name] = Pulse(now, now + within_s)

    @property
    def names(self) -> list[str]:
        """Return the timers that ever came round, in the order of their first rounds."""
        return list(self._pulses)

    def late(self, name: str) -> bool:
        """Whether a timer has missed its next round."""
        return trio.current_time() > self._pulses[name].late

    def since_s(self, name: str) -> float:
        """Return how many seconds ago a timer came round."""
        return trio.current_time() - self._pulses[name].beat
