"""Progress of a long request, for the client that asked for it.

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
        self.count = ProgressCount()


_tracker: ContextVar[ProgressTracker | None] = ContextVar("progress", default=None)


@contextmanager
def tracked() -> Iterator[ProgressTracker]:
    """Have what a block notes kept where it can be looked at."""
    tracker = ProgressTracker()
    token = _tracker.set(tracker)
    try:
        yield tracker
    finally:
        _tracker.reset(token)


def at(what: str, done: int = 0, total: int | None = None) -> None:
    """Note how far it is with something; of another thing it counts from the beginning."""
    if (tracker := _tracker.get()) is not None:
        # More may come to light on the way than was there to begin with.
        tracker.count = ProgressCount(what, done, None if total is None else max(total, done))


def advance(number: int = 1) -> None:
    """Note that so many more are done of what was named last."""
    if (tracker := _tracker.get()) is not None:
        what, done, total = tracker.count
        at(what, done + number, total)
