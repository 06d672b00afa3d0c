"""What happens by itself, as a client of the engine; must not reach past it."""

import logging

import trio

from .domain.takeover import SurroundingsGet
from .domain.tx import WatchProcess
from .engine import DAEMON, Engine
from .housekeeping import keep_house
from .operations.spool import tidy
from .operations.watching import ActivityScan, Looked, ProcessEnded
from .wire.base import Request
from .wire.errors import FleetError

log = logging.getLogger("fleetd")
PAUSE_S = 10
SPOOL_S = 30
# A round that takes longer than this hangs; taking in a long spool has its time.
ROUND_S = 300
LONG_ROUND_S = 3_600
ROOM_S = 60


async def run_timers(engine: Engine) -> None:
    """Do what is done by itself until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notice_silence, engine)
        nursery.start_soon(watch_processes, engine)
        nursery.start_soon(keep_house, engine)
        nursery.start_soon(empty_spool, engine)
        nursery.start_soon(keep_room, engine)


async def notice_silence(engine: Engine) -> None:
    """Look for silences, those of the time before this start too, whenever one can be due."""
    while True:
        engine.pulses.beat("silence", ROUND_S)
        looked = await _insist(engine, ActivityScan(), "silence")
        pause_s = looked.look_again_ms / 1000
        engine.pulses.beat("silence", pause_s + ROUND_S)
        await trio.sleep(pause_s)


async def empty_spool(engine: Engine) -> None:
    """Take in what hooks left while the daemon could not answer, also if no hook comes any more."""
    while True:
        engine.pulses.beat("spool", SPOOL_S + LONG_ROUND_S)
        await tidy(engine)
        await trio.sleep(SPOOL_S)


async def keep_room(engine: Engine) -> None:
    """Keep some room on the disk for the day when it is full, again when that day is over."""
    while True:
        await engine.outbox.in_thread(engine.ballast.make)
        await trio.sleep(ROOM_S)


async def watch_processes(engine: Engine) -> None:
    """Notice when the process of an agent ends, also one that ended while no daemon ran."""

    async def ended(process: WatchProcess) -> None:
        # What its hooks left while we could not answer it said before it ended.
        await tidy(engine)
        await _insist(engine, ProcessEnded(process.agent_id, process.pid, process.started))

    known = await engine.execute(SurroundingsGet())
    await engine.watcher.run(known.processes, ended)


async def _insist(engine: Engine, request: Request[Looked], timer: str | None = None) -> Looked:
    """Perform a request, again until it succeeds: nobody else will ask for it.

    A timer that tries and is refused is alive: what refuses is another's trouble.
    """
    while True:
        try:
            return await engine.perform(request, DAEMON)
        except FleetError as error:
            log.warning("%s has to wait: %s", type(request).__name__, error.message)
        except Exception:
            log.exception("%s failed", type(request).__name__)
        if timer is not None:
            engine.pulses.beat(timer, PAUSE_S + ROUND_S)
        await trio.sleep(PAUSE_S)
