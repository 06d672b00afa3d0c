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

    def late(self, name: str) -> bool:
        """Whether a timer that runs has missed its next round."""
        pulse = self._pulses.get(name)
        return pulse is not None and trio.current_time() > pulse.late

    def since_s(self, name: str) -> float | None:
        """Return how many seconds ago a timer came round; None for one that never did."""
        pulse = self._pulses.get(name)
        return None if pulse is None else trio.current_time() - pulse.beat
