"""What system.health looks at, and which of its failures a restart would mend."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.daemon import _healthy
from fleetd.engine.jobs import timers
from fleetd.engine.metrics import health as checks
from fleetd.protocol.errors import Corrupt, FleetError, Storage, Unavailable
from fleetd.protocol.requests.system import Check, Health, SystemHealth
from fleetd.store import disk_audit
from fleetd.store.files.record_files import RecordFiles
from fleetd.store.sqlite import wal_checkpointer
from fleetd.store.sqlite.store import SqliteStore
from tests.support.fleet import Fleet

Patch = pytest.MonkeyPatch


async def look(fleet: Fleet) -> tuple[Health, dict[str, Check]]:
    """Return the health, and its checks by name; of several of one name the worst."""
    health = await fleet.do(SystemHealth())
    return health, {each.name: each for each in sorted(health.checks, key=lambda each: not each.ok)}


async def fed(fleet: Fleet) -> bool:
    """Whether the watchdog would be fed."""
    return await _healthy(fleet.engine)


async def test_a_healthy_daemon_passes_every_check(fleet: Fleet) -> None:
    health, found = await look(fleet)
    assert [each for each in health.checks if not each.ok] == []
    assert (health.ok, health.restart_mends) == (True, False)
    assert {"database writer", "database reader", "queue", "write-ahead log"} <= found.keys()
    assert {"backups", "room to store", "disk", "connections"} <= found.keys()
    assert all(each.detail for each in health.checks)
    assert await fed(fleet)


def less_room(patch: Patch, free: int) -> None:
    patch.setattr(disk_audit, "free_bytes", lambda path: free)


def large_wal(patch: Patch, _: Any) -> None:
    patch.setattr(SqliteStore, "sizes", lambda store: (4_096, wal_checkpointer.LARGE_BYTES + 1))


def long_queue(patch: Patch, _: Any) -> None:
    patch.setattr(checks, "LONG_QUEUE", -1)


@pytest.mark.parametrize(
    ("what", "value", "name", "said"),
    [
        (less_room, 99_000_000, "disk", "99 MB free"),
        pytest.param(
            *(large_wal, None, "write-ahead log", "another program"),
            marks=pytest.mark.sqlite_only("there is a WAL"),
        ),
        (long_queue, None, "queue", "requests wait"),
    ],
)
async def test_a_warning_leaves_the_daemon_healthy(
    fleet: Fleet,
    monkeypatch: Patch,
    what: Callable[[Patch, Any], None],
    value: Any,
    name: str,
    said: str,
) -> None:
    what(monkeypatch, value)
    health, found = await look(fleet)
    assert not found[name].ok
    assert said in found[name].detail
    assert (health.ok, health.restart_mends) == (True, False)
    assert await fed(fleet)


async def test_a_full_disk_breaks_the_promise_and_restarts_nobody(
    fleet: Fleet, monkeypatch: Patch
) -> None:
    less_room(monkeypatch, 12_345)
    health, found = await look(fleet)
    assert found["room to store"].detail == "full: 12345 bytes are left"
    assert (health.ok, health.restart_mends) == (False, False)
    assert await fed(fleet)


@pytest.mark.parametrize(
    "refusal",
    [
        Unavailable("Another program holds a lock on the database."),
        Storage("The disk is full; nothing was stored."),
        Corrupt("The database is damaged."),
    ],
    ids=lambda refusal: refusal.kind,
)
@pytest.mark.parametrize("lane", ["write", "read"])
async def test_a_database_that_says_no_is_no_reason_to_restart(
    fleet: Fleet, monkeypatch: Patch, lane: str, refusal: FleetError
) -> None:
    async def refuse(*_: Any) -> None:
        raise refusal

    with monkeypatch.context() as broken:
        broken.setattr(fleet.engine.store, lane, refuse)
        health, found = await look(fleet)
        assert await fed(fleet)
    name = "database writer" if lane == "write" else "database reader"
    assert found[name].detail == refusal.message
    assert (health.ok, health.restart_mends) == (False, False)


async def test_a_round_trip_that_brings_nonsense_is_one(fleet: Fleet, monkeypatch: Patch) -> None:
    async def nonsense(*_: Any) -> int:
        return 2

    with monkeypatch.context() as broken:
        broken.setattr(fleet.engine.store, "write", nonsense)
        health, found = await look(fleet)
        assert not await fed(fleet)
    assert found["database writer"].detail == "answers incorrectly"
    assert (health.ok, health.restart_mends) == (False, True)


async def test_a_writer_that_is_stuck_feeds_no_watchdog(
    fleet: Fleet, monkeypatch: Patch, autojump_clock: trio.testing.MockClock
) -> None:
    async def stuck(*_: Any) -> None:
        await trio.sleep_forever()

    with monkeypatch.context() as broken, trio.move_on_after(3_600) as waiting:
        broken.setattr(fleet.engine.store, "write", stuck)
        await fed(fleet)
    assert waiting.cancelled_caught


@pytest.mark.sqlite_only("there is a WAL")
async def test_nobody_who_copies_the_wal_back_is_a_reason_to_restart(
    fleet: Fleet, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(SqliteStore, "wal_is_kept_short", property(lambda store: False))
    health, found = await look(fleet)
    assert not found["write-ahead log"].ok
    assert (health.ok, health.restart_mends) == (True, True)
    assert not await fed(fleet)


async def test_a_file_that_cannot_be_written_is_a_warning_with_its_reason(
    fleet: Fleet, monkeypatch: Patch, autojump_clock: trio.testing.MockClock
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(RecordFiles, "write", refuse)
        made = await fleet.checkpoint(await fleet.mission(), wait_for_backup=False)
        await trio.sleep(checks.STUCK_S + 1)
        health, found = await look(fleet)
        detail = found["backups"].detail
        assert not found["backups"].ok
        assert detail.startswith("files still to write: 1; ")
        assert f"{made.id} failed; fleetd tries again" in detail
        assert "No space left on device" in detail
        assert "the oldest has waited for 1m" in detail
        assert (health.ok, health.restart_mends) == (True, False)
        assert await fed(fleet)
    await trio.sleep(600)
    _, found = await look(fleet)
    assert (found["backups"].ok, found["backups"].detail) == (True, "files still to write: 0")


async def test_an_outbox_that_hangs_is_noticed_without_a_failure(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    async with fleet.engine.outbox.file_lock:
        await fleet.checkpoint(await fleet.mission(), wait_for_backup=False)
        await trio.sleep(checks.STUCK_S - 1)
        assert (await look(fleet))[1]["backups"].ok
        await trio.sleep(2)
        _, found = await look(fleet)
        assert not found["backups"].ok
        assert "the oldest has waited" in found["backups"].detail


async def test_timers_that_come_round_are_alive(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run_timers, fleet.engine)
        for _ in range(10):
            await trio.sleep(7_200)
            health, found = await look(fleet)
            assert health.ok, health
        assert {"silence timer", "spool timer", "housekeeping timer"} <= found.keys()
        assert "ago" in found["silence timer"].detail
        nursery.cancel_scope.cancel()


async def test_a_silence_timer_that_hangs_is_a_reason_to_restart(
    fleet: Fleet, monkeypatch: Patch, autojump_clock: trio.testing.MockClock
) -> None:
    async def hang(*_: Any, **__: Any) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        with monkeypatch.context() as broken:
            broken.setattr(timers, "scan", hang)
            nursery.start_soon(timers.scan_liveness, fleet.engine)
            await trio.sleep(timers.ROUND_S - 1)
        assert (await look(fleet))[0].ok
        await trio.sleep(2)
        health, found = await look(fleet)
        assert found["silence timer"].detail.endswith(", and is late")
        assert (health.ok, health.restart_mends) == (False, True)
        assert not await fed(fleet)
        nursery.cancel_scope.cancel()


async def test_health_looks_at_the_timer_files_as_at_every_other(
    fleet: Fleet, monkeypatch: Patch, autojump_clock: trio.testing.MockClock
) -> None:
    async def hang(*_: Any) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(fleet.engine.outbox, "post_pending", hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.follow_other_machines, fleet.engine)
        await trio.sleep(timers.FILES_S + timers.ROUND_S - 1)
        assert (await look(fleet))[1]["files timer"].ok
        await trio.sleep(2)
        health, found = await look(fleet)
        assert found["files timer"].detail.endswith(", and is late")
        assert (health.ok, health.restart_mends) == (True, True)
        nursery.cancel_scope.cancel()


async def test_a_timer_whose_work_is_refused_is_alive(
    fleet: Fleet, monkeypatch: Patch, autojump_clock: trio.testing.MockClock
) -> None:
    perform = fleet.engine.handle

    async def refuse(request: Any, *rest: Any) -> Any:
        if isinstance(request, SystemHealth):
            return await perform(request, *rest)
        raise Storage("The disk is full; nothing was stored.")

    monkeypatch.setattr(fleet.engine, "handle", refuse)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.scan_liveness, fleet.engine)
        await trio.sleep(5 * timers.ROUND_S)
        health, _ = await look(fleet)
        assert (health.ok, health.restart_mends) == (True, False)
        nursery.cancel_scope.cancel()


async def test_connections_at_their_limit_are_a_warning(fleet: Fleet) -> None:
    limit = fleet.engine.config.limits.connections
    fleet.engine.traffic.open = limit
    health, found = await look(fleet)
    assert found["connections"].detail.startswith(f"{limit} of {limit} open; further clients wait")
    assert (health.ok, found["connections"].ok) == (True, False)
