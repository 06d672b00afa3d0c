"""Tells a client how far its request is, now and then; must not know sockets or requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import trio

from ..host import progress
from ..protocol.progress import Progress

# Ten times a second is enough for anybody who looks at it, and a burden for nobody.
PAUSE_S = 0.1
_encode = msgspec.json.Encoder().encode


@contextmanager
def telling(token: str, offer: Callable[[bytes], None], tasks: trio.Nursery) -> Iterator[None]:
    """Offer a line whenever a block has come further, until it ends: the reply is next.

    What cannot be sent at once is left out, so a client that does not read holds up nothing.
    """
    asleep = trio.CancelScope()
    with progress.followed() as found:
        tasks.start_soon(_tell, token, found, offer, asleep)
        try:
            yield
        finally:
            asleep.cancel()


async def _tell(
    token: str, found: progress.Headway, offer: Callable[[bytes], None], asleep: trio.CancelScope
) -> None:
    told = found.stand
    with asleep:
        while True:
            await trio.sleep(PAUSE_S)
            if found.stand != told:
                told = found.stand
                offer(_line(token, told))


def _line(token: str, stand: progress.Stand) -> bytes:
    params = Progress(token=token, what=stand.what, done=stand.done, total=stand.total)
    return b'{"jsonrpc":"2.0","method":"progress","params":%b}\n' % _encode(params)
