"""What happens by itself, as a client of the engine; must not reach past it."""

import trio

from .domain.upkeep import DropOldKeys
from .engine import Engine

DAY_S = 86_400


async def run_timers(engine: Engine) -> None:
    """Do the daily work until cancelled."""
    while True:
        await trio.sleep(DAY_S)
        await engine.execute(DropOldKeys())
