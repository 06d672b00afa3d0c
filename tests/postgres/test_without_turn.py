"""Rules that need no turn: a heartbeat is renewed while another daemon has the turn."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.domain.cluster import membership
from fleetd.domain.cluster.membership import HEARTBEAT_MS, LOST_MS, UNBROKEN_MS
from fleetd.domain.core.tx import Tx
from fleetd.engine.jobs.cluster import heartbeat, leave_cluster, machine_name
from fleetd.protocol.errors import Unavailable
from fleetd.store.api import WithoutTurn
from fleetd.store.postgres import connection
from tests.postgres.proxy import Moment, Proxy
from tests.postgres.shared_stores import PATIENCE_S, appends, running, turn_taken
from tests.support.fleet import Clock, Fleet, opened
from tests.support.postgres_server import LocalPostgres, run_sql

_ADD = (
    "INSERT INTO machines (id, name, status, started_at, heard_at, heard_awake_ms,"
    " since_awake_ms) VALUES (:id, :id, 'here', '', '', 0, 0)"
)


def add_machine(tx: Tx, name: str = "x") -> None:
    tx.run(_ADD, id=name)


def only_machine(url: str) -> dict[str, Any]:
    [row] = run_sql(url, "SELECT * FROM machines")
    return row


def status_of_x(url: str) -> object:
    [row] = run_sql(url, "SELECT status FROM machines WHERE id = 'x'")
    return row["status"]


async def stay_in_touch(fleet: Fleet, clock: Clock, for_ms: int) -> None:
    for _ in range(for_ms // HEARTBEAT_MS):
        clock.pass_by(HEARTBEAT_MS)
        await heartbeat(fleet.engine, thorough=False)


async def test_a_heartbeat_and_a_goodbye_do_not_wait_for_the_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    clock, url = Clock(), postgres.url(database)
    async with opened(tmp_path, store=url, clock=clock) as fleet:
        await heartbeat(fleet.engine)
        batch = run_sql(url, "SELECT batch FROM writers")
        for thorough in (False, True):
            clock.pass_by(HEARTBEAT_MS)
            with turn_taken(url), trio.fail_after(PATIENCE_S):
                await heartbeat(fleet.engine, thorough=thorough)
            assert only_machine(url)["heard_at"] == clock.now
        clock.pass_by(HEARTBEAT_MS)
        with turn_taken(url), trio.fail_after(PATIENCE_S):
            await leave_cluster(fleet.engine)
        found = only_machine(url)
        assert (found["status"], found["heard_at"]) == ("left", clock.now)
        assert run_sql(url, "SELECT batch FROM writers") == batch


async def test_a_daemon_that_stops_says_goodbye_for_itself_only(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with opened(tmp_path, store=url) as fleet:
        await heartbeat(fleet.engine)
        run_sql(url, "UPDATE machines SET nonce = 'its successor'")
        await leave_cluster(fleet.engine)
        assert only_machine(url)["status"] == "here"


@pytest.mark.parametrize(
    ("change", "is_needed"),
    [
        ("status = 'here'", False),
        ("status = 'lost'", True),
        ("status = 'left'", True),
        ("nonce = 'another daemon'", True),
        ("name = 'another name'", True),
        (f"heard_awake_ms = heard_awake_ms - {UNBROKEN_MS}", True),
        (f"heard_awake_ms = heard_awake_ms - {UNBROKEN_MS - HEARTBEAT_MS}", False),
    ],
)
@pytest.mark.parametrize("thorough", [False, True])
async def test_a_heartbeat_is_renewed_only_while_nothing_else_has_changed(
    postgres: LocalPostgres,
    database: str,
    tmp_path: Path,
    change: str,
    is_needed: bool,
    thorough: bool,
) -> None:
    clock, url = Clock(), postgres.url(database)
    async with opened(tmp_path, store=url, clock=clock) as fleet:
        engine = fleet.engine
        await heartbeat(engine)
        clock.pass_by(HEARTBEAT_MS)
        run_sql(url, f"UPDATE machines SET {change}")
        before = only_machine(url)
        assert engine.instance
        own = (machine_name(engine), engine.instance.nonce)
        renewed = await engine.write(membership.renew, *own, thorough=thorough)
        assert (renewed is None) == is_needed
        assert (only_machine(url) == before) == is_needed


async def test_a_machine_that_is_heard_of_just_in_time_is_not_lost(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    """It is heard of after the daemon that misses it has looked, and before it writes that."""

    def commit(renewing: connection.ServerConnection) -> None:
        waits = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE 'UPDATE machines SET status%'"
        )
        deadline = time.monotonic() + PATIENCE_S
        while not run_sql(url, waits):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        renewing.execute("COMMIT")

    clock, url = Clock(), postgres.url(database)
    async with opened(tmp_path, store=url, clock=clock) as fleet:
        await heartbeat(fleet.engine)
        await stay_in_touch(fleet, clock, LOST_MS)
        await fleet.engine.write(lambda tx, _: add_machine(tx))
        with closing(connection.connect(url, "x")) as renewing:
            renewing.execute("BEGIN")
            heard = f"UPDATE machines SET heard_awake_ms = {clock.uptime().awake_ms} WHERE id = 'x'"
            renewing.execute(heard.encode())
            with ThreadPoolExecutor(1) as aside:
                committing = aside.submit(commit, renewing)
                lost = await fleet.engine.write(membership.lose_machine, "x")
                committing.result()
            assert not lost
        assert status_of_x(url) == "here"
        await stay_in_touch(fleet, clock, LOST_MS)
        assert status_of_x(url) == "here"
        await stay_in_touch(fleet, clock, HEARTBEAT_MS)
        assert status_of_x(url) == "lost"


async def test_its_commit_does_not_wait_for_the_disk_and_others_do(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def setting(tx: Tx) -> str:
        return str(tx.value("SELECT current_setting('synchronous_commit')"))

    async with running(postgres.url(database), tmp_path) as one:
        assert await one.store.write(WithoutTurn(setting)) == "off"
        assert await one.store.write(setting) == "on"
        assert one.store._committer.commits.count == 1


async def test_rows_are_as_in_any_other_transaction(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    query = (
        "SELECT CAST(:text AS TEXT) AS text, CAST(:number AS BIGINT) AS number, NULL AS nothing,"
        " 10 % 4 AS remainder, 1 = 1 AS truth"
    )
    params = {"text": "it's ':text'; -- % \\ é", "number": -(2**40)}
    async with running(postgres.url(database), tmp_path) as one:
        for read in (
            lambda tx: tx.all(query, **params),
            lambda tx: tx.tuples(query, **params),
            lambda tx: tx.one(query, **params),
            lambda tx: tx.value("SELECT 'x' WHERE 1 = 0"),
            lambda tx: tx.run("UPDATE machines SET name = '' WHERE id = ''"),
        ):
            assert await one.store.write(WithoutTurn(read)) == await one.store.write(read)


@pytest.mark.parametrize("many", [False, True])
async def test_only_one_statement_needs_no_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path, many: bool
) -> None:
    def two(tx: Tx) -> None:
        if many:
            tx.many(_ADD, [{"id": "x"}, {"id": "y"}])
        add_machine(tx, "x")
        add_machine(tx, "y")

    async with running(postgres.url(database), tmp_path) as one:
        with pytest.raises(TypeError, match="runs one statement"):
            await one.store.write(WithoutTurn(two))
        assert await one.event("goes on") == 1
        kept = run_sql(postgres.url(database), "SELECT id FROM machines")
        assert kept == ([] if many else [{"id": "x"}])


async def test_they_go_before_those_that_wait_for_a_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    begun, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()
    order: list[str] = []

    def blocks(_: Tx) -> None:
        token.run_sync_soon(begun.set)
        go_on.wait(PATIENCE_S)

    def rule(name: str) -> Callable[[Tx], None]:
        return lambda _: order.append(name)

    async with running(postgres.url(database), tmp_path) as one, trio.open_nursery() as nursery:
        nursery.start_soon(one.store.write, blocks)
        with trio.fail_after(PATIENCE_S):
            await begun.wait()
        for each in (rule("a"), WithoutTurn(rule("x")), rule("b"), WithoutTurn(rule("y"))):
            nursery.start_soon(one.store.write, each)
            await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    assert order == ["x", "y", "a", "b"]


async def test_what_the_server_refuses_is_an_error_of_that_job_only(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as one:
        await one.store.write(WithoutTurn(add_machine))
        outcomes: list[object] = []

        async def write(rule: Callable[[Tx], object]) -> None:
            try:
                outcomes.append(await one.store.write(rule))
            except Exception as error:  # noqa: BLE001 - what it is, is asserted
                outcomes.append(type(error).__name__)

        async with trio.open_nursery() as nursery:
            for rule in (appends("a"), WithoutTurn(add_machine), appends("b")):
                nursery.start_soon(write, rule)
        assert sorted(outcomes, key=str) == [1, 2, "UniqueViolation"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_connection_is_no_failure(
    postgres: LocalPostgres, database: str, tmp_path: Path, when: Moment
) -> None:
    def touch(tx: Tx) -> list[tuple[Any, ...]]:
        return tx.tuples("UPDATE machines SET name = 'y' WHERE id = 'x' RETURNING name")

    with Proxy(postgres.port) as proxy:
        url = f"postgresql://fleet@127.0.0.1:{proxy.port}/{database}?sslmode=disable"
        async with running(url, tmp_path) as one:
            await one.store.write(WithoutTurn(add_machine))
            proxy.cut(b"UPDATE machines", when)
            assert await one.store.write(WithoutTurn(touch)) == [("y",)]
            assert proxy.cuts == 1
            assert one.store.availability.away is None


async def test_another_schema_is_noticed(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    async with running(postgres.url(database), tmp_path) as one:
        await one.store.write(WithoutTurn(add_machine))
        run_sql(postgres.url(database), "UPDATE schema_version SET version = version + 1")
        with pytest.raises(Unavailable, match="Install the newer fleetd"):
            await one.store.write(WithoutTurn(lambda tx: tx.run("DELETE FROM machines")))
        await one.until(away=True)
        assert only_machine(postgres.url(database))["id"] == "x"
