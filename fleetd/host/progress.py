"""Progress of a long request, for the client that asked for it.

It goes with the task, and with the threads that the task starts. If no client asked, noting
progress costs next to nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class ProgressCount(NamedTuple):
    """What is being done, how many items of it are done, and of how many, if known."""

    what: str = ""
    done: int = 0
    total: int | None = None


class ProgressTracker:
    """The progress noted last; a reporter may read it at any time."""

    def __init__(self) -> None:
        self.count = ProgressCount()


_tracker: ContextVar[ProgressTracker | None] = ContextVar("progress", default=None)


@contextmanager
def tracked() -> Iterator[ProgressTracker]:
    """Keep the progress that a block notes where a reporter can read it."""
    tracker = ProgressTracker()
    token = _tracker.set(tracker)
    try:
        yield tracker
    finally:
        _tracker.reset(token)


def at(what: str, done: int = 0, total: int | None = None) -> None:
    """Note the progress of a step; another step counts from the beginning."""
    if (tracker := _tracker.get()) is not None:
        # More items may turn up on the way than were known at the beginning.
        tracker.count = ProgressCount(what, done, None if total is None else max(total, done))


def advance(number: int = 1) -> None:
    """Note that ``number`` more items of the last named step are done."""
    if (tracker := _tracker.get()) is not None:
        what, done, total = tracker.count
        at(what, done + number, total)
