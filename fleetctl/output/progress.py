"""Progress bar for calls that take long.

It is on stderr, appears only after half a second, and leaves nothing behind.
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
from . import console

R = TypeVar("R")

# A quicker call needs no bar, and a bar that only flashes is a nuisance.
WAIT_S = 0.5
WIDEST = 40
NARROWEST = 10
_CLEAR = "\r\x1b[K"
_PARTS = " ▏▎▍▌▋▊▉"
# What is going on, for work that counts nothing.
_WORDS = {"database": "reading the whole database", "files": "looking at the files"}


@contextmanager
def progress_bar(args: Namespace, title: str) -> Iterator[Callable[[Progress], None] | None]:
    """Yield a function that draws the progress of a call, or None where nobody would see it."""
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
    """Send a request that takes long, and draw its progress."""
    with progress_bar(args, title) as progress:
        return client.call(request, progress=progress)


def drawable(args: Namespace) -> bool:
    """Return whether a terminal shows the bar and can redraw a line."""
    return not args.json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def draw(text: str) -> None:
    """Redraw the line, cut to the width; an empty text clears it."""
    sys.stderr.write(_CLEAR + text[: _columns()])
    sys.stderr.flush()


def _columns() -> int:
    # One column stays free: a terminal that wraps there would leave every line behind.
    return (console.width_of(sys.stderr) or console.USUAL) - 1


def line(title: str, update: Progress, columns: int, *, plain: bool) -> str:
    """Return the progress in at most so many columns: words, and a bar where there is room."""
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
    """Return whether the terminal's encoding has no block characters."""
    try:
        "█░▏".encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        return True
    return False
