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
    """Return how wide the terminal is, in columns; else as ``COLUMNS`` says, else 80."""
    for stream in (sys.stdout, sys.stderr):
        try:
            found = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            continue
        if found:
            return max(found, NARROWEST)
    told = os.environ.get("COLUMNS", "")
    return (
        max(int(told), NARROWEST) if told.isdecimal() and told.isascii() and told != "0" else USUAL
    )


def draws() -> bool:
    """Return whether stdout has more characters than ASCII: bars and ellipses."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def now_ms() -> int:
    """Return the time, in ms since the epoch."""
    return time.time_ns() // 1_000_000
