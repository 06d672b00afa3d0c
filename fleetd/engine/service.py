"""Opens and closes an engine: store, start-up work, outbox; must not know sockets."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from ..config import Loaded
from ..host.clock import Uptime
from ..store.api import StoreFailed, StoreFull
from ..store.sqlite.disk_reserve import DiskReserve
from . import methods  # noqa: F401 - registers the operations
from .engine import Engine, random_id
from .jobs.cluster import say_goodbye
from .lifecycle import keep_ready

LAST_WORDS_S = 0.5


@asynccontextmanager
async def open_engine(
    loaded: Loaded,
    *,
    clock: Callable[[], int] | None = None,
    uptime: Callable[[], Uptime] | None = None,
    new_id: Callable[[str], str] = random_id,
    inline: bool = False,
    vfs: str | None = None,
    machine: str | None = None,
) -> AsyncIterator[Engine]:
    """Open the store and serve requests until the block ends; then finish what was begun.

    A store that is away now is waited for inside the block. Raises StoreRefused before it when the
    store cannot be opened, StoreFailed out of the block when the disk fails inside it. ``inline``
    runs everything on the trio thread, so that virtual time is exact.
    """
    engine = _opened(
        loaded,
        lambda: Engine(
            loaded,
            clock=clock,
            uptime=uptime,
            new_id=new_id,
            inline=inline,
            vfs=vfs,
            machine=machine,
        ),
    )
    engine.ballast.close_to_others()
    engine.store.start()
    try:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch_disk, engine)
                nursery.start_soon(engine.outbox.run)
                nursery.start_soon(engine.store.run)
                begun = trio.Event()
                nursery.start_soon(keep_ready, engine, begun)
                await begun.wait()
                yield engine
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only(group) from None
        with trio.CancelScope(shield=True):
            await say_goodbye(engine)
            await engine.outbox.drain()
            await engine.store.last_look()
    finally:
        with trio.CancelScope(shield=True):
            await engine.store.aclose()


def _opened(loaded: Loaded, engine: Callable[[], Engine]) -> Engine:
    """Open an engine, in the last room of the disk if need be: else nobody could make any."""
    while True:
        try:
            return engine()
        except StoreFull:
            if not DiskReserve(loaded.config.database).give():
                raise


async def _watch_disk(engine: Engine) -> None:
    await engine.store.failed.wait()
    engine.stop_waiting()
    # Those whose requests just failed still hear of it, and who only reads is answered; nothing
    # further is stored.
    await trio.sleep(LAST_WORDS_S)
    raise StoreFailed(str(engine.store.failure))


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error inside a group of one; callers then need no except*."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
