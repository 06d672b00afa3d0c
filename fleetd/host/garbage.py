"""Garbage collection: kept from looking through what is just being made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Have nobody look for garbage among the objects that a block makes.

    100,000 would be looked through 140 times, which takes twice as long as making them, and
    nobody else has a turn meanwhile.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
