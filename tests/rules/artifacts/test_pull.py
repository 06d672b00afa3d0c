"""The files of a mission's checkpoints are written on a machine that keeps none of them."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from fleetd.domain.artifacts.inventory import content
from fleetd.domain.core.context import BatchSizes
from fleetd.engine.engine import Engine
from fleetd.engine.files.reconcile import collect_garbage, reconcile
from fleetd.host import progress
from fleetd.protocol.errors import NotFound, Storage, Unavailable
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointPull,
    PulledCheckpoints,
)
from fleetd.protocol.requests.mission import MissionCancel, MissionDelete
from fleetd.protocol.requests.system import SystemDoctor, SystemForget
from tests.support.fleet import Clock, Fleet, opened


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """Two machines, each with an engine of its own on one database."""
    clock, database = Clock(), tmp_path / "shared.db"
    async with AsyncExitStack() as stack:
        a, b = [
            await stack.enter_async_context(
                opened(tmp_path / name, clock=clock, machine=name, database=database)
            )
            for name in ("machine-a", "machine-b")
        ]
        yield a, b


def pulled_to(fleet: Fleet, mission: Mission) -> Path:
    return fleet.checkpoints / ".pulled" / mission.id


async def pull(fleet: Fleet, mission: Mission) -> PulledCheckpoints:
    return await fleet.do(CheckpointPull(mission.id))


async def test_the_same_bytes_lie_under_the_same_names(pair: tuple[Fleet, Fleet]) -> None:
    a, b = pair
    mission = await a.mission()
    first, second = await a.checkpoint(mission), await b.checkpoint(mission)
    third = await a.checkpoint(mission)
    there = await pull(b, mission)
    place = pulled_to(b, mission)
    originals = [a.file_of(first), b.file_of(second), a.file_of(third)]
    assert {path.name: path.read_bytes() for path in place.iterdir() if not path.is_symlink()} == {
        path.name: path.read_bytes() for path in originals
    }
    assert os.readlink(place / "latest.json") == f"{third.id}.json"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert (modes, stat.S_IMODE(place.stat().st_mode)) == ({0o600}, 0o700)
    assert there == PulledCheckpoints(
        mission_id=mission.id,
        directory=str(place),
        written=3,
        bytes=sum(path.stat().st_size for path in originals),
    )


async def test_a_pull_writes_what_is_new_and_removes_what_is_gone(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    first, second = await a.checkpoint(mission), await a.checkpoint(mission)
    await pull(b, mission)
    await a.do(CheckpointDelete(second.id))
    third = await a.checkpoint(mission)
    await a.do(CheckpointDelete(third.id))
    again = await pull(b, mission)
    assert (again.written, again.unchanged, again.removed, again.bytes) == (0, 1, 1, 0)
    place = pulled_to(b, mission)
    assert {path.name for path in place.iterdir()} == {f"{first.id}.json", "latest.json"}
    assert os.readlink(place / "latest.json") == f"{first.id}.json"
    (place / f"{first.id}.json").write_bytes(b"changed")
    mended = await pull(b, mission)
    assert (mended.written, mended.unchanged) == (1, 0)
    assert (place / f"{first.id}.json").read_bytes() == a.file_of(first).read_bytes()
    await a.do(CheckpointDelete(first.id))
    emptied = await pull(b, mission)
    assert (emptied.written, emptied.removed) == (0, 1)
    assert not place.exists()


async def test_a_store_of_one_machine_is_pulled_from_too(fleet: Fleet) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    assert (await pull(fleet, mission)).written == 1
    copy = pulled_to(fleet, mission) / f"{taken.id}.json"
    assert copy.read_bytes() == fleet.file_of(taken).read_bytes()
    found = (await fleet.do(SystemDoctor())).findings
    assert {each.check: each.ok for each in found}["permissions"]
    assert {each.detail for each in found if each.check == "checkpoints"} == {
        "1 intact in both stores"
    }


async def test_nothing_comes_back_from_what_was_pulled(pair: tuple[Fleet, Fleet]) -> None:
    a, b = pair
    mission = await a.mission()
    taken = await a.checkpoint(mission)
    await pull(b, mission)
    await a.do(CheckpointDelete(taken.id))
    await a.settle()
    await reconcile(b.engine)
    assert await b.checkpoint_ids(mission) == []
    assert (pulled_to(b, mission) / f"{taken.id}.json").is_file()


async def test_a_damaged_row_is_named_and_what_was_pulled_of_it_stays(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    first, second = await a.checkpoint(mission), await a.checkpoint(mission)
    await pull(b, mission)
    a.sql("UPDATE checkpoints SET sorties_json = '[]' WHERE id = :id", id=second.id)
    again = await pull(b, mission)
    (warning,) = again.warnings
    assert second.id in warning
    assert (again.written, again.unchanged, again.removed) == (0, 1, 0)
    place = pulled_to(b, mission)
    assert (place / f"{second.id}.json").read_bytes() == a.file_of(second).read_bytes()
    assert os.readlink(place / "latest.json") == f"{first.id}.json"


async def test_what_undoes_something_is_pulled_and_is_not_the_latest(fleet: Fleet) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    await fleet.complete(mission, 0)
    undo = (await fleet.restore(taken, rewind=True)).undo_checkpoint_id
    await pull(fleet, mission)
    place = pulled_to(fleet, mission)
    assert (place / f"{undo}.json").is_file()
    assert os.readlink(place / "latest.json") != f"{undo}.json"


@pytest.mark.parametrize("batches", [BatchSizes(pulled=2)])
async def test_more_than_one_batch_of_names_is_pulled(fleet: Fleet) -> None:
    mission = await fleet.mission()
    taken = {(await fleet.checkpoint(mission)).id for _ in range(5)}
    with progress.tracked() as told:
        assert (await pull(fleet, mission)).written == 5
    assert (told.count.what, told.count.done) == ("checkpoints", 5)
    assert {path.stem for path in pulled_to(fleet, mission).glob("chk-*.json")} == taken


async def test_forgetting_takes_what_was_pulled_here_and_elsewhere(
    pair: tuple[Fleet, Fleet],
) -> None:
    a, b = pair
    mission = await a.mission()
    await a.checkpoint(mission)
    for fleet in pair:
        await pull(fleet, mission)
    preview = await a.do(SystemForget(mission_id=mission.id, dry_run=True))
    forgotten = await a.do(SystemForget(mission_id=mission.id))
    assert preview.files == forgotten.files == 4  # each with its latest.json
    assert not pulled_to(a, mission).exists()
    assert pulled_to(b, mission).exists()
    await collect_garbage(b.engine)
    assert not pulled_to(b, mission).exists()


async def test_deleting_a_mission_takes_what_was_pulled_here(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.checkpoint(mission)
    await pull(fleet, mission)
    await fleet.do(MissionCancel(mission.id, "Over"))
    await fleet.do(MissionDelete(mission.id))
    assert fleet.files() == {}


async def test_what_is_forgotten_meanwhile_is_not_written(
    pair: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    mission = await a.mission()
    for _ in range(2):
        await a.checkpoint(mission)
    real = Engine.read

    async def read(engine: Engine, rule: object, *args: object) -> object:
        if rule is content:
            monkeypatch.setattr(Engine, "read", real)
            await a.do(SystemForget(mission_id=mission.id))
        return await real(engine, rule, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Engine, "read", read)
    with pytest.raises(NotFound):
        await pull(b, mission)
    assert not pulled_to(b, mission).exists()


async def test_a_file_that_cannot_be_written_is_named(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.checkpoint(mission)
    obstacle = pulled_to(fleet, mission)
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("in the way")
    with pytest.raises(Storage) as refused:
        await pull(fleet, mission)
    assert mission.id in refused.value.message
    obstacle.unlink()
    assert (await pull(fleet, mission)).written == 1


async def test_a_mission_that_nobody_knows_is_not_pulled(fleet: Fleet) -> None:
    with pytest.raises(NotFound):
        await fleet.do(CheckpointPull("msn-00000000"))


async def test_an_ending_daemon_leaves_whole_files(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.checkpoint(mission)
    fleet.engine.closing = True
    with pytest.raises(Unavailable):
        await pull(fleet, mission)
    fleet.engine.closing = False
    assert (await pull(fleet, mission)).written == 1


async def test_what_a_crash_left_half_written_is_cleared_away(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.checkpoint(mission)
    await pull(fleet, mission)
    left = pulled_to(fleet, mission) / ".tmp-0123456789abcdef"
    left.write_bytes(b"half")
    await pull(fleet, mission)
    assert not left.exists()


async def test_two_pulls_at_a_time_are_in_nobodys_way(fleet: Fleet) -> None:
    mission = await fleet.mission()
    for _ in range(3):
        await fleet.checkpoint(mission)
    found: list[PulledCheckpoints] = []

    async def once() -> None:
        found.append(await pull(fleet, mission))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(once)
        nursery.start_soon(once)
    assert [each.written + each.unchanged for each in found] == [3, 3]
    assert sum(each.written for each in found) == 3
