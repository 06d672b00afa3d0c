"""The server that tests run: it is real, alone in its directory, and gone afterwards."""

import os
import signal
import subprocess
import sys
import time

import psycopg
import pytest

from tests.support.postgres_server import LocalPostgres, run_sql

MADE = "CREATE TABLE kept (word TEXT)"


def words(url: str) -> list[str]:
    return [row["word"] for row in run_sql(url, "SELECT word FROM kept")]


def test_a_database_is_reached_by_socket_and_by_tcp(postgres: LocalPostgres, database: str) -> None:
    run_sql(postgres.url(database), MADE)
    run_sql(postgres.url(database), "INSERT INTO kept VALUES ('a')")
    assert words(postgres.url(database, tcp=True, application_name="x y")) == ["a"]
    assert words(postgres.url(database, application_name="x y")) == ["a"]


def test_who_owns_a_database_is_no_superuser(postgres: LocalPostgres, database: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run_sql(postgres.url(database), "CREATE ROLE another")


def test_what_was_committed_outlives_a_kill_and_a_restart(own_postgres: LocalPostgres) -> None:
    url = own_postgres.url(own_postgres.new_database())
    run_sql(url, MADE)
    run_sql(url, "INSERT INTO kept VALUES ('a')")
    own_postgres.kill()
    own_postgres.start()
    own_postgres.restart("immediate")
    assert words(url) == ["a"]


def test_a_suspended_server_answers_nobody_and_goes_on(own_postgres: LocalPostgres) -> None:
    own_postgres.suspend()
    with pytest.raises(psycopg.OperationalError):
        run_sql(own_postgres.url(connect_timeout="2"), "SELECT 1")
    own_postgres.resume()
    assert run_sql(own_postgres.url(user="postgres"), "SELECT 1 AS n") == [{"n": 1}]


def test_a_standby_follows_and_is_read_only_until_it_is_promoted(
    own_postgres: LocalPostgres,
) -> None:
    name = own_postgres.new_database()
    run_sql(own_postgres.url(name), MADE)
    standby = own_postgres.standby()
    try:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            run_sql(standby.url(name), "INSERT INTO kept VALUES ('a')")
        own_postgres.kill()
        standby.promote()
        run_sql(standby.url(name), "INSERT INTO kept VALUES ('a')")
        assert words(standby.url(name)) == ["a"]
    finally:
        standby.clean_up()


def test_a_server_dies_with_whoever_started_it() -> None:
    begin = (
        "from tests.support.postgres_server import LocalPostgres;"
        " s = LocalPostgres(); s.create(); s.start(); "
    )
    told = "print(s.directory, s.process.pid, flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", begin + told], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        directory, pid = process.stdout.readline().split()
        assert os.path.exists(f"/proc/{pid}")
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while os.path.exists(directory):
        assert time.monotonic() < deadline, f"{directory} is still there"
        time.sleep(0.02)
