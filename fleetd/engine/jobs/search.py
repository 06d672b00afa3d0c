"""Search backlog: indexes records from before there was a search index, batch by batch."""

import trio

from ...domain.search.index import catch_up, is_behind
from ..engine import Engine

# Other requests write between the batches.
PAUSE_S = 0.02


async def index_backlog(engine: Engine) -> None:
    """Index everything that is not indexed yet."""
    more = await engine.read(is_behind)
    while more:
        more = await engine.write(catch_up)
        with trio.move_on_after(PAUSE_S):
            await engine.store.failed.wait()
