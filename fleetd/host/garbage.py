"""Garbage collection: paused while many objects are being made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause garbage collection while a block makes objects.

    100,000 objects would be scanned 140 times. That takes twice as long as making them, and blocks
    everything else meanwhile.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
