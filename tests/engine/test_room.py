"""Who may use the last room on a full disk, and what is done for whoever does."""

from typing import Any

import pytest

from fleetd.domain.core.idempotency import drop_expired
from fleetd.domain.core.registry import REGISTERED, may_use_reserve
from fleetd.domain.retention.events_and_locks import drop_old, drop_old_locks
from fleetd.domain.retention.sessions import drop_old_sessions
from fleetd.domain.retention.snapshots import drop_empty_runs
from fleetd.domain.sessions.deliveries import OldDeliveriesDrop
from fleetd.domain.system.startup import start_up
from fleetd.engine.room import MAKES_ROOM
from fleetd.protocol.requests.mission import MissionCreate
from fleetd.store.sqlite.disk_reserve import Ballast
from fleetd.store.sqlite.errors import DiskFull
from tests.fleet import Fleet


def test_of_what_clients_ask_for_only_what_removes_something_makes_room() -> None:
    assert {each.request.method for each in REGISTERED.values() if each.frees_space} == {
        *("checkpoint.delete", "checkpoint.prune", "mission.delete", "snapshot.prune"),
        "system.forget",
    }


def test_a_start_makes_room_since_nobody_could_prune_without_one() -> None:
    assert may_use_reserve(start_up)


def test_what_is_cleaned_up_daily_makes_room() -> None:
    daily = [drop_old, drop_old_locks, drop_expired, drop_old_sessions, drop_empty_runs]
    assert all(map(may_use_reserve, daily))
    assert OldDeliveriesDrop in MAKES_ROOM


@pytest.mark.parametrize("times", [2.5, 1.5])
def test_as_much_again_stays_free(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, times: float
) -> None:
    class Room:
        f_frsize = 1
        f_bavail = int(times * 4_096)

    monkeypatch.setattr("os.statvfs", lambda _: Room)
    ballast = Ballast(tmp_path / "f.db", 4_096)
    assert ballast.make() is (times > 2)
    assert bool(ballast.left) is (times > 2)


async def test_after_each_part_the_wal_is_copied_back_so_that_it_does_not_grow_into_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fleet.engine
    done: list[str] = []
    write, full = engine.store.write, 2

    async def on_a_full_disk(rule: Any) -> Any:
        nonlocal full
        if full:
            full -= 1
            raise DiskFull("The disk is full.")
        return await write(rule)

    def give() -> bool:
        done.append("give")
        return True

    monkeypatch.setattr(engine.store, "write", on_a_full_disk)
    monkeypatch.setattr(engine.ballast, "give", give)
    monkeypatch.setattr(engine.store, "make_way", lambda: done.append("make way"))
    await engine.write(drop_expired)
    assert done == ["give", "make way"] * 2
    full = 1
    with pytest.raises(DiskFull):
        await fleet.do(MissionCreate("m"))
    assert len(done) == 4
