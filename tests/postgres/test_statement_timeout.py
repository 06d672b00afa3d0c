"""A request that takes too long fails alone: the server is there, and others go on."""

import time
from pathlib import Path

import pytest
import trio

from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import Unavailable
from fleetd.store.postgres import connection
from tests.postgres.shared_stores import Opened, appends, running
from tests.support.postgres_server import SUPERUSER, LocalPostgres, run_sql

SETTING = "SELECT current_setting('statement_timeout')"


def stands_still(tx: Tx) -> None:
    tx.value("SELECT 1")
    time.sleep(0.8)
    tx.value("SELECT 1")


def stands_still_at_its_end(tx: Tx) -> None:
    appends("never")(tx)
    time.sleep(0.8)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (f"transaction_session_timeout = {ms}".encode() for ms in (4_000, 200))
    assert before in connection._SETTINGS
    monkeypatch.setattr(connection, "_SETTINGS", connection._SETTINGS.replace(before, after))


async def test_the_server_gives_up_whatever_is_asked(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as opened:
        assert await opened.store.write(lambda tx: tx.value(SETTING)) == "8s"
        assert await opened.store.read(lambda tx: tx.value(SETTING)) == "8s"


async def test_limits_of_the_server_for_sessions_and_transactions_do_not_apply(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    limits = [
        row["name"]
        for row in run_sql(
            postgres.url(database, user=SUPERUSER),
            "SELECT name FROM pg_settings"
            " WHERE name IN ('idle_session_timeout', 'transaction_timeout')",
        )
    ]
    if not limits:
        pytest.skip("PostgreSQL 13 has none")
    for limit in limits:
        postgres.sql(f"ALTER DATABASE {database} SET {limit} = '5s'")
        (seen,) = run_sql(postgres.url(database), f"SHOW {limit}")
        assert seen[limit] == "5s"
    async with running(postgres.url(database), tmp_path) as opened:
        for limit in limits:
            sql = f"SELECT current_setting('{limit}')"
            assert await opened.store.write(lambda tx, sql=sql: tx.value(sql)) == "0"
            assert await opened.store.read(lambda tx, sql=sql: tx.value(sql)) == "0"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("rule", [stands_still, stands_still_at_its_end])
async def test_who_stands_still_while_writing_fails_alone(
    rule: object, postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as opened:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(opened.event, f"good{number}")
            nursery.start_soon(_refused, opened, opened.store.write, rule)
        assert sorted(await opened.kinds()) == ["good0", "good1", "good2"]


@pytest.mark.usefixtures("impatient")
async def test_who_stands_still_while_reading_fails_alone(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as opened:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_refused, opened, opened.store.read, stands_still)
            nursery.start_soon(opened.kinds)
        assert await opened.event() == 1


async def _refused(opened: Opened, run: object, rule: object) -> None:
    assert callable(run)
    with pytest.raises(Unavailable, match="too long between two statements"):
        await run(rule)
    assert opened.store.availability.away is None
