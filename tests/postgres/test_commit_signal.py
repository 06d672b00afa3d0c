"""Daemons tell each other of commits, seldom, and listen only while somebody follows."""

from pathlib import Path

import psycopg
import pytest
import trio

from fleetd.store.postgres import commit_signal
from fleetd.store.postgres.batch import LISTENERS
from fleetd.store.postgres.commit_signal import CHANNEL, LOOK_S, NOTIFY_S
from fleetd.store.postgres.connection import connect
from tests.postgres.shared_stores import PATIENCE_S, Opened, running
from tests.support.postgres_server import LocalPostgres, run_sql


async def knows(opened: Opened, end: int) -> None:
    """Wait until a store knows that the log has come so far."""
    lost_commits = opened.store._server.lost_commits
    with trio.fail_after(PATIENCE_S):
        while lost_commits._known is None or lost_commits._known.end < end:  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.01)


def listener(url: str) -> "psycopg.Connection[object]":
    """Return a connection that hears every notification of a store."""
    connection = psycopg.connect(url, autocommit=True)
    row = connection.execute(f"SELECT {CHANNEL}").fetchone()
    assert row is not None
    connection.execute(f"SELECT pg_advisory_lock_shared({LISTENERS})")
    connection.execute(f'LISTEN "{row[0]}"')
    return connection


def heard_by(connection: "psycopg.Connection[object]", seconds: float) -> int:
    """Return how many notifications come within a time."""
    return len(list(connection.notifies(timeout=seconds)))


@pytest.mark.parametrize("said", ["hello", "9223372036854775000"])
async def test_what_a_stranger_says_is_not_believed(
    said: str, postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as opened:
        await opened.event("before")
        with opened.followers.waiting():
            await opened.listens()
            before = opened.news
            run_sql(url, f"SELECT pg_notify({CHANNEL}, '{said}')")
            await opened.hears(before + 1)
        postgres.disconnect(database)
        async with running(url, tmp_path / "b") as other:
            assert await other.event("after") == 2
        assert await opened.kinds() == ["before", "after"]
        assert await opened.event("last") == 3
        assert opened.store.lost is None


async def test_followers_hear_of_others_commits_and_nobody_else_listens(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_signal, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(commit_signal, "LOOK_S", 1_000)
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as opened, running(url, tmp_path / "b") as other:
        await other.event()
        await knows(opened, 1)  # by its heartbeat
        assert not opened.store._signal._listening
        with opened.followers.waiting():
            await opened.listens()
            before = opened.news
            await other.event()
            await opened.hears(before + 1)
        assert other.store._committer.has_listeners
        await opened.listens(listens=False)
        await other.event()
        assert not other.store._committer.has_listeners


async def test_what_others_commit_is_known_soon_where_somebody_follows_or_reads(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_signal, "HEARTBEAT_S", 1_000)
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as opened, running(url, tmp_path / "b") as other:
        for _ in range(3):
            await other.event()
        await opened.kinds()
        await knows(opened, 3)
        await other.event()
        with opened.followers.waiting():
            await knows(opened, 4)


async def test_many_commits_are_told_of_a_few_times(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as opened:
        await opened.event()
        with listener(url) as stranger:
            begun = trio.current_time()
            for _ in range(200):
                await opened.event()
            await trio.sleep(2 * NOTIFY_S)
            most = (trio.current_time() - begun) / NOTIFY_S + 2
            assert 1 <= heard_by(stranger, 0.2) <= most


@pytest.mark.parametrize("optimistic", [False, True])
async def test_nobody_is_told_where_nobody_listens(
    postgres: LocalPostgres, database: str, tmp_path: Path, optimistic: bool
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path / "a", optimistic=optimistic) as opened:
        await opened.event()
        with listener(url) as stranger:
            await opened.event()
            await trio.sleep(4 * NOTIFY_S)
            assert heard_by(stranger, 0) >= 1
            stranger.execute(f"SELECT pg_advisory_unlock_shared({LISTENERS})")
            for _ in range(5):
                await opened.event()
            await trio.sleep(4 * NOTIFY_S)
            assert heard_by(stranger, 0) == 0


@pytest.mark.parametrize("optimistic", [False, True])
async def test_who_begins_to_listen_waits_for_the_turn_and_hears_of_the_next(
    postgres: LocalPostgres,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimistic: bool,
) -> None:
    monkeypatch.setattr(commit_signal, "LOOK_S", 1_000)
    url = postgres.url(database)
    async with (
        running(url, tmp_path / "a") as opened,
        running(url, tmp_path / "b", optimistic=optimistic) as other,
    ):
        await other.event()
        with connect(url, "turn") as turn, opened.followers.waiting():
            turn.execute("BEGIN")
            turn.execute(f"SELECT pg_try_advisory_xact_lock({LISTENERS})")
            await trio.sleep(2 * NOTIFY_S)
            assert not opened.store._signal._listening
            turn.execute("COMMIT")
            await opened.listens()
            before = opened.news
            await other.event()
            await opened.hears(before + 1)


async def test_a_commit_that_nobody_was_told_of_is_found(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_signal, "HEARTBEAT_S", 1_000)
    monkeypatch.setattr(commit_signal, "_NOTIFY", b"SELECT 1")
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as opened, running(url, tmp_path / "b") as other:
        with opened.followers.waiting(), listener(url) as stranger:
            await opened.listens()
            before = opened.news
            begun = trio.current_time()
            await other.event()
            await opened.hears(before + 1)
            assert trio.current_time() - begun < LOOK_S + PATIENCE_S / 2
            assert heard_by(stranger, 0.1) == 0
