"""Takes in what waits in the spool, each through the same door as a live delivery, and in order."""

import logging
from functools import partial
from typing import Literal

import msgspec
import trio

from ...host import trace
from ...protocol.errors import FleetError, Storage, Unavailable
from ...protocol.requests.hook import HookDeliver
from ...store.api import StoreAway
from ...store.spool import NoFrame, SpooledHook
from ..engine import DAEMON, Engine
from .deliver import take

log = logging.getLogger("fleetd")


class _Frame(msgspec.Struct, frozen=True):
    """The part of a line that matters."""

    method: Literal["hook.deliver"]
    params: HookDeliver


_frame = msgspec.json.Decoder(_Frame).decode


async def take_in(engine: Engine) -> None:
    """Take in everything that waits, oldest first; at once when nothing does.

    Raises Storage and Unavailable; what was not taken in then stays for the next time.
    """
    if not await engine.outbox.in_thread(engine.spool.any):
        return
    async with engine.reception.spool:
        waiting = await engine.outbox.in_thread(engine.spool.waiting)
        for number, each in enumerate(waiting):
            if engine.closing:
                raise Unavailable(
                    "fleetd is shutting down.", hint="The rest waits in the spool.", retry=True
                )
            await _take_in(engine, each)
            if number == 0:
                log.info("Taking in what waited in the spool: payloads of hooks, %d", len(waiting))


async def tidy(engine: Engine) -> None:
    """Take in what waits, now that nobody does; what cannot be taken in is told in the log."""
    try:
        await take_in(engine)
        await engine.outbox.in_thread(engine.spool.sweep)
    except StoreAway:  # which the store itself tells, and then everything here comes first
        pass
    except FleetError as error:
        log.warning("The spool has to wait: %s", error.message)
    except OSError as error:
        log.warning("The spool %s cannot be emptied: %s", engine.spool.directory, error.strerror)


async def leave_nothing(engine: Engine) -> None:
    """Empty the spool, so that nothing comes back from it; raises Storage when that fails."""
    try:
        await take_in(engine)
        await engine.outbox.in_thread(engine.spool.clear)
    except OSError as error:
        raise Storage(
            f"The spool {engine.spool.directory} cannot be emptied: {error.strerror}.",
            hint="What lies there would come back. Mend its permissions, then try again.",
        ) from error


async def _take_in(engine: Engine, waiting: SpooledHook) -> None:
    try:
        request = await engine.outbox.in_thread(partial(_read, engine, waiting))
    except NoFrame as reason:
        log.warning("%s in the spool is none of the hook client's: %s", waiting.name, reason)
        return await engine.outbox.in_thread(partial(engine.spool.put_aside, waiting.name))
    if request is None:
        return None
    # A clock that was set back meanwhile makes nothing happen in the future.
    with trace.on_behalf_of(None):  # whoever has the spool emptied did not ask for this
        await take(
            engine,
            request,
            DAEMON,
            min(engine.store.from_wall(waiting.happened_ms), engine.clock()),
        )
    return await engine.outbox.in_thread(partial(engine.spool.remove, waiting.name))


def _read(engine: Engine, waiting: SpooledHook) -> HookDeliver | None:
    line = engine.spool.read(waiting.name)
    if line is None:
        return None
    try:
        request = _frame(line).params
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise NoFrame(str(error)) from error
    if request.delivery_id != waiting.delivery_id:
        raise NoFrame("it holds another delivery than its name says")
    return request


async def first(engine: Engine, patience_s: float) -> None:
    """Take in what waits before something newer, for a while; raises Unavailable after that.

    Whoever came with something newer leaves it in the spool then, and it keeps its place.
    """
    with trio.move_on_after(patience_s) as waiting:
        try:
            await take_in(engine)
        except (Storage, OSError) as error:
            # One that cannot be taken in, or removed, must not keep all that follow from being.
            if engine.reception.first_time(f"spool: {error}"):
                log.warning("What waits in the spool cannot be taken in now: %s", error)
    if waiting.cancelled_caught:
        raise Unavailable(
            "What waits in the spool comes first, and there is much of it.",
            hint="Leave this in the spool as well.",
        )
