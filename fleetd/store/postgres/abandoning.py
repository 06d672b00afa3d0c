"""Runs what may hang on a thread that is left behind by who cannot wait; must not know what."""

from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")
_LEFT_BEHIND: dict[str, Any] = {"abandon_on_cancel": True}


async def on_a_thread(work: Callable[[], T]) -> T:
    """Run ``work`` on a thread; cancelled, it goes on there and nobody hears how it ended."""
    result: T = await trio.to_thread.run_sync(work, **_LEFT_BEHIND)
    return result
