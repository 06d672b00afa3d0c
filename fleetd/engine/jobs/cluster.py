"""Cluster: this machine among those of a shared store.

It refuses to start under the id of another one, sends heartbeats, detects lost machines, checks its
agents' processes when it returns, and says when it leaves.
"""

import logging
import os

import trio

from ...domain.agents import agent_loss
from ...domain.agents.agent_loss import living_processes
from ...domain.cluster import membership
from ...domain.cluster.membership import UNBROKEN_MS, HeartbeatResult, IdHolder
from ...host import processes
from ...protocol.errors import FleetError
from ...protocol.timestamps import iso
from ...store.api import StoreUnready
from ...store.machine_identity import ID_FILE, DaemonInstance
from ..engine import Engine
from .liveness import act, scan

log = logging.getLogger("fleetd")
_LOOK_S = 1.0


async def heartbeat(engine: Engine, *, reconnected: bool = False, thorough: bool = True) -> None:
    """Send this machine's heartbeat, then act on each machine and agent that is missing.

    ``reconnected``: this machine had no connection before, and must look for its own agents first.
    ``thorough`` also looks for machines of the same name, and at machines that are already lost:
    the daemon that noticed a loss may have ended before it noticed the loss of the agents.
    Raises StoreUnready once another daemon sends heartbeats under this machine's id.
    """
    beaten = await _beat(engine, thorough=thorough)
    if beaten.overtaken_by is not None:
        raise _id_in_use(engine, beaten.overtaken_by)
    if reconnected or beaten.was_lost:
        await check_processes(engine)
    if not (beaten.any_missing or thorough):
        return
    missing = await engine.read(membership.find_lost)
    if missing.machines:
        await act(engine, membership.lose_machine, missing.machines)
        missing = await engine.read(membership.find_lost)
    if missing.agents:
        await act(engine, agent_loss.fail_over, missing.agents)
        # An agent that is lost now may have excused the silence of a mission.
        await scan(engine)


def host_name() -> str:
    """Return the host name of this computer."""
    return os.uname().nodename


def machine_name(engine: Engine) -> str:
    """Return the name of this machine for people."""
    return engine.config.machine_name or host_name()


async def _beat(engine: Engine, *, thorough: bool) -> HeartbeatResult:
    own, name, nonce = engine.instance, machine_name(engine), _nonce(engine)
    renewed = await engine.write(membership.renew, name, nonce, thorough=thorough)
    if renewed is not None:
        return renewed
    return await engine.write(
        membership.heartbeat,
        name,
        iso(engine.started_ms),
        nonce,
        boot_id=own.boot_id if own else "",
        earlier=tuple(each.nonce for each in own.earlier) if own else (),
    )


def _nonce(engine: Engine) -> str:
    """Return what identifies this start of the daemon; '' in a store of its own."""
    return engine.instance.nonce if engine.instance else ""


async def refuse_duplicate_id(engine: Engine) -> None:
    """Make sure that no other daemon uses this machine's id, before anything is done under it.

    Computers share an id if they share a home directory, or if one is a copy of another. Each would
    count the agents of the others as dead, because it cannot find their processes. Raises
    StoreUnready.
    """
    own = engine.instance
    if own is not None:
        await engine.outbox.in_thread(lambda: own.begin(processes.started(os.getpid())))
    found = await engine.read(membership.id_holder)
    if found.name is not None and await _is_duplicate(engine, own, found):
        raise _id_in_use(engine, found.name)


async def _is_duplicate(engine: Engine, own: DaemonInstance | None, found: IdHolder) -> bool:
    """Return whether the latest holder of the id is another daemon, not this one's predecessor."""
    if own is None or not found.nonce:
        return not _is_called(engine, found)
    if found.nonce == own.nonce:
        return False
    before = next((each for each in own.earlier if each.nonce == found.nonce), None)
    if before is None:
        return True
    if found.boot_id == own.boot_id:
        # The predecessor in this directory is dead: otherwise it would hold its lock.
        return before.pid != os.getpid() and processes.same(before.pid, before.started)
    return not _is_called(engine, found) or await _beats_again(engine, found)


def _is_called(engine: Engine, found: IdHolder) -> bool:
    """Return whether the latest holder of the id has this machine's name."""
    name = machine_name(engine)
    return found.name in (name, membership.with_id(name, engine.machine))


async def _beats_again(engine: Engine, found: IdHolder) -> bool:
    """Wait until it is clear whether a holder of the id from another boot is alive.

    This computer may have been rebooted, or the running one may have been copied.
    """
    log.info("Waiting for a heartbeat of %s under this machine's id", found.name)
    for _ in range(round(UNBROKEN_MS / 1_000 / _LOOK_S)):
        await trio.sleep(_LOOK_S)
        now = await engine.read(membership.id_holder)
        if now.name is None:
            break
        if now != found:
            return True
    return False


def _id_in_use(engine: Engine, name: str) -> StoreUnready:
    return StoreUnready(
        f"Another fleetd, on {name}, uses the id of this machine"
        f" ({engine.machine}). Computers with a shared home directory need separate data"
        " directories (FLEET_DB_PATH). A copy of another machine needs its own id: remove"
        f" {ID_FILE} from its data directory, and start its fleetd again."
    )


async def check_processes(engine: Engine) -> None:
    """Check the processes of this machine's agents, after a time without reports about them.

    Living processes are watched, also those that counted as lost meanwhile, unless other agents
    continued their work. The watcher reports the processes that ended.
    """
    for process in await engine.read(living_processes):
        engine.process_watcher.post(process)
    lost = await engine.read(agent_loss.lost_processes)
    living = [each for each in lost if processes.same(each.pid, each.started)]
    await act(engine, agent_loss.rejoin, living)
    if dead := [each.agent_id for each in lost if each not in living]:
        await act(engine, agent_loss.shorten_leases, [dead])


async def leave_cluster(engine: Engine) -> None:
    """Tell the other machines, if there can be any, that this one stops in an orderly way.

    Its waits for locks end as well: their clients are gone. Only that may need a turn.
    """
    if not engine.machine:
        return
    try:
        await engine.write(membership.leave, _nonce(engine))
    except FleetError as error:
        log.warning("The other machines do not see that this one left: %s", error.message)
        return
    try:
        if await engine.read(membership.has_lock_waits):
            await engine.write(membership.delete_lock_waits)
    except FleetError as error:
        log.warning("The waits for locks here were not deleted: %s", error.message)
