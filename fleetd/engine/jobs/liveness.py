"""Acting on what comes due by itself: silence, loss, recoveries nobody confirmed, beats."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ...domain.core.context import Caller, Context
from ...domain.core.tx import Tx
from ...domain.liveness.agent_loss import AgentEnded, AgentUnheard
from ...domain.liveness.due import DueGet
from ...domain.liveness.episodes import EpisodeBegin
from ...domain.recovery.state import RecoveryDoubt
from ...domain.snapshots.heartbeat import beat
from ...protocol.errors import FleetError
from ...protocol.records import Record
from ...protocol.request import Mutation
from ..engine import Engine, operation

log = logging.getLogger("fleetd")


class Looked(Record, frozen=True, kw_only=True):
    """In how many ms to look again."""

    look_again_ms: int


class ActivityScan(Mutation[Looked], frozen=True):
    """Look for what has come due and act on it; not on the wire."""


class ProcessEnded(Mutation[Looked], frozen=True):
    """Lose the agent whose process has ended, and see what that means; not on the wire."""

    agent_id: str
    pid: int
    started: str | None


@operation
async def scan(engine: Engine, request: ActivityScan, caller: Caller) -> Looked:
    """Act on each thing that is due in a transaction of its own.

    One that cannot be dealt with must not keep the others waiting.
    """
    look = DueGet(engine.awake_since_ms)
    due = await engine.execute(look)
    if due.agents:
        await act(engine, map(AgentUnheard, due.agents))
        # A mission may have been excused by an agent that is lost now.
        due = await engine.execute(look)
    await act(engine, map(EpisodeBegin, due.missions))
    await act(engine, map(RecoveryDoubt, due.recoveries))
    await act(engine, (partial(beat, run_id=run_id) for run_id in due.runs))
    return Looked(look_again_ms=due.look_again_ms)


async def act(
    engine: Engine, actions: Iterable[Mutation[Any] | Callable[[Tx, Context], Any]]
) -> None:
    """Execute each action; one that fails is told in the log and keeps no other from its turn."""
    for action in actions:
        try:
            if isinstance(action, Mutation):
                await engine.execute(action)
            else:
                await engine.write(action)
        except FleetError as error:
            log.warning("%s has to wait: %s", action, error.message)
        except Exception:
            # A bug met with one mission is no reason to stop watching over the others.
            log.exception("%s failed", action)


@operation
async def process_ended(engine: Engine, request: ProcessEnded, caller: Caller) -> Looked:
    """Lose an agent; whoever was not silent because of it may be so now."""
    await engine.execute(AgentEnded(request.agent_id, request.pid, request.started))
    return await scan(engine, ActivityScan(), caller)
