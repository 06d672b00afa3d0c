"""One machine among those that share a store: it tells that it is here, and misses the others."""

import logging
import os

from .. import processes
from ..domain.context import Caller
from ..domain.cut_off import AgentBack, AgentCutOff, CutOffGet, FoundDead
from ..domain.machines import MachineBeat, MachineLeave, MachineLose, MissingGet, TwinGet
from ..domain.takeover import SurroundingsGet
from ..domain.tx import WatchProcess
from ..domain.upkeep import Done
from ..engine import Engine, operation
from ..store import StoreUnready
from ..store.machine_id import NAME as ID_FILE
from ..wire.base import Mutation
from ..wire.errors import FleetError
from ..wire.times import iso
from .watching import ActivityScan, act

log = logging.getLogger("fleetd")


class KeepInTouch(Mutation[Done], frozen=True):
    """Tell that this machine is here, and look for those that are missing; not on the wire.

    ``anew``: this machine was out of touch until now, and must look for its own agents first.
    """

    anew: bool = False


@operation
async def keep_in_touch(engine: Engine, request: KeepInTouch, caller: Caller) -> Done:
    """Beat, then act on each thing that is missing in a transaction of its own."""
    beaten = await engine.execute(MachineBeat(host_name(), iso(engine.started_ms)))
    if request.anew or beaten.was_lost:
        await catch_up(engine)
    missing = await engine.execute(MissingGet())
    if missing.machines:
        await act(engine, map(MachineLose, missing.machines))
        missing = await engine.execute(MissingGet())
    if missing.agents:
        await act(engine, map(AgentCutOff, missing.agents))
        # A mission may have been excused by an agent that is lost now.
        await engine.perform(ActivityScan(), caller)
    return Done(done=bool(missing.agents))


def host_name() -> str:
    """Return what people call this computer."""
    return os.uname().nodename


async def refuse_twin(engine: Engine) -> None:
    """Make sure that nobody else goes by this machine's id, before anything is done in its name.

    So it is where several computers have one home directory. Each would count the agents of the
    others as dead, for it looks for their processes in vain. Raises StoreUnready.
    """
    name = (await engine.execute(TwinGet(host_name()))).name
    if name is not None:
        raise StoreUnready(
            f"{name} was heard of just now under the id of this machine ({engine.machine})."
            " Computers that share a home directory need a data directory each (FLEET_DB_PATH"
            f" says where); a copy of another machine needs an id of its own: remove {ID_FILE} from"
            " its data directory."
        )


async def catch_up(engine: Engine) -> None:
    """Look at the processes of this machine's agents, after nobody could tell of them for a while.

    Those that live are watched, also those that counted as lost meanwhile, unless others went on
    with their work; of those that ended the watcher tells.
    """
    known = await engine.execute(SurroundingsGet())
    for each in known.processes:
        engine.watcher.post(WatchProcess(each.agent_id, each.pid, each.started))
    lost = (await engine.execute(CutOffGet())).processes
    living = [each for each in lost if processes.same(each.pid, each.started)]
    await act(engine, (AgentBack(each.agent_id, each.pid, each.started) for each in living))
    if dead := [each.agent_id for each in lost if each not in living]:
        await act(engine, [FoundDead(dead)])


async def say_goodbye(engine: Engine) -> None:
    """Tell the other machines, if there can be any, that this one leaves in good order."""
    if engine.machine:
        try:
            await engine.execute(MachineLeave())
        except FleetError as error:
            log.warning("The other machines do not know that this one leaves: %s", error.message)
