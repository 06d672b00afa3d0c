"""What happens by itself, as a client of the engine; must not reach past it."""

import logging

import trio

from .domain.upkeep import DropOldKeys
from .engine import Engine
from .wire.errors import FleetError

log = logging.getLogger("fleetd")
DAY_S = 86_400


async def run_timers(engine: Engine) -> None:
    """Do the daily work until cancelled."""
    while True:
        await trio.sleep(DAY_S)
        try:
            await engine.execute(DropOldKeys())
        except FleetError as error:  # a full disk is no reason to end; tomorrow is another day
            log.warning("The daily work has to wait: %s", error.message)
