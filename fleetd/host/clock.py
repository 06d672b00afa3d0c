"""The clocks of this machine: the time, and how long it has been awake."""

import secrets
import time
from functools import lru_cache
from pathlib import Path

import msgspec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Uptime(msgspec.Struct, frozen=True):
    """How long the machine has been awake since it was booted, in ms, and in which boot.

    Nobody can step this clock, and it stops while the machine is suspended. Figures of two
    different boots cannot be compared.
    """

    awake_ms: int
    boot_id: str


def wall_clock() -> int:
    """Return the time in ms since the Unix epoch; people and NTP step this clock."""
    return time.time_ns() // 1_000_000


def uptime() -> Uptime:
    """Return how long this machine has been awake; the same for every process on it."""
    return Uptime(time.monotonic_ns() // 1_000_000, _boot_id())


@lru_cache(maxsize=1)
def _boot_id() -> str:
    """Return the kernel's id of this boot.

    Without one, each process makes up its own: after a restart of the daemon, silence is then
    measured by the wall clock, as after a restart of the machine.
    """
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return secrets.token_hex(16)
