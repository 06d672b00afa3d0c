"""Who may connect to the database, and do no more, can ring the bell of daemons and no more."""

from pathlib import Path

import pytest
import trio

from fleetd.store.postgres import reconnect
from fleetd.store.postgres.batch import CHANNEL
from tests.postgres.shared_stores import PATIENCE_S, running
from tests.support.postgres_server import LocalPostgres, run_sql


@pytest.mark.parametrize("said", ["hello", "9223372036854775000"])
async def test_what_a_stranger_says_is_not_believed(
    said: str, postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as opened:
        await opened.event("before")
        await opened.hears(1)
        run_sql(url, f"SELECT pg_notify({CHANNEL}, '{said}')")
        await opened.hears(2)
        postgres.disconnect(database)
        async with running(url, tmp_path / "b") as other:
            assert await other.event("after") == 2
        assert await opened.kinds() == ["before", "after"]
        assert await opened.event("last") == 3
        assert opened.store.lost is None


async def test_what_others_commit_is_known_a_moment_later(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnect, "HEARTBEAT_S", 1_000)
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as opened, running(url, tmp_path / "b") as other:
        await opened.hears(1)
        for _ in range(3):
            await other.event()
        lost_commits = opened.store._server.lost_commits
        with trio.fail_after(PATIENCE_S):
            while lost_commits._known is None or lost_commits._known.end < 3:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.01)
