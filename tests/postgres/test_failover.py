"""Servers that stand still, and servers that take another's place."""

import time
from pathlib import Path

import pytest
import trio

from fleetd.protocol.errors import Unavailable
from fleetd.store.postgres.connection import ServerConnection
from tests.postgres.shared_stores import PATIENCE_S, running
from tests.support.postgres_server import LocalPostgres


def of_both(one: LocalPostgres, other: LocalPostgres, database: str) -> str:
    return f"postgresql://fleet@127.0.0.1:{one.port},127.0.0.1:{other.port}/{database}"


def follows(standby: LocalPostgres, primary: LocalPostgres) -> None:
    """Wait until a standby has everything."""
    end = primary.sql("SELECT pg_current_wal_lsn()::text AS lsn")[0]["lsn"]
    caught_up = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn AS done"
    while not standby.sql(caught_up, end)[0]["done"]:
        time.sleep(0.02)


@pytest.mark.parametrize("optimistic", [False, True])
async def test_a_standby_that_has_everything_takes_over(
    own_postgres: LocalPostgres, tmp_path: Path, optimistic: bool
) -> None:
    name = own_postgres.new_database()
    standby = own_postgres.standby()
    try:
        url = of_both(own_postgres, standby, name)
        async with running(url, tmp_path, optimistic=optimistic) as opened:
            await opened.event("before")
            follows(standby, own_postgres)
            own_postgres.kill()
            await opened.until(away=True)
            standby.promote()
            await opened.until(away=False)
            assert await opened.event("after") == 2
            assert await opened.kinds() == ["before", "after"]
            assert opened.store.lost is None
            assert str(standby.port) in opened.store.where
    finally:
        standby.clean_up()


async def test_a_synchronous_standby_lacks_nothing_that_was_answered(
    own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    name = own_postgres.new_database()
    standby = own_postgres.standby()
    try:
        own_postgres.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        own_postgres.sql("SELECT pg_reload_conf()")
        with trio.fail_after(PATIENCE_S):
            while not own_postgres.sql(  # noqa: ASYNC110 - nothing tells
                "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            ):
                await trio.sleep(0.02)
        url = of_both(own_postgres, standby, name)
        async with running(url, tmp_path, optimistic=True) as opened:
            for number in range(1, 21):
                assert await opened.event(f"n{number}") == number
            own_postgres.kill()  # nobody waits for the standby to catch up
            await opened.until(away=True)
            standby.promote()
            standby.sql("ALTER SYSTEM RESET synchronous_standby_names")
            standby.sql("SELECT pg_reload_conf()")
            await opened.until(away=False)
            assert await opened.event("after") == 21
            assert await opened.kinds() == [*(f"n{number}" for number in range(1, 21)), "after"]
            assert opened.store.lost is None
    finally:
        standby.clean_up()


@pytest.mark.parametrize("optimistic", [False, True])
async def test_a_standby_that_lacks_commits_is_found_out(
    own_postgres: LocalPostgres, tmp_path: Path, optimistic: bool
) -> None:
    name = own_postgres.new_database()
    standby = own_postgres.standby()
    try:
        url = of_both(own_postgres, standby, name)
        async with running(url, tmp_path, optimistic=optimistic) as opened:
            await opened.event("kept")
            follows(standby, own_postgres)
            standby.stop()
            await opened.event("lost")
            await opened.event("lost too")
            own_postgres.kill()
            standby.start()
            await opened.until(away=True)
            standby.promote()
            await opened.until(away=False)
            lost = opened.store.lost
            assert lost is not None
            assert (lost.end, lost.reached) == (1, 3)
            assert "2 of this machine's last commits are missing" in lost.why
            assert await opened.event("after") == 2
            standby.disconnect(name)
            assert await opened.kinds() == ["kept", "after"]
            assert opened.store.lost == lost
    finally:
        standby.clean_up()


async def test_a_server_that_stands_still_is_away(
    own_postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerConnection, "timeout_s", 0.5)
    url = own_postgres.url(own_postgres.new_database(), connect_timeout="2")
    async with running(url, tmp_path) as opened:
        await opened.event("before")
        own_postgres.suspend()
        with pytest.raises(Unavailable, match=r"\(writing\): no answer"):
            await opened.event("doubtful")
        own_postgres.resume()
        await opened.until(away=False)
        assert (await opened.kinds())[0] == "before"
        await opened.event("after")


async def test_a_store_closes_although_its_server_stands_still(
    own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    url = own_postgres.url(own_postgres.new_database())
    begun = trio.current_time()
    async with running(url, tmp_path) as opened:
        await opened.event("before")
        own_postgres.suspend()
        async with trio.open_nursery() as nursery:

            async def fails() -> None:
                with pytest.raises(Unavailable):
                    await opened.event("doubtful")

            nursery.start_soon(fails)
            await trio.sleep(0.1)
            opened.store.hurry()
    assert trio.current_time() - begun < 9
    own_postgres.resume()
