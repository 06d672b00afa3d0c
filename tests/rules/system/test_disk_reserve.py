"""Who may use the last room on a full disk, and what is done for whoever does."""

from typing import Any

import pytest

from fleetd.domain.core.idempotency import drop_expired
from fleetd.domain.core.registry import may_use_reserve
from fleetd.domain.retention.events_and_locks import drop_old, drop_old_locks
from fleetd.domain.retention.pruning import drop_empty_runs
from fleetd.domain.retention.sessions import drop_old_sessions
from fleetd.domain.sessions import deliveries
from fleetd.domain.system.epoch import start_up
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointPrune,
    CheckpointVerify,
)
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import MissionCancel, MissionCreate, MissionDelete
from fleetd.protocol.requests.system import SystemForget
from fleetd.store.sqlite.disk_reserve import DiskReserve
from fleetd.store.sqlite.errors import DiskFull
from tests.support.fleet import Fleet


async def test_of_what_clients_ask_for_only_what_removes_something_may_use_the_reserve(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = [await fleet.mission() for _ in range(2)]
    taken = [await fleet.do(CheckpointCreate(kept.id)) for _ in range(3)]
    await fleet.do(MissionCancel(gone.id, "not needed"))
    engine = fleet.engine
    write, full, given = engine.store.write, True, 0

    async def on_a_full_disk(rule: Any, kind: Any = None) -> Any:
        if full:
            raise DiskFull("The disk is full.")
        return await write(rule, kind)

    def give() -> bool:
        nonlocal full, given
        full, given = False, given + 1
        return True

    monkeypatch.setattr(engine.store, "write", on_a_full_disk)
    monkeypatch.setattr(engine.disk_reserve, "give", give)
    for request in (
        CheckpointDelete(taken[0].id),
        CheckpointPrune(older_than_days=0, keep_per_mission=1),
        MissionDelete(gone.id),
        SystemForget(mission_id=kept.id),
    ):
        full, given = True, 0
        await fleet.do(request)
        assert given == 1, request
    for other in (MissionCreate("m"), EventAppend("note_added", agent_id="one")):
        full, given = True, 0
        with pytest.raises(DiskFull):
            await fleet.do(other)
        assert given == 0, other


def test_a_start_makes_room_since_nobody_could_prune_without_one() -> None:
    assert may_use_reserve(start_up)


def test_what_is_cleaned_up_daily_makes_room() -> None:
    daily = [
        drop_old,
        drop_old_locks,
        drop_expired,
        drop_old_sessions,
        drop_empty_runs,
        deliveries.prune_deliveries,
    ]
    assert all(map(may_use_reserve, daily))


@pytest.mark.parametrize("times", [2.5, 1.5])
def test_as_much_again_stays_free(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, times: float
) -> None:
    class Room:
        f_frsize = 1
        f_bavail = int(times * 4_096)

    monkeypatch.setattr("os.statvfs", lambda _: Room)
    reserve = DiskReserve(tmp_path / "f.db", 4_096)
    assert reserve.make() is (times > 2)
    assert bool(reserve.left) is (times > 2)


async def test_after_each_part_the_wal_is_copied_back_so_that_it_does_not_grow_into_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fleet.engine
    done: list[str] = []
    write, full = engine.store.write, 2

    async def on_a_full_disk(rule: Any, kind: Any = None) -> Any:
        nonlocal full
        if full:
            full -= 1
            raise DiskFull("The disk is full.")
        return await write(rule, kind)

    def give() -> bool:
        done.append("give")
        return True

    monkeypatch.setattr(engine.store, "write", on_a_full_disk)
    monkeypatch.setattr(engine.disk_reserve, "give", give)
    monkeypatch.setattr(engine.store, "reuse_wal_soon", lambda: done.append("make way"))
    await engine.write(drop_expired)
    assert done == ["give", "make way"] * 2
    full = 1
    with pytest.raises(DiskFull):
        await fleet.do(MissionCreate("m"))
    assert len(done) == 4


async def test_what_a_pruning_did_is_remembered_on_a_full_disk(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fleet.engine
    write, full = engine.store.write, True

    async def on_a_full_disk(rule: Any, kind: Any = None) -> Any:
        if full:
            raise DiskFull("The disk is full.")
        return await write(rule, kind)

    def give() -> bool:
        nonlocal full
        full = False
        return True

    monkeypatch.setattr(engine.store, "write", on_a_full_disk)
    monkeypatch.setattr(engine.disk_reserve, "give", give)
    pruned = await fleet.do(CheckpointPrune(dry_run=True, idempotency_key="once"))
    assert pruned.deleted == 0
    full = True
    with pytest.raises(DiskFull):
        await fleet.do(CheckpointVerify(idempotency_key="once"))
