"""Machines that share a store: who is here, who left, who is lost, and what becomes of agents."""

from contextlib import AsyncExitStack

import msgspec
import pytest

from fleetd import processes
from fleetd.domain.cut_off import AgentBack, AgentCutOff, CutOffGet
from fleetd.domain.losing import AgentEnded, AgentUnheard
from fleetd.domain.lock_queue import LockEnqueue, LockPoll
from fleetd.domain.machines import (
    BEAT_MS,
    LEFT_MS,
    LOST_MS,
    UNBROKEN_MS,
    MachineBeat,
    MachineLeave,
    MachineLose,
    MissingGet,
)
from fleetd.domain.takeover import SurroundingsGet
from fleetd.domain.upkeep import StartUp
from fleetd.operations.machines import KeepInTouch
from fleetd.wire.errors import InvalidState, NotFound
from fleetd.wire.requests.agent import AgentGet, AgentHeartbeat, AgentRegister
from fleetd.wire.requests.event import EventAppend
from fleetd.wire.requests.lock import LockAcquire
from tests.fleet import MINUTE, SECOND, Clock, opened

NORTH, SOUTH = "0000000000000001", "0000000000000002"


@pytest.fixture
async def machines(tmp_path, nursery):
    """Two machines, each with an engine of its own on one database."""
    clock = Clock()
    database = tmp_path / "shared.db"
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                opened(tmp_path / name, clock=clock, machine=name, database=database)
            )
            for name in (NORTH, SOUTH)
        ]


async def beat(fleet, name=None):
    return await fleet.do(MachineBeat(name or f"host-{fleet.engine.machine[-1]}", fleet.clock.now))


async def touch(fleet):
    await fleet.do(KeepInTouch())


async def pass_by(ms, *fleets):
    """Let time pass in which only these machines are heard of."""
    clock = fleets[0].clock
    for _ in range(ms // BEAT_MS):
        clock.pass_by(BEAT_MS)
        for fleet in fleets:
            await touch(fleet)
    clock.pass_by(ms % BEAT_MS)


def standing(fleet):
    return {row["id"]: row["status"] for row in fleet.sql("SELECT id, status FROM machines")}


async def status(fleet, agent):
    return (await fleet.do(AgentGet(agent))).status


async def start(fleet, mission, agent, process):
    await fleet.do(AgentRegister(agent, "specialist", pid=process.pid, mission_id=mission.id))


async def test_it_works(machines):
    north, south = machines
    await beat(north)
    await beat(south)
    assert standing(north) == {NORTH: "here", SOUTH: "here"}
    await pass_by(LOST_MS, north)
    assert standing(north) == {NORTH: "here", SOUTH: "here"}
    await pass_by(BEAT_MS, north)
    assert standing(north) == {NORTH: "here", SOUTH: "lost"}
