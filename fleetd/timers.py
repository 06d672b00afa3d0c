"""What happens by itself, as a client of the engine; must not reach past it."""

import logging

import trio

from .domain.takeover import SurroundingsGet
from .domain.tx import WatchProcess
from .engine import DAEMON, Engine
from .housekeeping import keep_house
from .operations.watching import ActivityScan, ProcessEnded
from .wire.errors import FleetError

log = logging.getLogger("fleetd")
PAUSE_S = 10


async def run_timers(engine: Engine) -> None:
    """Do what is done by itself until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notice_silence, engine)
        nursery.start_soon(watch_processes, engine)
        nursery.start_soon(keep_house, engine)


async def notice_silence(engine: Engine) -> None:
    """Look for silences, those of the time before this start too, whenever one can be due."""
    while True:
        try:
            looked = await engine.perform(ActivityScan(), DAEMON)
            await trio.sleep(looked.look_again_ms / 1000)
        except FleetError as error:
            log.warning("Silence cannot be looked for now: %s", error.message)
            await trio.sleep(PAUSE_S)


async def watch_processes(engine: Engine) -> None:
    """Notice when the process of an agent ends, also one that ended while no daemon ran."""

    async def ended(process: WatchProcess) -> None:
        request = ProcessEnded(process.agent_id, process.pid, process.started)
        await engine.perform(request, DAEMON)

    known = await engine.execute(SurroundingsGet())
    await engine.watcher.run(known.processes, ended)
