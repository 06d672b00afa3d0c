"""A lone short job runs on the event loop, and everything else on the thread, in one order."""

import os
import random
import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from fleetd.domain.core.context import Context
from fleetd.domain.core.tx import LogLine, Tx
from fleetd.engine.lifecycle import open_engine
from fleetd.host import trace
from fleetd.host.systemd import feed_watchdog
from fleetd.protocol.errors import InvalidState, Storage
from fleetd.store import worker_thread
from fleetd.store.sqlite import group_commit
from fleetd.store.sqlite.group_commit import _FEW, FAST_US, LOOP_S, SLOW_US, CommitPace
from fleetd.store.sqlite.store import SqliteStore
from fleetd.store.worker_thread import CALM, SHORT_US, Job, WorkerThread
from tests.support.fleet import settings


@pytest.fixture(name="fast")
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the disk for a fast one, however it is."""
    monkeypatch.setattr(group_commit.CommitPace, "is_fast", property(lambda _: True))


def where(_tx: Tx) -> str:
    """A rule that says on which thread it runs."""
    return threading.current_thread().name


def rule_of_a_request(tx: Tx, _ctx: Context) -> str:
    return where(tx)


LOOP = threading.main_thread().name
pytestmark = pytest.mark.usefixtures("asked")


async def calm_down(store: SqliteStore, kind: Hashable = "short") -> None:
    """Have a kind of job known as short, and nobody at work for a while."""
    for _ in range(CALM + 2):
        await store.write(lambda _: None, kind)
        await store.read(lambda _: None, kind)
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("way", ["write", "read"])
async def test_a_lone_short_job_runs_on_the_event_loop(open_store: Any, way: str) -> None:
    async with open_store() as store:
        run = getattr(store, way)
        assert await run(where, "short") == ("writer" if way == "write" else "reader")
        await calm_down(store)
        assert await run(where, "short") == LOOP
        await trio.testing.wait_all_tasks_blocked()
        assert await run(where) != LOOP, "of no kind: nobody knows how long it takes"
        assert await run(where, "unknown") != LOOP


@pytest.mark.usefixtures("fast")
async def test_a_kind_that_takes_long_goes_to_the_thread_until_it_was_short_for_a_while(
    open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0
    monkeypatch.setattr(worker_thread, "time", SimpleNamespace(perf_counter_ns=lambda: now_ns))

    def slow(_tx: Tx) -> None:
        nonlocal now_ns
        now_ns += 3 * SHORT_US * 1_000

    async with open_store() as store:
        await calm_down(store)
        await store.write(slow, "short")
        seen = []
        for _ in range(60):
            await trio.testing.wait_all_tasks_blocked()
            seen.append(await store.write(where, "short"))
        assert seen[0] == "writer"
        assert seen[-1] == LOOP
        assert sorted(seen, reverse=True) == seen, "once it is back it stays"


ENDLESS = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000)"
    " SELECT count(*) FROM n"
)


def one_long_statement(tx: Tx) -> int:
    return tx.value(ENDLESS)


def many_short_statements(tx: Tx) -> int:
    for _ in range(100):
        time.sleep(LOOP_S / 20)
        found = tx.value("SELECT 3000000")
    return found


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("rule", [one_long_statement, many_short_statements])
@pytest.mark.parametrize("way", ["write", "read"])
async def test_a_job_that_was_short_before_and_takes_long_is_done_over_by_the_thread(
    open_store: Any, database: Path, tools: Any, way: str, rule: Callable[[Tx], int]
) -> None:
    places: list[str] = []

    def work(tx: Tx) -> int:
        places.append(where(tx))
        if way == "write":
            tools.put("half")(tx)
        return rule(tx)

    async with open_store() as store:
        await calm_down(store)
        assert await getattr(store, way)(work, "short") == 3_000_000
        assert places == [LOOP, "writer" if way == "write" else "reader"]
        await trio.testing.wait_all_tasks_blocked()
        assert await store.write(where, "short") == ("writer" if way == "write" else LOOP)
    assert tools.keys_in(database) == ({"half"} if way == "write" else set())


@pytest.mark.usefixtures("fast")
async def test_two_in_a_row_leave_the_loop_a_round(open_store: Any) -> None:
    """A client that sends many requests at once keeps nobody from being served."""
    async with open_store() as store:
        await calm_down(store)
        assert [await store.write(where, "short") for _ in range(2)] == [LOOP, "writer"]
        assert await store.read(where, "short") == LOOP


@pytest.mark.usefixtures("fast")
async def test_clients_that_come_at_once_are_committed_together(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await calm_down(store)
        for number in range(3):
            before = store.load.commits.count
            async with trio.open_nursery() as nursery:
                for each in range(64):
                    put = tools.put(f"{number}/{each}")
                    nursery.start_soon(store.write, put, "short")
            assert store.load.commits.count - before <= 3, "one on the loop at most, at first"
    assert len(tools.keys_in(database)) == 3 * 64


@pytest.mark.usefixtures("fast")
async def test_effects_and_commits_have_one_order_on_the_loop_and_on_the_thread(
    open_store: Any,
) -> None:
    seen: list[int] = []
    places: set[str] = set()
    made = "CREATE TABLE turns (seq INTEGER PRIMARY KEY AUTOINCREMENT)"

    def turn(tx: Tx) -> int:
        places.add(where(tx))
        number: int = tx.value("INSERT INTO turns DEFAULT VALUES RETURNING seq")
        tx.after_commit(LogLine("INFO", str(number)))
        return number

    def on_commit(effects: list[Any]) -> None:
        seen.extend(int(effect.text) for effect in effects)

    async def client(store: SqliteStore, chance: random.Random) -> None:
        last = 0
        for _ in range(60):
            if chance.random() < 0.8:
                await trio.sleep(chance.random() * 0.004)
            number = await store.write(turn, "short")
            assert number > last
            last = number

    async with open_store(on_commit=on_commit) as store:
        await store.write(lambda tx: tx.run(made))
        await calm_down(store)
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(client, store, random.Random(number))
    assert places == {LOOP, "writer"}
    assert seen == list(range(1, 4 * 60 + 1))


@pytest.mark.usefixtures("fast")
async def test_a_caller_who_is_cancelled_meanwhile_learns_what_became_of_it(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await calm_down(store)
        with trio.CancelScope() as scope:

            def cancelling(tx: Tx) -> str:
                scope.cancel()
                tools.put("done")(tx)
                return where(tx)

            assert await store.write(cancelling, "short") == LOOP
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        with trio.CancelScope() as gone:
            gone.cancel()
            await store.write(tools.put("never"), "short")
    assert tools.keys_in(database) == {"done"}


@pytest.mark.usefixtures("fast")
async def test_a_job_that_raises_on_the_loop_leaves_nothing(
    open_store: Any, database: Path, tools: Any
) -> None:
    places: list[str] = []
    said: list[Any] = []

    def refuse(tx: Tx) -> None:
        places.append(where(tx))
        tx.after_commit(LogLine("INFO", "never"))
        tools.put("refused")(tx)
        raise InvalidState("not now")

    async with open_store(on_commit=said.extend) as store:
        await calm_down(store)
        for way, error in ((store.write, InvalidState), (store.read, Storage)):
            with pytest.raises(error):
                await way(refuse, "short")
            await trio.testing.wait_all_tasks_blocked()
        assert places == [LOOP, LOOP]
        await store.write(tools.put("after"), "short")
    assert tools.keys_in(database) == {"after"}
    assert said == []


@pytest.mark.usefixtures("fast")
async def test_the_loop_waits_for_no_other_program(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await calm_down(store)
        other = apsw.Connection(str(database))
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.write, tools.put("late"), "short")
            begun = trio.current_time()
            await trio.sleep(0.05)
            assert trio.current_time() - begun < 2, "the loop goes on meanwhile"
            assert await store.read(lambda tx: tx.value("SELECT 1"), "short") == 1
            other.execute("ROLLBACK")
        other.close()
    assert tools.keys_in(database) == {"late"}


@pytest.mark.usefixtures("fast")
async def test_a_full_disk_is_told_on_the_loop_too(
    open_store: Any, database: Path, faults: Any, tools: Any
) -> None:
    async with open_store(vfs=faults.name) as store:
        await calm_down(store)
        faults.fail("write", "wal", apsw.FullError)
        with pytest.raises(Storage, match="The disk is full"):
            await store.write(tools.put("full"), "short")
        assert store.failure is None
        await trio.testing.wait_all_tasks_blocked()
        assert await store.write(tools.put("after"), "short") == "after"
    assert tools.keys_in(database) == {"after"}


@pytest.mark.usefixtures("fast")
async def test_after_a_failed_sync_on_the_loop_nothing_more_is_written(
    open_store: Any, faults: Any, tools: Any
) -> None:
    async with open_store(vfs=faults.name) as store:
        await calm_down(store)
        await store.write(tools.put("before"), "short")
        await trio.testing.wait_all_tasks_blocked()
        faults.fail("sync", "wal", apsw.IOError)
        with pytest.raises(Storage, match="nothing was acknowledged"):
            await store.write(tools.put("lost"), "short")
        with trio.fail_after(5):
            await store.failed.wait()
        for kind in ("short", None):
            with pytest.raises(Storage):
                await store.write(tools.put("refused"), kind)


@pytest.mark.usefixtures("fast")
async def test_a_file_that_was_taken_away_is_noticed_and_saved_by_the_thread(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await calm_down(store)
        await store.write(tools.put("before"), "short")
        os.unlink(database)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Storage, match="was removed or replaced while it was in use"):
            await store.write(tools.put("after"), "short")
        (saved,) = database.parent.glob(f"{database.name}.rescued-*")
    assert tools.keys_in(saved) == {"before"}


def test_a_disk_shows_that_it_is_fast_and_one_slow_sync_makes_it_show_that_again() -> None:
    pace = CommitPace()

    def until_fast(us: int = 300) -> int:
        number = 0
        while not pace.is_fast:
            pace.note(us)
            number += 1
        return number

    assert not pace.is_fast
    assert 10 < until_fast() < 64
    pace.note(10 * SLOW_US)
    assert until_fast() >= _FEW
    tried = []
    for _ in range(6):  # slow again as soon as the loop is used
        pace.note(SLOW_US)
        tried.append(until_fast())
    assert tried == sorted(tried)
    assert tried[-1] >= 16 * _FEW
    for _ in range(100_000):
        pace.note(300)
    pace.note(SLOW_US)
    assert until_fast() == _FEW, "long ago is forgotten"
    for _ in range(200):
        pace.note(2 * FAST_US)
    assert not pace.is_fast, "none of them slow, and all of them slower than a hop"


async def test_a_slow_disk_switches_back_to_the_thread(
    open_store: Any, faults: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay = 0.0

    def slow(call: str, kind: str, *_: Any, meet: Any = faults.meet) -> None:
        if (call, kind) == ("sync", "wal"):
            time.sleep(delay)
        meet(call, kind)

    monkeypatch.setattr(faults, "meet", slow)
    monkeypatch.setattr(group_commit, "FAST_US", 5_000)  # that of a test on a busy machine
    names = iter(range(1_000_000))

    async def writes(number: int) -> list[str]:
        seen = []
        for _ in range(number):
            put = tools.put(f"w{next(names)}")
            seen.append(await store.write(lambda tx, put=put: (put(tx), where(tx))[1], "short"))
            await trio.testing.wait_all_tasks_blocked()
        return seen

    async with open_store(vfs=faults.name) as store:
        with trio.fail_after(30):
            while LOOP not in await writes(20):
                pass
        delay = 0.05
        seen = await writes(10)
        assert seen.count(LOOP) <= 1, "one that it could not have known of"
        delay = 0.0
        assert LOOP not in await writes(_FEW // 2)


async def test_a_worker_without_that_way_runs_everything_on_its_thread() -> None:
    """So does a store on a server, whose answers take as long as its network."""

    def work(jobs: list[Job]) -> None:
        for job in jobs:
            job.succeed(job.run(None))

    worker = WorkerThread("far", work, lambda _: None)
    worker.start()
    try:
        for _ in range(3 * CALM):
            assert await worker.submit(where, "short") == "far"
            await trio.testing.wait_all_tasks_blocked()
    finally:
        await worker.aclose()


@pytest.mark.usefixtures("fast")
async def test_the_daemon_itself_never_works_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a rule may wait longer for a processor than it works.
    monkeypatch.setattr("fleetd.store.worker_thread.SHORT_US", 60_000_000)

    async def settled(way: Callable[..., Any]) -> set[str]:
        seen = set()
        for number in range(3 * CALM):
            await trio.sleep(0.002)
            name = await way(rule_of_a_request)
            if number > 2 * CALM:
                seen.add(name)
        return seen

    (tmp_path / "project").mkdir()
    async with open_engine(settings(tmp_path)) as engine:
        with trace.on_behalf_of(None):
            assert await settled(engine.write) == {"writer"}
        assert LOOP in await settled(engine.write)
        assert LOOP in await settled(engine.read)


@pytest.mark.usefixtures("fast")
async def test_a_disk_that_hangs_under_the_loop_is_the_watchdogs(
    open_store: Any, faults: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing feeds it meanwhile, so that systemd restarts the daemon."""
    hang = 0.0
    fed: list[float] = []

    class Notifier:
        def send(self, *_states: str) -> None:
            fed.append(time.monotonic())

    def meet(call: str, kind: str, *_: Any, real: Any = faults.meet) -> None:
        if (call, kind) == ("sync", "wal"):
            time.sleep(hang)
        real(call, kind)

    async def healthy() -> bool:
        return True

    monkeypatch.setattr(faults, "meet", meet)
    async with open_store(vfs=faults.name) as store, trio.open_nursery() as nursery:
        await calm_down(store)
        nursery.start_soon(partial(feed_watchdog, Notifier(), 0.01, healthy))  # type: ignore[arg-type]
        await trio.sleep(0.1)
        assert fed
        hang = 0.5
        begun = time.monotonic()
        await store.write(tools.put("slow"), "short")
        ended = time.monotonic()
        await trio.sleep(0.1)
        assert not [at for at in fed if begun + 0.02 < at < ended - 0.02]
        assert fed[-1] > ended
        nursery.cancel_scope.cancel()
