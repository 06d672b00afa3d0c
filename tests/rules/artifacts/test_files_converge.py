"""Whatever several machines do, off and on, each has the files of its own records and no others."""

import random
from pathlib import Path

import pytest
import trio

from fleetd.engine.files.reconcile import collect_garbage
from fleetd.protocol.errors import NotFound
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointPrune,
    CheckpointPull,
    CheckpointVerify,
)
from fleetd.protocol.requests.mission import MissionCancel, MissionDelete
from fleetd.protocol.requests.snapshot import SnapshotPrune, SnapshotRecord, SnapshotVerify
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import MINUTE, Clock, Fleet, opened

NAMES = ("machine-a", "machine-b", "machine-c")
STEPS = 120


class SharingMachine:
    """One that is on: its engine lives in a task of its own, so that each can go before others."""

    def __init__(self, fleet: Fleet, off: trio.Event, done: trio.Event) -> None:
        self.fleet = fleet
        self._off, self._done = off, done

    async def end(self) -> None:
        self._off.set()
        await self._done.wait()


class SharingMachines:
    """Three machines on one store, some of them off, and somebody who does things on them."""

    def __init__(self, root: Path, seed: int, nursery: trio.Nursery) -> None:
        self._root = root
        self._chance = random.Random(seed)
        self._clock = Clock()
        self._nursery = nursery
        self._on: dict[str, SharingMachine] = {}
        self._missions: list[Mission] = []
        self.gone: set[str] = set()
        """Missions that were forgotten."""

    async def switch_on(self, name: str) -> Fleet:
        if name not in self._on:
            self._on[name] = await self._nursery.start(self._run, name)
        return self._on[name].fleet

    async def _run(self, name: str, task_status: trio.TaskStatus[SharingMachine]) -> None:
        off, done = trio.Event(), trio.Event()
        place, database = self._root / name, self._root / "shared.db"
        async with opened(place, clock=self._clock, machine=name, database=database) as fleet:
            task_status.started(SharingMachine(fleet, off, done))
            await off.wait()
        done.set()

    async def switch_off(self, name: str) -> None:
        if name in self._on:
            await self._on.pop(name).end()

    async def step(self) -> None:
        self._clock.pass_by(MINUTE)
        fleet = await self.switch_on(self._chance.choice(NAMES))
        if not self._missions or self._chance.random() < 0.1:
            self._missions.append(await fleet.mission(1))
        mission = self._chance.choice(self._missions)
        deed = self._chance.choice(
            [
                *(self._take, self._take, self._take, self._record, self._record),
                *(self._delete, self._prune, self._pull, self._look, self._off, self._off),
                *(self._forget, self._end),
            ]
        )
        try:
            await deed(fleet, mission)
        except NotFound:
            self._missions.remove(mission)

    async def _take(self, fleet: Fleet, mission: Mission) -> None:
        await fleet.checkpoint(mission)

    async def _record(self, fleet: Fleet, mission: Mission) -> None:
        agent = f"worker-{self._chance.randrange(2)}"
        await fleet.agents(mission, agent)
        await fleet.do(SnapshotRecord(f"run-{self._chance.randrange(2)}", agent_id=agent))

    async def _delete(self, fleet: Fleet, mission: Mission) -> None:
        if ids := await fleet.checkpoint_ids(mission):
            await fleet.do(CheckpointDelete(self._chance.choice(ids)))

    async def _prune(self, fleet: Fleet, mission: Mission) -> None:
        await fleet.do(CheckpointPrune())
        await fleet.do(SnapshotPrune())

    async def _pull(self, fleet: Fleet, mission: Mission) -> None:
        await fleet.do(CheckpointPull(mission.id))

    async def _forget(self, fleet: Fleet, mission: Mission) -> None:
        await fleet.do(SystemForget(mission_id=mission.id))
        self.gone.add(mission.id)
        self._missions.remove(mission)

    async def _end(self, fleet: Fleet, mission: Mission) -> None:
        await fleet.do(MissionCancel(mission.id, "Over"))
        await fleet.checkpoint(mission)
        await fleet.do(MissionDelete(mission.id))
        self._missions.remove(mission)

    async def _off(self, fleet: Fleet, mission: Mission) -> None:
        await self.switch_off(self._chance.choice(NAMES))

    async def _look(self, fleet: Fleet, mission: Mission) -> None:
        await look(fleet)


async def look(fleet: Fleet) -> None:
    await fleet.engine.outbox.post_pending()
    await collect_garbage(fleet.engine)
    await fleet.settle()


def kept(fleet: Fleet) -> set[str]:
    """Return the records whose files lie on a machine."""
    names = {Path(name) for name in fleet.files() if not name.startswith(".pulled")}
    return {path.stem for path in names if path.name != "latest.json"}


@pytest.mark.parametrize("seed", range(1, 4))
async def test_files_and_rows_agree_once_all_machines_have_looked(
    tmp_path: Path, nursery: trio.Nursery, seed: int
) -> None:
    machines = SharingMachines(tmp_path, seed, nursery)
    for _ in range(STEPS):
        await machines.step()
    fleets = [await machines.switch_on(name) for name in NAMES]
    for fleet in fleets:
        await look(fleet)
    rows = fleets[0].sql(
        "SELECT id, machine, deleted_at FROM checkpoints"
        " UNION ALL SELECT id, machine, deleted_at FROM snapshots"
    )
    assert [row["id"] for row in rows if row["deleted_at"]] == []
    for name, fleet in zip(NAMES, fleets, strict=True):
        assert kept(fleet) == {row["id"] for row in rows if row["machine"] == name}
        assert not [path for path in fleet.files() for gone in machines.gone if gone in path]
        assert (await fleet.do(CheckpointVerify())).ok
        assert (await fleet.do(SnapshotVerify())).ok
    for name in NAMES:
        await machines.switch_off(name)
