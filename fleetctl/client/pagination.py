"""Lists that come a page at a time, read to their end; must not know what they list."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
# How many the daemon returns at most, of what it lists whole when there are fewer.
PAGE = 1_000


def every(page: Callable[..., Sequence[T]]) -> list[T]:
    """Return all of a list; ``page`` asks for what is behind ``after``, from the beginning without.

    ``limit`` is left to the daemon: one that knows no pages would refuse to hear of them.
    """
    found = list(page())
    last: Sequence[Any] = found
    while len(last) == PAGE:
        last = page(after=last[-1].id)
        found += last
    return found
