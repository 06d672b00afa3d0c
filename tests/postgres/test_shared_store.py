"""What a shared store does while its server comes and goes."""

from pathlib import Path

import pytest
import trio

from fleetd.domain.core.tx import Ring, Tx
from fleetd.protocol.errors import NotFound
from fleetd.store.api import StoreAway
from tests.postgres.shared_stores import PATIENCE_S, appends, running
from tests.support.postgres_server import LocalPostgres


async def test_what_is_written_is_read(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as opened:
        assert [await opened.event("a"), await opened.event("b")] == [1, 2]
        assert await opened.kinds() == ["a", "b"]
        assert opened.effects == [Ring(), Ring()]
        assert opened.store.engine_version.startswith("PostgreSQL 1")
        assert await opened.store.schema_version() >= 7
        assert await opened.store.check() == [
            "fsync is off: a crash of the server loses or damages what was acknowledged",
            "full_page_writes is off: a crash of the server may damage its tables",
        ]
        await opened.store.scrub()
        assert opened.store.sizes()[0] > 100_000


async def test_indexes_are_looked_through_where_the_server_can(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    postgres.sql("CREATE EXTENSION amcheck", database=database)
    postgres.sql("GRANT EXECUTE ON FUNCTION bt_index_check(regclass) TO fleet", database=database)
    async with running(postgres.url(database), tmp_path) as opened:
        sound = await opened.store.check()
        postgres.sql(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idx_events_type'::regclass",
            database=database,
        )
        found = await opened.store.check()
    assert [finding for finding in found if finding not in sound] == [
        "the index idx_events_type is not valid: REINDEX INDEX idx_events_type on the server"
    ]


async def test_a_request_that_raises_hurts_nobody(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def refused(tx: Tx) -> None:
        appends("never")(tx)
        raise NotFound("no")

    def broken(tx: Tx) -> None:
        appends("never")(tx)
        tx.run("INSERT INTO writers (machine, batch) VALUES (NULL, 1)")

    errors = []

    async def fails(rule: object) -> None:
        with pytest.raises(Exception) as raised:  # noqa: PT011
            await opened.store.write(rule)  # type: ignore[arg-type]
        errors.append(type(raised.value).__name__)

    async with running(postgres.url(database), tmp_path) as opened:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(opened.event, f"e{number}")
                nursery.start_soon(fails, refused)
                nursery.start_soon(fails, broken)
        assert await opened.event() == 21
        assert sorted(errors) == ["NotFound"] * 20 + ["NotNullViolation"] * 20


async def _connected(postgres: LocalPostgres, database: str) -> None:
    """Wait until the reader, the writer and the one that looks at the log are connected."""
    idle = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = %s AND state = 'idle'"
    with trio.fail_after(PATIENCE_S):
        while postgres.sql(idle, database)[0]["n"] != 3:  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.02)


async def test_a_connection_that_is_ended_is_not_noticed(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as opened:
        assert await opened.kinds() == []
        for number in range(3):
            await opened.event(str(number))
            # One that is ended while it connects is noticed: the server cannot be used then.
            await _connected(postgres, database)
            postgres.disconnect(database)
            assert await opened.kinds() == [str(n) for n in range(number + 1)]
        assert await opened.event("3") == 4


async def test_a_restart_is_lived_with(own_postgres: LocalPostgres, tmp_path: Path) -> None:
    url = own_postgres.url(own_postgres.new_database())
    async with running(url, tmp_path) as opened:
        await opened.event("before")
        own_postgres.stop("immediate")
        await opened.until(away=True)
        with pytest.raises(StoreAway, match="connecting") as refused:
            await opened.event("never")
        assert refused.value.values["retry"] is True
        own_postgres.start()
        await opened.until(away=False)
        assert await opened.event("after") == 2
        assert await opened.kinds() == ["before", "after"]


async def test_a_store_is_there_once_its_server_is(
    own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    url = own_postgres.url(own_postgres.new_database())
    own_postgres.stop()
    async with running(url, tmp_path) as opened:
        assert opened.store.availability.away is not None
        own_postgres.start()
        await opened.until(away=False)
        assert await opened.event() == 1


async def test_the_bell_rings_for_what_others_write(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path / "a") as one, running(url, tmp_path / "b") as other:
        await other.hears(1)
        rung = other.news
        await one.event()
        await other.hears(rung + 1)
        assert await other.event() == 2
