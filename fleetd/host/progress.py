"""Progress of a long request, for whoever asked to be told.

It goes with the task, and with the threads that the task starts. Where nobody asked, to note
something here costs next to nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class ProgressCount(NamedTuple):
    """How many of what are done, and of how many, if that is known."""

    what: str = ""
    done: int = 0
    total: int | None = None


class ProgressTracker:
    """What was noted last; whoever tells of it looks whenever he likes."""

    def __init__(self) -> None:
        self.stand = ProgressCount()


_followed: ContextVar[ProgressTracker | None] = ContextVar("headway", default=None)


@contextmanager
def tracked() -> Iterator[ProgressTracker]:
    """Have what a block notes kept where it can be looked at."""
    headway = ProgressTracker()
    token = _followed.set(headway)
    try:
        yield headway
    finally:
        _followed.reset(token)


def at(what: str, done: int = 0, total: int | None = None) -> None:
    """Note how far it is with something; of another thing it counts from the beginning."""
    if (headway := _followed.get()) is not None:
        # More may come to light on the way than was there to begin with.
        headway.stand = ProgressCount(what, done, None if total is None else max(total, done))


def on(number: int = 1) -> None:
    """Note that so many more are done of what was named last."""
    if (headway := _followed.get()) is not None:
        what, done, total = headway.stand
        at(what, done + number, total)
