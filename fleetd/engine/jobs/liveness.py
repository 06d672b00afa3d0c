"""Liveness: acts on silence, loss, unconfirmed recoveries and heartbeats when they are due."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...domain.agents import agent_loss
from ...domain.agents.due_work import due_work
from ...domain.core.context import Context
from ...domain.core.tx import Tx, WatchProcess
from ...domain.recovery import state
from ...domain.snapshots.triggers import on_timer
from ...protocol.errors import FleetError
from ..engine import Engine

T = TypeVar("T")
log = logging.getLogger("fleetd")


async def scan(engine: Engine, *, only_ours: bool = False) -> int:
    """Act on everything that is due, each in its own transaction.

    One that fails must not delay the others. Returns in how many ms to look again. The timer of a
    machine uses ``only_ours``, because hundreds of machines look at the same moment.
    """
    found = await engine.read(due_work, engine.awake_since_ms, only_ours=only_ours)
    if found.agents:
        await act(engine, agent_loss.lose_silent_agent, found.agents)
        # An agent that is lost now may have excused the silence of a mission, on any machine.
        found = await engine.read(due_work, engine.awake_since_ms)
    await act(engine, state.begin_episode, found.missions)
    await act(engine, state.mark_unconfirmed, found.recoveries)
    await act(engine, on_timer, found.runs)
    return found.look_again_ms


async def act(engine: Engine, rule: Callable[[Tx, Context, T], Any], on: Iterable[T]) -> None:
    """Run a rule on each; a failing one is logged and does not stop the others."""
    for each in on:
        try:
            await engine.write(rule, each)
        except FleetError as error:
            log.warning("%s of %s is postponed: %s", rule.__name__, each, error.message)
        except Exception:
            # A bug with one mission must not stop the watch over the others.
            log.exception("%s of %s failed", rule.__name__, each)


async def process_ended(engine: Engine, process: WatchProcess) -> None:
    """Lose an agent; missions that were not silent because of it may be silent now."""
    await engine.write(agent_loss.process_ended, process)
    await scan(engine)
