"""The clocks of this machine: the time, and how long it has been awake."""

import secrets
import time
from functools import lru_cache
from pathlib import Path

import msgspec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Uptime(msgspec.Struct, frozen=True):
    """How long the machine has been awake since it was started, in ms, and since which start.

    Nobody can step this clock, and it stands still while the machine is suspended. Figures of two
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
    """Return what the kernel calls this boot.

    Where it does not say, each process takes a boot of its own: after a restart of the daemon
    silence is then measured by the wall clock, as after a restart of the machine.
    """
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return secrets.token_hex(16)
