"""A repeated key returns the first result and changes nothing, also where files are involved."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from fleetd.engine.engine import DAEMON
from fleetd.engine.lifecycle import open_engine
from fleetd.protocol.errors import InvalidParams, LockConflict
from fleetd.protocol.request import Mutation
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointPrune,
)
from fleetd.protocol.requests.lock import LockAcquire, LockRelease
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionDelete,
    MissionList,
)
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.system import SystemBackup, SystemForget
from tests.support.fleet import DAY, Fleet, settings


async def test_a_checkpoint_is_taken_once(fleet: Fleet) -> None:
    mission = await fleet.mission()
    request = CheckpointCreate(mission.id, trigger_details="note", idempotency_key="k")
    first = await fleet.do(request)
    fleet.clock.pass_by(60_000)
    await fleet.complete(mission, 0)
    again = await fleet.do(request)
    assert (again.id, again.timestamp, again.sorties) == (first.id, first.timestamp, first.sorties)
    assert await fleet.checkpoint_ids(mission, "manual") == [first.id]


async def test_a_checkpoint_by_directory_is_taken_once_also_when_the_mission_ended(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission()
    request = CheckpointCreate(cwd=str(fleet.project), idempotency_key="k")
    first = await fleet.do(request)
    await fleet.do(MissionCancel(mission.id, "done with it"))
    assert (await fleet.do(request)).id == first.id


async def test_a_deleted_mission_was_deleted_also_the_second_time(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.checkpoint(mission)
    await fleet.do(MissionCancel(mission.id, "done with it"))
    request = MissionDelete(mission.id, idempotency_key="k")
    assert (await fleet.do(request)).deleted
    assert (await fleet.do(request)).deleted


async def test_a_deleted_checkpoint_was_deleted_also_the_second_time(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    request = CheckpointDelete(taken.id, idempotency_key="k")
    assert (await fleet.do(request)).deleted
    assert (await fleet.do(request)).deleted


async def test_pruning_counts_the_same_the_second_time(fleet: Fleet) -> None:
    mission = await fleet.mission()
    for _ in range(4):
        await fleet.checkpoint(mission)
    fleet.clock.pass_by(1)
    request = CheckpointPrune(older_than_days=0, keep_per_mission=1, idempotency_key="k")
    first = await fleet.do(request)
    assert (first.deleted, await fleet.do(request)) == (3, first)


@pytest.mark.sqlite_only("a server makes its own copies")
async def test_a_copy_is_written_once(fleet: Fleet, tmp_path: Path) -> None:
    request = SystemBackup(str(tmp_path / "copy.db"), idempotency_key="k")
    first = await fleet.do(request)
    (tmp_path / "copy.db").unlink()
    assert await fleet.do(request) == first
    assert not (tmp_path / "copy.db").exists()


async def test_a_recovery_is_done_once(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.work(mission, 0, "specialist-1")
    await fleet.checkpoint(mission)
    request = RecoveryRestore(mission_id=mission.id, idempotency_key="k")
    first = await fleet.do(request)
    assert await fleet.do(request) == first
    assert len(await fleet.events(mission, "fleet_recovered")) == 1


@pytest.mark.parametrize("wait_ms", [0, 1_000])
async def test_a_lock_that_was_released_since_is_not_taken_again(
    fleet: Fleet, wait_ms: int
) -> None:
    mission = await fleet.mission()
    request = LockAcquire(
        "specialist-1", "a.py", mission_id=mission.id, wait_ms=wait_ms, idempotency_key="k"
    )
    first = await fleet.do(request)
    await fleet.do(LockRelease(first.id, "specialist-1"))
    assert (await fleet.do(request)).id == first.id
    assert await fleet.locks() == []


async def test_an_agent_whose_process_ended_since_was_registered_all_the_same(
    fleet: Fleet, mortal: Callable[[], subprocess.Popen[bytes]]
) -> None:
    process = mortal()
    request = AgentRegister("specialist-1", "specialist", pid=process.pid, idempotency_key="k")
    first = await fleet.do(request)
    process.kill()
    process.wait()
    assert await fleet.do(request) == first


async def test_an_error_is_not_kept(fleet: Fleet) -> None:
    mission = await fleet.mission()
    held = await fleet.lock(mission, "a.py", "specialist-1")
    request = LockAcquire("specialist-2", "a.py", mission_id=mission.id, idempotency_key="k")
    with pytest.raises(LockConflict):
        await fleet.do(request)
    await fleet.do(LockRelease(held.id, "specialist-1"))
    assert (await fleet.do(request)).held_by == "specialist-2"


async def test_a_key_belongs_to_its_parameters(fleet: Fleet) -> None:
    await fleet.do(MissionCreate("one", idempotency_key="k"))
    with pytest.raises(InvalidParams, match="used with other parameters"):
        await fleet.do(MissionCreate("two", idempotency_key="k"))
    assert (await fleet.do(MissionList())).total == 1


async def test_a_key_is_forgotten_after_a_day(fleet: Fleet) -> None:
    request = MissionCreate("one", idempotency_key="k")
    first = await fleet.do(request)
    fleet.clock.pass_by(DAY - 1)
    assert (await fleet.do(request)).id == first.id
    fleet.clock.pass_by(1)
    assert (await fleet.do(request)).id != first.id


@pytest.mark.parametrize(
    "kind",
    [
        "mission",
        pytest.param("copy", marks=pytest.mark.sqlite_only("a server makes its own copies")),
    ],
)
async def test_the_same_key_at_the_same_moment_does_it_once(tmp_path: Path, kind: str) -> None:
    def request() -> Mutation[object]:
        if kind == "mission":
            return MissionCreate("one", idempotency_key="k")  # type: ignore[return-value]
        return SystemBackup(str(tmp_path / "copy.db"), idempotency_key="k")  # type: ignore[return-value]

    results: list[object] = []
    async with open_engine(settings(tmp_path)) as engine:

        async def one() -> None:
            results.append(await engine.handle(request(), DAEMON))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(one)
    assert len(results) == 8
    assert all(result == results[0] for result in results)


async def _cancelled_during(fleet: Fleet, request: Mutation[Any], step: int) -> None:
    """Perform a request whose client goes after a number of steps."""

    async def perform() -> None:
        with scope:
            await fleet.do(request)

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(perform)
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        scope.cancel()


@pytest.mark.parametrize("forgotten", [True, False], ids=["forget", "delete"])
@pytest.mark.parametrize("step", range(2, 26, 4))
async def test_a_client_that_went_while_a_mission_goes_is_told_so_when_it_asks_again(
    fleet: Fleet, step: int, forgotten: bool
) -> None:
    mission = await fleet.mission()
    await fleet.checkpoint(mission)
    await fleet.do(MissionCancel(mission.id, "done with it"))
    request = SystemForget(mission_id=mission.id) if forgotten else MissionDelete(mission.id)
    keyed = msgspec.structs.replace(request, idempotency_key="k")
    await _cancelled_during(fleet, keyed, step)
    await fleet.do(keyed)
    assert (await fleet.do(MissionList())).missions == []


@pytest.mark.sqlite_only("a server makes its own copies")
async def test_a_client_that_went_while_a_copy_was_made_is_told_so_when_it_asks_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = SystemBackup(str(fleet.project / "copy.db"), idempotency_key="k")
    with trio.CancelScope() as scope:
        copy_to = fleet.engine.store.copy_to

        async def copied_and_gone(target: Path) -> int:
            size = await copy_to(target)
            scope.cancel()
            return size

        monkeypatch.setattr(fleet.engine.store, "copy_to", copied_and_gone)
        await fleet.do(request)
    monkeypatch.undo()
    assert (await fleet.do(request)).path == request.path
