"""``hook.deliver``: what waits in the spool first, then what the hook says, then the answer."""

import time
from functools import partial

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...protocol.requests.hook import DOCTOR, HookDeliver, HookReply
from ..engine import Engine
from .deliver import take
from .spool import first

# The hook client waits 0.9 s for everything.
SPOOL_PATIENCE_S = 0.4


def _is_doctor(request: HookDeliver) -> bool:
    """Return whether only the way of a hook is tried: nothing of it is kept."""
    return DOCTOR in request.args


@method(HookDeliver, without_store=_is_doctor)
async def deliver(engine: Engine, request: HookDeliver, caller: Caller) -> HookReply:
    """Record what a hook was told, and answer it."""
    if _is_doctor(request):  # nothing has to come before it
        return await take(engine, request, caller)
    reply = await take(engine, request, caller, before=partial(first, engine, SPOOL_PATIENCE_S))
    if request.begun_us is not None:
        taken_us = time.monotonic_ns() // 1_000 - request.begun_us
        if 0 <= taken_us < 60_000_000:
            engine.reception.timed(request.harness, taken_us)
    return reply
