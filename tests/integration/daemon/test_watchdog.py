"""The watchdog is fed after a round trip through writer and reader, and not while one is stuck."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from fleetd import daemon
from fleetd.engine.engine import DAEMON, Engine
from fleetd.engine.lifecycle import open_engine
from fleetd.host.systemd import feed_watchdog
from fleetd.protocol.errors import Storage, Unavailable
from fleetd.protocol.requests.system import SystemHealth
from tests.support.fleet import settings

Healthy = Callable[[], Awaitable[bool]]


class Fed:
    """Counts how often systemd was told that the daemon is well."""

    def __init__(self) -> None:
        self.times = 0

    def send(self, *states: str) -> None:
        assert states == ("WATCHDOG=1",)
        self.times += 1


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """Return an engine with a writer and a reader in threads of their own."""
    (tmp_path / "project").mkdir()
    async with open_engine(settings(tmp_path)) as engine:
        yield engine


@pytest.fixture
def healthy(engine: Engine) -> Healthy:
    return partial(daemon._healthy, engine)


@pytest.mark.parametrize("thread", ["write", "read"])
async def test_a_stuck_thread_of_the_database_stops_the_feeding_until_it_goes_on(
    engine: Engine, healthy: Healthy, thread: str
) -> None:
    stuck, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def hang(tx: Any) -> None:
        token.run_sync_soon(stuck.set)
        assert go_on.wait(30)

    fed = Fed()
    checked = trio.Event()

    async def check() -> bool:
        well = await healthy()
        checked.set()
        return well

    assert await healthy()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(getattr(engine.store, thread), hang)
            await stuck.wait()
            nursery.start_soon(feed_watchdog, fed, 3_600, check)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert (fed.times, checked.is_set()) == (0, False)
            go_on.set()
            await checked.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert fed.times == 1
            nursery.cancel_scope.cancel()
    finally:
        go_on.set()


async def test_a_database_that_somebody_else_keeps_locked_is_no_reason_to_be_restarted(
    engine: Engine, healthy: Healthy
) -> None:
    """The next daemon could not even start; this one goes on reading."""
    engine.store._writer_connection.set_busy_timeout(20)
    other = apsw.Connection(str(engine.config.database))
    try:
        other.execute("BEGIN IMMEDIATE")
        health = await engine.handle(SystemHealth(), DAEMON)
        assert (health.ok, health.restart_mends) == (False, False)
        assert await healthy()
        other.execute("ROLLBACK")
        assert (await engine.handle(SystemHealth(), DAEMON)).ok
    finally:
        other.close()


@pytest.mark.parametrize("failed", [False, True])
async def test_only_a_store_that_failed_makes_a_refusal_a_reason(
    engine: Engine,
    healthy: Healthy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failed: bool,
) -> None:
    async def refuse(*_: Any) -> None:
        raise Storage("The disk refuses; nothing was stored.")

    with monkeypatch.context() as broken:
        broken.setattr(engine.store, "write", refuse)
        if failed:
            event = trio.Event()
            event.set()
            broken.setattr(engine.store, "failed", event)
        assert await healthy() is not failed
    told = "The health check failed: database writer: The disk refuses" in caplog.text
    assert told == failed


async def test_a_check_that_cannot_be_made_is_told(
    engine: Engine,
    healthy: Healthy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(*_: Any) -> None:
        raise Unavailable("fleetd is shutting down.")

    monkeypatch.setattr(engine, "handle", fail)
    assert not await healthy()
    assert "The health check failed: fleetd is shutting down." in caplog.text


async def test_a_check_that_hangs_is_named_in_the_log(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fed = Fed()
    with trio.move_on_after(100):
        await feed_watchdog(fed, 60, trio.sleep_forever)
    assert fed.times == 0
    assert caplog.text.count("The health check did not answer for 30 s") == 1
