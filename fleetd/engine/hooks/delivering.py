"""``hook.deliver``: what waits in the spool first, then what the hook says, then the answer."""

import time
from functools import partial

from ...domain.core.context import Caller
from ...protocol.requests.hook import DOCTOR, HookDeliver, HookReply
from ..engine import Engine, operation
from .deliver import take
from .spool import first

# The hook client waits 0.9 s for everything.
SPOOL_PATIENCE_S = 0.4


@operation
async def deliver(engine: Engine, request: HookDeliver, caller: Caller) -> HookReply:
    """Record what a hook was told, and answer it."""
    if DOCTOR in request.args:  # nothing of it is kept, so nothing has to come before it
        return await take(engine, request, caller)
    reply = await take(engine, request, caller, before=partial(first, engine, SPOOL_PATIENCE_S))
    if request.begun_us is not None:
        taken_us = time.monotonic_ns() // 1_000 - request.begun_us
        if 0 <= taken_us < 60_000_000:
            engine.reception.timed(request.harness, taken_us)
    return reply
