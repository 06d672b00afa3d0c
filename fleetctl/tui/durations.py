"""Short words for how long ago and how long yet; must not read a clock.

Shorter than those of ``moments``, for columns, and changing as seldom as they can: every change is
sent to the terminal, maybe over a slow line.
"""

MINUTE, HOUR, DAY = 60, 3_600, 86_400


def span(ms: int) -> str:
    """Return a length of time in one unit: ``20 s``, ``4 min``, ``2 h``, ``3 d``."""
    seconds = max(ms, 0) // 1000
    if seconds < MINUTE:
        return f"{seconds // 10 * 10} s" if seconds >= 10 else "now"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    if seconds < 2 * DAY:
        return f"{seconds // HOUR} h"
    return f"{seconds // DAY} d"


def silence(ms: int) -> str:
    """Return how long nothing was heard: ``active``, ``silent 4 min``."""
    told = span(ms)
    return "active now" if told == "now" else f"silent {told}"


def ago(ms: int) -> str:
    """Return how long ago something was: ``now``, ``4 min ago``."""
    told = span(ms)
    return told if told == "now" else f"{told} ago"


def left(ms: int) -> str:
    """Return how long a lease still runs."""
    if ms <= 0:
        return "ran out"
    return "10 s" if ms < 10_000 else span(ms)


def seconds(ms: int) -> str:
    """Return a length of time to the second while that matters."""
    return f"{max(ms, 0) // 1000} s" if ms < MINUTE * 1000 else span(ms)
