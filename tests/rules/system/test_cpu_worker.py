"""Long computations leave the loop to the others, one at a time."""

import sys
import threading
from functools import partial

import pytest
import trio
import trio.testing

from fleetd import daemon
from fleetd.domain.redaction import requests
from fleetd.engine.engine import DAEMON, Engine
from fleetd.host.cpu_worker import LONG_BYTES, SHARED_SWITCH_S, SWITCH_S, CpuWorker, in_short_turns
from fleetd.protocol.requests.event import EventAppend
from tests.support.fleet import Fleet


async def test_what_is_short_is_done_on_the_spot() -> None:
    aside = CpuWorker(inline=False)
    assert await aside.run(threading.current_thread, LONG_BYTES - 1) is threading.current_thread()


async def test_what_is_long_is_done_beside_the_loop_one_after_the_other() -> None:
    aside = CpuWorker(inline=False)
    begun, go_on = threading.Semaphore(0), threading.Event()
    most, under_way = 0, 0

    def work() -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        begun.release()
        assert threading.current_thread() is not threading.main_thread()
        assert go_on.wait(30)
        under_way -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(aside.run, work, LONG_BYTES)
        await trio.to_thread.run_sync(begun.acquire)
        assert await aside.run(lambda: "in between", 1) == "in between"
        go_on.set()
    assert most == 1


async def test_what_stays_behind_something_long_does_not_overtake_it() -> None:
    aside, one, other = CpuWorker(inline=False), trio.StrictFIFOLock(), trio.StrictFIFOLock()
    go_on, done = threading.Event(), list[str]()

    def long() -> None:
        assert go_on.wait(30)
        done.append("long")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(aside.run, long, LONG_BYTES, one)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3):
            nursery.start_soon(aside.run, partial(done.append, f"short {number}"), 1, one)
            await trio.testing.wait_all_tasks_blocked()
        await aside.run(partial(done.append, "of somebody else"), 1, other)
        go_on.set()
    assert done == ["of somebody else", "long", "short 0", "short 1", "short 2"]


async def test_threads_change_places_more_often_while_something_long_is_done() -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SHARED_SWITCH_S)
    try:
        aside = CpuWorker(inline=False)
        during = await aside.run(sys.getswitchinterval, LONG_BYTES)
        assert during == pytest.approx(SWITCH_S)
        assert sys.getswitchinterval() == pytest.approx(SHARED_SWITCH_S)
        assert await aside.run(sys.getswitchinterval, 1) == pytest.approx(SHARED_SWITCH_S)
        with pytest.raises(ZeroDivisionError):
            await aside.run(lambda: 1 // 0, LONG_BYTES)
        assert sys.getswitchinterval() == pytest.approx(SHARED_SWITCH_S)
    finally:
        sys.setswitchinterval(usual)


def test_the_last_thread_that_ends_brings_the_usual_turns_back() -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SHARED_SWITCH_S)
    try:
        in_short_turns(lambda: in_short_turns(lambda: None))
        assert sys.getswitchinterval() == pytest.approx(SHARED_SWITCH_S)
        during = in_short_turns(lambda: (in_short_turns(lambda: None), sys.getswitchinterval())[1])
        assert during == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.parametrize(("shared", "interval"), [(True, SHARED_SWITCH_S), (False, SWITCH_S)])
def test_a_daemon_with_a_store_on_a_server_has_longer_turns(
    monkeypatch: pytest.MonkeyPatch, *, shared: bool, interval: float
) -> None:
    set_to: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", set_to.append)
    monkeypatch.setattr(daemon.resource, "setrlimit", lambda *_: None)
    daemon.prepare_process(shared=shared)
    assert set_to == [interval]


async def test_what_it_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        await CpuWorker(inline=False).run(fail, LONG_BYTES)


async def test_a_long_request_is_cleaned_of_secrets_beside_the_loop(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Engine = fleet.engine
    sizes: list[int] = []
    run = engine.cpu_worker.run

    async def noted(work: object, size: int, behind: object) -> object:
        sizes.append(size)
        return await run(work, size, behind)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.cpu_worker, "run", noted)
    request = EventAppend(type="file_read", data={"text": "password=hunter2 " * 10_000})
    event = await engine.handle(request, DAEMON, size=200_000)
    assert sizes == [200_000]
    assert "hunter2" not in str(fleet.sql("SELECT data_json FROM events"))
    assert requests.without_secrets(request) != request
    assert event.seq > 0
