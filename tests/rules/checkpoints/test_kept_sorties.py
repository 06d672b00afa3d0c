"""What is kept of a mission's sorties is what a fresh read finds, however they were written."""

import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.checkpoints.state import Sorties, capture
from fleetd.domain.core.context import Context
from fleetd.domain.core.ids import find
from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import FleetError
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.checkpoint import CheckpointGet, ErrorReport
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionDelete,
    MissionUpdate,
    NewSortie,
)
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieFail,
    SortieRemove,
    SortieUnblock,
)
from fleetd.store.sqlite import kept_sorties
from tests.support.fleet import MINUTE, Fleet, opened


class Looked:
    """Compares what is kept with a fresh read, each time that somebody asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept = self.made = 0
        ask = Tx.of_sorties

        def checked(tx: Tx, mission_id: str, make: Callable[[], Sorties]) -> Sorties:
            made: list[Sorties] = []

            def noted() -> Sorties:
                made.append(make())
                return made[0]

            value = ask(tx, mission_id, noted)
            self.made += len(made)
            self.kept += not made
            fresh = make()
            assert value.states == fresh.states
            assert (value.canonical, value.material) == (fresh.canonical, fresh.material)
            return value

        monkeypatch.setattr(Tx, "of_sorties", checked)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(monkeypatch)


def ask(tx: Tx, ctx: Context, mission_id: str) -> None:
    capture(tx, ctx, find(tx, "mission", mission_id))


def refused(tx: Tx, ctx: Context, mission_id: str) -> None:
    """Write sorties, ask for them, and have all of it rolled back."""
    tx.run("UPDATE sorties SET progress = 7 WHERE mission_id = :id", id=mission_id)
    ask(tx, ctx, mission_id)
    raise FleetError("no")


def rehearsed(tx: Tx, ctx: Context, mission_id: str) -> None:
    """Write sorties, ask for them, and roll back to a savepoint; then ask again."""
    ask(tx, ctx, mission_id)
    with tx.rehearsal():
        tx.run("UPDATE sorties SET progress = 8 WHERE mission_id = :id", id=mission_id)
        ask(tx, ctx, mission_id)
    ask(tx, ctx, mission_id)


def moved(tx: Tx, ctx: Context, mission_id: str, other: str) -> None:
    tx.run(
        "UPDATE sorties SET mission_id = :other, position = position + 100"
        " WHERE id = (SELECT min(id) FROM sorties WHERE mission_id = :id)",
        id=mission_id,
        other=other,
    )


def a_plan(fleet: Fleet, chance: random.Random) -> HookDeliver:
    words = ("pending", "in_progress", "completed")
    todos = [
        {"content": f"P{n}", "status": chance.choice(words), "activeForm": "x"} for n in range(3)
    ]
    payload = {
        "session_id": "s1",
        "cwd": str(fleet.project),
        "hook_event_name": "PostToolUse",
        "tool_name": "TodoWrite",
        "tool_input": {"todos": todos},
        "tool_response": {},
    }
    return HookDeliver(
        harness="claude",
        payload=json.dumps(payload),
        delivery_id=f"delivery-{chance.randrange(10**9)}",
    )


async def happen(fleet: Fleet, chance: random.Random, missions: list[Mission]) -> None:
    """Write sorties in one of the ways there are, or none; what is refused is as good."""
    mission, other = chance.sample(missions, 2)
    sortie = chance.choice((await fleet.sorties(mission)) or await fleet.sorties(other))
    agent = f"spec-{chance.randrange(2)}"
    do, engine = fleet.do, fleet.engine
    ways: list[Callable[[], Awaitable[Any]]] = [
        lambda: fleet.work(mission, 0, agent, chance.randrange(100)),
        lambda: do(SortieAssign(sortie.id, agent)),
        lambda: do(SortieBlock(sortie.id, "why")),
        lambda: do(SortieUnblock(sortie.id)),
        lambda: do(SortieFail(sortie.id, "why")),
        lambda: fleet.complete(mission, 0, 1),
        lambda: do(SortieRemove(sortie.id)),
        lambda: do(MissionUpdate(mission.id, sorties=[NewSortie("New"), NewSortie("Newer")])),
        lambda: do(a_plan(fleet, chance)),
        lambda: fleet.restore(mission_id=mission.id, rewind=True),
        lambda: fleet.restore(mission_id=mission.id, dry_run=True),
        lambda: do(ErrorReport(agent, "exception", "E", str(chance.random()), mission.id)),
        lambda: engine.write(refused, mission.id),
        lambda: engine.write(rehearsed, mission.id),
        lambda: engine.write(moved, mission.id, other.id),
        lambda: engine.store.scrub(),
    ]
    with contextlib.suppress(FleetError, IndexError):
        await chance.choice(ways)()


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_kept_is_what_a_fresh_read_finds(
    tmp_path: Path, looked: Looked, seed: int
) -> None:
    chance = random.Random(seed)
    async with opened(tmp_path) as fleet:
        missions = [await fleet.mission(title=f"M{n}") for n in range(3)]
        await fleet.agents(missions[0], "spec-0", "spec-1")
        for _ in range(25):
            fleet.clock.pass_by(MINUTE)
            await happen(fleet, chance, missions)
            for _ in range(2):
                for mission in missions:
                    taken = await fleet.checkpoint(mission, wait_for_backup=False)
                    kept = await fleet.do(CheckpointGet(taken.id))
                    assert kept.sorties == taken.sorties
        await fleet.do(MissionCancel(missions[2].id, "enough"))
        await fleet.do(MissionDelete(missions[2].id))
        with pytest.raises(FleetError):
            await fleet.checkpoint(missions[2])
    assert looked.made > 15


@pytest.mark.sqlite_only("a store that others write to keeps nothing")
async def test_nothing_is_read_again_until_a_sortie_is_written(
    fleet: Fleet, looked: Looked
) -> None:
    mission, other = await fleet.mission(), await fleet.mission(title="Other")
    await fleet.agents(mission, "spec-1")
    for each in (mission, other):
        await fleet.checkpoint(each)
    before = looked.made
    for _ in range(3):
        await fleet.checkpoint(mission)
    assert (looked.made, looked.kept) == (before, 3)
    await fleet.work(mission, 0, "spec-1")
    await fleet.checkpoint(other)
    assert looked.made == before
    await fleet.checkpoint(mission)
    assert looked.made == before + 1


@pytest.mark.sqlite_only("a store that others write to keeps nothing")
async def test_a_scrub_does_not_keep_what_is_written_after_it_from_being_seen(
    fleet: Fleet, looked: Looked
) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    await fleet.checkpoint(mission)
    await fleet.engine.store.scrub()
    await fleet.checkpoint(mission)
    before = looked.made
    await fleet.work(mission, 0, "spec-1", 70)
    taken = await fleet.checkpoint(mission)
    assert taken.sorties[0].progress == 70
    assert looked.made == before + 1


@pytest.mark.sqlite_only("writes behind the engine's back, into SQLite's file")
async def test_what_another_connection_writes_is_seen(fleet: Fleet, looked: Looked) -> None:
    mission = await fleet.mission()
    await fleet.checkpoint(mission)
    fleet.sql("UPDATE sorties SET title = 'Renamed'")
    taken = await fleet.checkpoint(mission)
    assert {sortie.title for sortie in taken.sorties} == {"Renamed"}


@pytest.mark.sqlite_only("a store that others write to keeps nothing")
@pytest.mark.parametrize(("missions", "room"), [(2, 4_000_000), (64, 9_000)])
async def test_little_is_kept(
    fleet: Fleet, looked: Looked, monkeypatch: pytest.MonkeyPatch, missions: int, room: int
) -> None:
    monkeypatch.setattr(kept_sorties, "MOST_MISSIONS", missions)
    monkeypatch.setattr(kept_sorties, "MOST_BYTES", room)
    made = [await fleet.mission(title=f"M{n}") for n in range(4)]
    for mission in made:
        await fleet.checkpoint(mission)
    before = looked.made
    await fleet.checkpoint(made[3])
    assert looked.made == before
    await fleet.checkpoint(made[0])
    assert looked.made == before + 1


async def test_a_taker_may_change_its_list(fleet: Fleet, looked: Looked) -> None:
    mission = await fleet.mission()
    (await fleet.checkpoint(mission, wait_for_backup=False)).sorties.clear()
    assert len((await fleet.checkpoint(mission, wait_for_backup=False)).sorties) == 4
