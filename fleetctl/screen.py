"""What stdout is: a terminal with a width, for people, or anything else; must not print.

Only on a terminal are times told as people say them and lines made to fit; what is piped is exact
and whole. ``--exact`` asks for that on a terminal too.
"""

import os
import sys
import time

NARROWEST = 20
USUAL = 80
_exact = False


def be_exact(wanted: bool) -> None:
    """Print from now on as if nobody looked on, or not."""
    global _exact
    _exact = wanted


def humane() -> bool:
    """Return whether a person reads this as it comes, and did not ask for exact output."""
    return not _exact and sys.stdout.isatty()


def columns() -> int | None:
    """Return how wide a line may be; None when nothing is to be cut."""
    return width() if humane() else None


def width() -> int:
    """Return how wide the terminal is, in columns; 80 where it does not say."""
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told):
        return max(int(told), NARROWEST)
    try:
        size = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        size = 0
    return max(size, NARROWEST) if size else USUAL


def draws() -> bool:
    """Return whether stdout has more characters than ASCII: bars and ellipses."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def now_ms() -> int:
    """Return the time, in ms since the epoch."""
    return time.time_ns() // 1_000_000
