"""The engine of this revision, called by the names of methods."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fleetd.config import Config, Loaded, PathSettings
from fleetd.domain.core.context import Caller
from fleetd.engine.engine import Engine
from fleetd.engine.lifecycle import open_engine
from fleetd.host import git
from fleetd.host.clock import Uptime
from fleetd.protocol.methods import METHODS

from .play import Clock, Door

GIT_S = 30


class _Door:
    methods = frozenset(METHODS)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._caller = Caller(kind="client", uid=os.getuid())

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        request = msgspec.convert(params, METHODS[method])
        found: dict[str, Any] = msgspec.to_builtins(await self._engine.ask(request, self._caller))
        return found


@asynccontextmanager
async def opened(
    root: Path, clock: Clock, new_id: Callable[[str], str], budget: int
) -> AsyncIterator[Door]:
    """Open an engine that stores everything below a directory and runs on trio's thread."""
    places = PathSettings(
        database=str(root / "squawk.db"),
        checkpoints=str(root / "checkpoints"),
        socket=str(root / "s"),
    )
    config = Config()
    prompt = msgspec.structs.replace(config.prompt, max_chars=budget)
    config = msgspec.structs.replace(config, paths=places, prompt=prompt)
    loaded = Loaded(config, {}, root / "config.toml", root / "spool")
    # A busy machine must not turn a slow Git into a shorter briefing.
    before, git.SECONDS = git.SECONDS, GIT_S
    try:
        async with open_engine(
            loaded,
            clock=clock,
            uptime=lambda: Uptime(clock.awake_ms, "boot"),
            new_id=new_id,
            inline=True,
        ) as engine:
            yield _Door(engine)
    finally:
        git.SECONDS = before
