"""Progress bar for what takes long.

It stands on standard error, comes only after half a second, and leaves nothing behind.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..args import Namespace
from ..client import Fleet, Progress
from ..client.models import Request

R = TypeVar("R")

# What is quicker needs no bar, and one that only flashes is a nuisance.
WAIT_S = 0.5
WIDEST = 40
NARROWEST = 10
_CLEAR = "\r\x1b[K"
_PARTS = " ▏▎▍▌▋▊▉"
# What counts nothing says what goes on.
_WORDS = {"database": "reading the whole database", "files": "looking at the files"}


@contextmanager
def progress_bar(args: Namespace, title: str) -> Iterator[Callable[[Progress], None] | None]:
    """Give what draws how far a call is, or None where nobody would see it."""
    if not drawable(args):
        yield None
        return
    begin, shown = time.monotonic() + WAIT_S, False

    def show(update: Progress) -> None:
        nonlocal shown
        if time.monotonic() >= begin:
            shown = True
            draw(line(title, update, _columns(), plain=_plain()))

    try:
        yield show
    finally:
        if shown:
            draw("")


def call_with_bar(args: Namespace, title: str, client: Fleet, request: Request[R]) -> R:
    """Send a request that takes long, and draw how far it is."""
    with progress_bar(args, title) as progress:
        return client.call(request, progress=progress)


def drawable(args: Namespace) -> bool:
    """Return whether there is a terminal that shows a line which is drawn over."""
    return not args.json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def draw(text: str) -> None:
    """Draw a line over the one before, as far as it fits; an empty one takes that away."""
    sys.stderr.write(_CLEAR + text[: _columns()])
    sys.stderr.flush()


def _columns() -> int:
    # One column stays free: a terminal that wraps there would leave every line behind.
    return os.get_terminal_size(sys.stderr.fileno()).columns - 1


def line(title: str, update: Progress, columns: int, *, plain: bool) -> str:
    """Return how far it is in so many columns at most: words, and a bar where there is room."""
    what, done, total = update
    if not total:
        counted = f"{done:,} {what}" if done else _WORDS.get(what, what)
        return f"{title}: {counted}"[:columns]
    counts = f"{done:,} of {total:,} {what}"
    percent = f"{100 * done // total:3d} %"
    room = min(columns - len(f"{title}  {percent}  {counts}"), WIDEST)
    if room < NARROWEST:
        return f"{title} {percent}  {counts}"[:columns]
    if plain:
        filled = ("#" * int(done / total * room)).ljust(room, ".")
    else:
        whole, part = divmod(int(done / total * room * 8), 8)
        filled = ("█" * whole + _PARTS[part].strip()).ljust(room, "░")
    return f"{title} {filled} {percent}  {counts}"


def _plain() -> bool:
    """Whether the terminal's encoding has no blocks."""
    try:
        "█░▏".encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        return True
    return False
