"""What is told of a server that cannot be used: which one, at which step, and no secret."""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetd.config import Config, Loaded, PathSettings
from fleetd.store.api import Followers, StoreAway, StoreRefused
from fleetd.store.open import open_store
from fleetd.store.postgres.store import PostgresStore
from tests.postgres.shared_stores import running
from tests.support.postgres_server import LocalPostgres, run_sql
from tests.support.processes import fleetctl

SECRET = "s3cr3t-Word"


def opened(url: str, directory: Path) -> PostgresStore:
    return PostgresStore(url, directory, lambda _: None, lambda: None, Followers(), inline=True)


async def refusal(url: str, directory: Path) -> str:
    """Return why a store is refused; neither it nor its traceback holds the secret."""
    with pytest.raises(StoreRefused) as refused:
        opened(url, directory)
    whole = "".join(traceback.format_exception(refused.value))
    assert SECRET not in whole
    return str(refused.value)


async def away(url: str, directory: Path) -> str:
    """Return why a store is away from the start on."""
    store = opened(url, directory)
    await store.aclose()
    assert store.availability.away is not None
    assert not store.availability.away.final
    return store.availability.away.message


def with_password(server: LocalPostgres, user: str, database: str) -> str:
    return f"postgresql://{user}:{SECRET}@127.0.0.1:{server.port}/{database}"


@contextmanager
def asking_for_passwords(server: LocalPostgres) -> Iterator[None]:
    """Have the server let nobody in by TCP who has not the right password."""
    file = server.data / "pg_hba.conf"
    before = file.read_text()
    rules = (
        "local all all trust",
        "host all postgres all reject",
        "host all all all scram-sha-256",
    )
    file.write_text("\n".join((*rules, before)))
    server.sql("SELECT pg_reload_conf()")
    yield
    file.write_text(before)
    server.sql("SELECT pg_reload_conf()")


async def test_what_will_not_mend_itself_is_refused(
    own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    server, name = own_postgres, own_postgres.new_database()
    place = f"postgresql://fleet@127.0.0.1:{server.port}/{name}"
    with asking_for_passwords(server):
        wrong = await refusal(with_password(server, "fleet", name), tmp_path)
        assert wrong.startswith(f"{place} cannot be used (connecting): ")
        assert 'password authentication failed for user "fleet"' in wrong
        assert "no password supplied" in await refusal(place, tmp_path)
        assert "reject" in await refusal(with_password(server, "postgres", name), tmp_path)
    missing = await refusal(with_password(server, "fleet", "nothing"), tmp_path)
    assert 'database "nothing" does not exist' in missing
    nobody = await refusal(with_password(server, "nobody", name), tmp_path)
    assert 'role "nobody" does not exist' in nobody


async def test_a_database_that_is_not_fleetds_is_refused(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    run_sql(url, "CREATE TABLE cakes (name text)")
    assert "tables of another program (cakes)" in await refusal(url, tmp_path)
    run_sql(url, "DROP TABLE cakes")
    await opened(url, tmp_path).aclose()
    run_sql(url, "UPDATE schema_version SET version = 999")
    newer = await refusal(url, tmp_path)
    assert "(opening): it has schema version 999" in newer
    assert "Install the newer fleetd" in newer


async def test_a_role_that_may_not_make_tables_is_refused(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    postgres.sql("CREATE ROLE guest LOGIN")
    try:
        postgres.sql("REVOKE ALL ON SCHEMA public FROM PUBLIC", database=database)
        assert "no schema" in await refusal(postgres.url(database, user="guest"), tmp_path)
        postgres.sql("GRANT USAGE ON SCHEMA public TO guest", database=database)
        assert "permission denied" in await refusal(postgres.url(database, user="guest"), tmp_path)
    finally:
        postgres.sql("DROP OWNED BY guest", database=database)
        postgres.sql("DROP ROLE guest")


async def test_another_encoding_is_refused(postgres: LocalPostgres, tmp_path: Path) -> None:
    postgres.sql(
        "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
    )
    try:
        assert "encoding is LATIN1" in await refusal(postgres.url("latin"), tmp_path)
    finally:
        postgres.drop_database("latin")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://fleet:{SECRET}@host:not-a-port/db",
        f"postgresql://fleet:a@{SECRET}@host/db",
        f"postgresql://fleet:a/{SECRET}@host/db",
        f"postgresql://fleet:a?{SECRET}@host/db",
        f"postgresql://fleet:a#{SECRET}%zz@host/db",
        f"postgresql://fleet:{SECRET}@host/db?nonsense=1",
        f"postgresql://fleet:{SECRET}@[::1/db",
        f"password={SECRET} nonsense=1",
        f"{SECRET}",
        f"host=h port={SECRET}",
    ],
)
async def test_a_url_that_is_none_is_refused_without_its_password(url: str, tmp_path: Path) -> None:
    assert await refusal(url, tmp_path)


async def test_what_may_pass_is_waited_for(own_postgres: LocalPostgres, tmp_path: Path) -> None:
    server, name = own_postgres, own_postgres.new_database()
    await opened(server.url(name), tmp_path).aclose()
    server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    read_only = await away(server.url(name), tmp_path)
    assert "it is read-only: default_transaction_read_only is on" in read_only
    server.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    server.sql(f"ALTER DATABASE {name} CONNECTION LIMIT 0")
    assert "too many connections" in await away(server.url(name), tmp_path)
    server.stop()
    assert "refused" in await away(with_password(server, "fleet", name), tmp_path)


async def test_a_store_that_becomes_read_only_is_away_until_it_is_not(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as store:
        await store.event("before")
        postgres.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        postgres.disconnect(database)
        await store.until(away=True)
        with pytest.raises(StoreAway, match="it is read-only"):
            await store.kinds()
        postgres.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
        await store.until(away=False)
        assert await store.event("after") == 2


async def test_a_newer_schema_stops_whoever_is_older(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as store:
        await store.event("before")
        run_sql(postgres.url(database), "UPDATE schema_version SET version = version + 1")
        with pytest.raises(StoreAway, match="has schema version") as refused:
            await store.event("never")
        assert "needs a repair" in refused.value.hint
        run_sql(postgres.url(database), "UPDATE schema_version SET version = version - 1")
        await store.until(away=False)
        assert await store.kinds() == ["before"]


async def test_two_daemons_of_one_id_are_told_apart(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path) as one, running(url, tmp_path) as other:
        await one.event("one")
        await other.event("other")
        one.store._on_own_connection(
            one.store._server.lost_commits.follow
        )  # as it does when others commit
        with pytest.raises(StoreAway, match="another daemon writes under this machine's id"):
            await one.event("never")
        assert await other.kinds() == ["one", "other"]


async def test_what_a_killed_daemon_still_had_under_way_is_no_other_daemon(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path) as before:
        await before.event("before")
    async with running(url, tmp_path) as store:
        # Its last COMMIT arrives after the next one has looked how far it had come.
        run_sql(url, "UPDATE writers SET batch = batch + 1")
        assert await store.event("after") == 2
        assert await store.event("then") == 3


async def test_no_log_and_no_list_of_the_servers_shows_a_password(
    own_postgres: LocalPostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = own_postgres.new_database()
    url = with_password(own_postgres, "fleet", name)
    with caplog.at_level(logging.DEBUG):
        async with running(url, tmp_path) as store:
            rows = own_postgres.sql("SELECT * FROM pg_stat_activity")
            assert sorted(r["application_name"] for r in rows if r["datname"] == name)
            own_postgres.stop()
            await store.until(away=True)
            assert SECRET not in store.store.where
    assert SECRET not in caplog.text + repr(rows)


async def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fleetd.store.postgres.store", raising=False)
    monkeypatch.setitem(sys.modules, "fleetd.store.postgres.store", None)
    places = PathSettings(database=str(tmp_path / "fleet.db"))
    config = Config(paths=places, store="postgresql:///fleet")
    with pytest.raises(StoreRefused, match=r"pip install '\.\[postgres\]'"):
        open_store(Loaded(config, {}, tmp_path), lambda _: None, lambda: None, Followers())


def test_a_url_that_is_none_says_where_it_was_set(tmp_path: Path) -> None:
    config = Config(paths=PathSettings(database=str(tmp_path / "fleet.db")), store="sqlite")
    origins = {"store": "environment FLEET_DATABASE_URL"}
    with pytest.raises(StoreRefused, match=r"It comes from the environment FLEET_DATABASE_URL\."):
        open_store(Loaded(config, origins, tmp_path), lambda _: None, lambda: None, Followers())


def store_seen(url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the doctor says of a store while no daemon runs."""
    monkeypatch.setenv("FLEET_DATABASE_URL", url)
    found = fleetctl("doctor", "--json").json["findings"]
    (store,) = [each for each in found if each["check"] == "store"]
    return dict(store)


def test_without_a_daemon_the_doctor_meets_what_a_start_would(
    own_postgres: LocalPostgres, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, name = own_postgres, own_postgres.new_database()
    url, place = server.url(name), f"postgresql://fleet@127.0.0.1:{server.port}/{name}"
    empty = store_seen(url, monkeypatch)
    assert (empty["ok"], "no tables yet" in empty["detail"]) == (True, True)
    assert run_sql(url, "SELECT to_regclass('schema_version')::text AS it") == [{"it": None}]
    assert not list((home / "data").iterdir())
    run_sql(url, "CREATE TABLE schema_version AS SELECT 999 AS version")
    newer = store_seen(url, monkeypatch)
    assert newer["ok"] is False
    assert f"/{name}" in newer["detail"].partition(" ")[0]
    assert " cannot be used (opening): it has schema version 999, " in newer["detail"]
    assert newer["detail"].endswith("; fleetd refuses to start.")
    with asking_for_passwords(server):
        wrong = store_seen(with_password(server, "fleet", name), monkeypatch)
        assert wrong["detail"].startswith(f"{place} cannot be used (connecting): ")
        assert (wrong["ok"], SECRET in repr(wrong)) == (False, False)
    wrong = store_seen("sqlite", monkeypatch)
    assert "It comes from the environment FLEET_DATABASE_URL." in wrong["detail"]
    server.stop()
    gone = store_seen(url, monkeypatch)
    assert gone["ok"] is False
    assert gone["detail"].endswith("; fleetd starts without it, and tries again.")
