"""Several daemons write at once: one after the other, and each sees all of it in one order."""

import itertools
import threading
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import NotFound, Unavailable
from fleetd.protocol.status import OptimisticFigures
from fleetd.store.postgres import batch, connection
from fleetd.store.postgres.batch import LOCK
from fleetd.store.postgres.connection import ServerConnection
from fleetd.store.worker_thread import Job
from tests.postgres.shared_stores import Opened, appends, running
from tests.support.postgres_server import LocalPostgres, run_sql

EACH = 60


async def test_numbers_follow_each_other_for_whoever_follows(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    seen: list[int] = []

    async def follow(opened: Opened) -> None:
        while len(seen) < 2 * EACH:
            rung = opened.news
            after = seen[-1] if seen else 0
            seen.extend(await opened.store.read(partial(behind, after=after)))
            if len(seen) < 2 * EACH:
                await opened.hears(rung + 1)

    def behind(tx: Tx, after: int) -> list[int]:
        rows = tx.all("SELECT seq FROM events WHERE seq > :after ORDER BY seq", after=after)
        return [row["seq"] for row in rows]

    async def write(opened: Opened, name: str) -> None:
        for number in range(EACH):
            await opened.event(f"{name}{number}")

    async with (
        running(url, tmp_path / "a") as one,
        running(url, tmp_path / "b") as other,
        running(url, tmp_path / "c") as third,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(follow, third)
        nursery.start_soon(write, one, "a")
        nursery.start_soon(write, other, "b")
    assert seen == list(range(1, 2 * EACH + 1))


async def test_what_was_rolled_back_leaves_no_gap(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def fails(tx: Tx) -> None:
        appends("never")(tx)
        raise NotFound("no")

    async def alternate(opened: Opened) -> None:
        for _ in range(10):
            await opened.event()
            with pytest.raises(NotFound):
                await opened.store.write(fails)

    url = postgres.url(database)
    async with running(url, tmp_path / "a") as one, running(url, tmp_path / "b") as other:
        async with trio.open_nursery() as nursery:
            for opened in (one, other, one, other):
                nursery.start_soon(alternate, opened)
        rows = run_sql(url, "SELECT seq FROM events ORDER BY seq")
    assert [row["seq"] for row in rows] == list(range(1, 41))


async def test_a_daemon_that_is_stopped_in_a_batch_holds_the_others_up_for_seconds_only(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = connection._SETTINGS.replace(
        b"transaction_session_timeout = 4000", b"transaction_session_timeout = 300"
    )
    monkeypatch.setattr(connection, "_SETTINGS", settings)
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as one, running(url, tmp_path / "b") as other:
        stopped = trio.Event()
        began = itertools.count()
        token = trio.lowlevel.current_trio_token()
        go_on = threading.Event()

        def stops(tx: Tx) -> None:
            appends("late")(tx)
            if next(began) == 0:
                token.run_sync_soon(stopped.set)
                go_on.wait(20)
                appends("later")(tx)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.store.write, stops)
            await stopped.wait()
            assert await other.event("first") == 1
            go_on.set()
        assert await one.kinds() == ["first", "late"]


@pytest.mark.parametrize("optimistic", [False, True])
async def test_a_lock_that_is_kept_for_long_refuses_and_is_no_outage(
    postgres: LocalPostgres,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimistic: bool,
) -> None:
    def quick(text: str) -> str:
        return text.replace("lock_timeout = 30000", "lock_timeout = 200")

    for name in ("_BEGIN", "_COUNTED"):
        monkeypatch.setattr(batch, name, quick(getattr(batch, name)))
    monkeypatch.setattr(batch, "_TAKE_TURN", [quick(each) for each in batch._TAKE_TURN])
    url = postgres.url(database)
    async with running(url, tmp_path, optimistic=optimistic) as opened:
        assert await opened.event() == 1
        before = opened.store._committer.optimistic.figures.tries
        line = connection.connect(url, "other")
        try:
            line.execute("BEGIN")
            line.execute(LOCK.encode())
            with pytest.raises(Unavailable, match="Another machine holds a lock on the store"):
                await opened.event()
            assert opened.store.availability.away is None
            # It tries once, and then has its turn refused.
            tries = before + int(optimistic)
            done = opened.store._committer.optimistic.figures
            assert done == OptimisticFigures(tries=tries, conflicts=0, in_turn=int(optimistic))
            line.execute("ROLLBACK")
            assert await opened.event() == 2
        finally:
            line.close()


_WAITING = """
    SELECT (objid = (hashtextextended('fleetd ' || current_schema(), 0) & 4294967295)::oid) AS turn
    FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database =
        (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.mark.parametrize(("queues", "first"), [(2, 2), (32, 4)])
async def test_the_first_of_each_queue_waits_for_the_turn(
    postgres: LocalPostgres,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    queues: int,
    first: int,
) -> None:
    monkeypatch.setattr(batch, "QUEUES", queues)
    url = postgres.url(database)

    async def waiting() -> list[bool]:
        with trio.fail_after(30):
            while len(rows := run_sql(url, _WAITING)) < 4:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.02)
        return [row["turn"] for row in rows]

    async with AsyncExitStack() as stack:
        daemons = [
            await stack.enter_async_context(running(url, tmp_path / str(number)))
            for number in range(4)
        ]
        await daemons[0].event("first")
        other = stack.enter_context(closing(connection.connect(url, "other")))
        other.execute("BEGIN")
        other.execute(LOCK.encode())
        async with trio.open_nursery() as nursery:
            for number, daemon in enumerate(daemons):
                nursery.start_soon(daemon.event, str(number))
            turns = await waiting()
            other.execute("ROLLBACK")
        assert turns.count(True) == first
        kinds = await daemons[0].kinds()
        assert kinds[0] == "first"
        assert sorted(kinds[1:]) == ["0", "1", "2", "3"]


async def test_a_queue_of_its_own_is_free_again_when_its_daemon_has_gone(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "QUEUES", 1)
    url = postgres.url(database)
    held = (
        "SELECT count(*) AS held FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE l.locktype = 'advisory' AND l.granted AND l.database = a.datid"
        " AND a.datname = current_database()"
    )
    async with running(url, tmp_path / "a") as one:
        await one.event()
        async with running(url, tmp_path / "b") as other:
            assert await other.event() == 2
            assert run_sql(url, held) == [{"held": 1}]
    async with running(url, tmp_path / "c") as third:
        assert await third.event() == 3
        assert run_sql(url, held) == [{"held": 1}]


async def test_who_waits_for_the_turn_of_many_is_patient_and_takes_less(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerConnection, "timeout_s", 0.6)
    monkeypatch.setattr(batch, "_CROWDED_S", 0.3)
    turns: list[float] = []
    requests = batch.requests

    def noted(
        line: ServerConnection, jobs: list[Job], where: str, turn_s: float, *more: Any
    ) -> Any:
        turns.append(turn_s)
        return requests(line, jobs, where, turn_s, *more)

    monkeypatch.setattr(batch, "requests", noted)
    settings = connection._SETTINGS.replace(b"lock_timeout = 6000", b"lock_timeout = 100")
    monkeypatch.setattr(connection, "_SETTINGS", settings)
    url = postgres.url(database)
    async with running(url, tmp_path) as opened:
        await opened.event("first")
        other = connection.connect(url, "other")
        try:
            other.execute("BEGIN")
            other.execute(LOCK.encode())
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(opened.event, str(number))
                for _ in range(20):  # others have their answers meanwhile
                    await trio.sleep(0.1)
                    await opened.kinds()
                other.execute("ROLLBACK")
        finally:
            other.close()
        assert opened.store.availability.away is None
        assert len(await opened.kinds()) == 6
    assert turns[:2] == [batch._TURN_S, batch._SHORT_TURN_S]
