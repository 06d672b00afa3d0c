"""Daemons need no more than the rights that the script for roles gives them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fleetd.engine.offline.migrate_store import MigrationEnds, check, move
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.mission import MissionComplete, MissionDelete, MissionGet
from fleetd.store.machine_identity import machine_id
from tests.support.fleet import opened
from tests.support.postgres_server import SUPERUSER, LocalPostgres, run_sql
from tests.support.processes import Daemon, fleetctl

DENIED = (
    "CREATE TABLE more (id BIGINT)",
    "DROP TABLE events",
    "ALTER TABLE events ADD COLUMN more TEXT",
    "ALTER TABLE missions DISABLE TRIGGER USER",
    "TRUNCATE events",
    "CREATE INDEX more ON events (type)",
    "CREATE FUNCTION more() RETURNS BIGINT LANGUAGE sql AS 'SELECT 1::bigint'",
    "CREATE SCHEMA more",
)


@pytest.fixture(scope="module")
def ruled(home_of_module: Path) -> Iterator[LocalPostgres]:
    """Run a server with the roles of the script in its database ``fleetdb``."""
    with LocalPostgres() as server:
        server.sql("CREATE DATABASE fleetdb")
        for _ in range(2):  # again, it changes nothing
            run_script(server)
        yield server


@pytest.fixture(scope="module")
def home_of_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roles")


def run_script(server: LocalPostgres, database: str = "fleetdb") -> None:
    script = fleetctl("migrate", "--roles")
    assert script.status == 0, script
    done = subprocess.run(
        ["psql", "--no-psqlrc", server.url(database, user=SUPERUSER)],
        input=script.out,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done


def owner(server: LocalPostgres) -> str:
    return server.url("fleetdb", user="fleet_owner")


def daemons(server: LocalPostgres) -> str:
    return server.url("fleetdb", user="fleet")


def test_without_tables_a_daemon_says_who_may_make_them(
    ruled: LocalPostgres, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_DATABASE_URL", daemons(ruled))
    daemon = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log", warm=True)
    assert daemon.spawn().wait(20) == 78
    said = daemon.log.read_text()
    assert "has schema version 0" in said
    assert "fleetctl migrate --schema --to postgresql://OWNER@HOST/DATABASE" in said


async def test_a_days_work_needs_no_more_than_the_daemons_role_may(
    ruled: LocalPostgres, tmp_path: Path
) -> None:
    made = fleetctl("migrate", "--schema", "--to", owner(ruled))
    assert "has schema version" in made.out, made
    async with opened(tmp_path, store=daemons(ruled)) as fleet:
        mission = await fleet.mission()
        await fleet.agents(mission, "dispatch-1", "alice")
        await fleet.work(mission, 0, "alice")
        await fleet.lock(mission, "src/1.py", "alice")
        await fleet.write(mission, ["alice"])
        await fleet.complete(mission, 0, 1, 2, 3)
        assert (await fleet.restore(await fleet.checkpoint(mission))).success
        await fleet.do(MissionComplete(mission.id))
        await fleet.settle()
        wrong = await fleet.engine.store.check()
        assert [each for each in wrong if " is off: " not in each] == []  # it is a test's server
        await fleet.do(MissionDelete(mission.id))
        told = {"session_id": "s-1", "hook_event_name": "SessionStart", "cwd": str(tmp_path)}
        await fleet.do(HookDeliver("delivery", "claude", json.dumps(told)))
    data = tmp_path / "data"
    back = MigrationEnds(daemons(ruled), data / "squawk.db", machine_id(data), there=False)
    assert move(back, lambda *_: None).same
    assert check(back, lambda *_: None).same


async def test_a_role_of_one_developer_works_until_it_is_closed(
    ruled: LocalPostgres, tmp_path: Path
) -> None:
    ruled.sql("DROP DATABASE IF EXISTS developers")
    ruled.sql("DROP ROLE IF EXISTS bob")
    ruled.sql("CREATE DATABASE developers")
    run_script(ruled, "developers")
    made = fleetctl("migrate", "--schema", "--to", ruled.url("developers", user="fleet_owner"))
    assert made.status == 0, made
    ruled.sql("CREATE ROLE bob LOGIN IN ROLE fleet")
    ruled.sql("ALTER ROLE bob IN DATABASE developers SET search_path = fleet")
    bob = ruled.url("developers", user="bob")
    async with (
        opened(tmp_path / "bob", store=bob) as own,
        opened(tmp_path / "team", store=ruled.url("developers", user="fleet")) as team,
    ):
        mission = await own.mission()
        await own.agents(mission, "bob-1")
        assert (await team.do(MissionGet(mission.id))).id == mission.id
    ruled.sql("ALTER ROLE bob NOLOGIN")
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        run_sql(bob, "SELECT 1")


@pytest.mark.parametrize("statement", DENIED)
def test_what_would_change_a_table_is_refused_to_daemons(
    ruled: LocalPostgres, statement: str
) -> None:
    fleetctl("migrate", "--schema", "--to", owner(ruled))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run_sql(daemons(ruled), statement)


def test_tables_of_later_versions_are_the_daemons_too(ruled: LocalPostgres) -> None:
    run_sql(owner(ruled), "CREATE TABLE IF NOT EXISTS later (id BIGINT)")
    run_sql(daemons(ruled), "INSERT INTO later VALUES (1)")
    assert run_sql(daemons(ruled), "SELECT id FROM later") == [{"id": 1}]
    run_sql(owner(ruled), "DROP TABLE later")


def test_nobody_else_sees_the_tables(ruled: LocalPostgres) -> None:
    fleetctl("migrate", "--schema", "--to", owner(ruled))
    ruled.sql("CREATE ROLE stranger LOGIN")
    stranger = ruled.url("fleetdb", user="stranger")
    with pytest.raises(psycopg.OperationalError, match='permission denied for database "fleetdb"'):
        run_sql(stranger, "SELECT 1")
    ruled.sql("GRANT CONNECT ON DATABASE fleetdb TO stranger")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run_sql(stranger, "SELECT * FROM fleet.events")
