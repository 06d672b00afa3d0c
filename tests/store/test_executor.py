"""What a rule's statements cost beside themselves, and what they return."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import InvalidState
from fleetd.store.sqlite.connect import STATEMENTS
from fleetd.store.sqlite.database_files import reached
from fleetd.store.sqlite.group_commit import SqliteExecutor
from fleetd.store.sqlite.store import SqliteStore
from tests.support.fleet import Fleet, opened


@pytest.fixture
def connection() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE cakes (name, layers); INSERT INTO cakes VALUES ('opera', 6)")
    return connection


def statements(connection: apsw.Connection) -> list[str]:
    """Return the list of every statement that a connection runs from now on."""
    seen: list[str] = []

    def trace(_: Any, sql: str, __: Any) -> bool:
        seen.append(sql)
        return True

    connection.exec_trace = trace
    return seen


def test_the_names_of_columns_follow_the_schema(connection: apsw.Connection) -> None:
    tx = Tx(SqliteExecutor(connection))
    wanted = {"name": "opera", "layers": 6}
    for _ in range(3):
        assert tx.all("SELECT * FROM cakes") == [wanted]
    connection.execute("ALTER TABLE cakes ADD COLUMN price DEFAULT 4")
    for _ in range(3):
        assert tx.one("SELECT * FROM cakes") == {**wanted, "price": 4}


def test_names_are_asked_for_once_for_each_text(connection: apsw.Connection) -> None:
    execute = SqliteExecutor(connection)
    tx = Tx(execute)
    assert tx.all("SELECT name FROM cakes WHERE layers > :n", n=9) == []
    assert execute._names == {}, "without a row there is nothing to ask"
    for number in range(2 * STATEMENTS):
        assert tx.one(f"SELECT name, {number} AS number FROM cakes WHERE layers > 0") == {
            "name": "opera",
            "number": number,
        }
        assert len(execute._names) <= STATEMENTS


def test_a_value_and_whether_there_is_any(connection: apsw.Connection) -> None:
    tx = Tx(SqliteExecutor(connection))
    assert tx.value("SELECT layers, name FROM cakes") == 6
    assert tx.value("SELECT layers FROM cakes WHERE name = :name", name="tart") is None
    assert tx.value("UPDATE cakes SET layers = 7 RETURNING layers") == 7
    assert tx.exists("SELECT 1 FROM cakes")
    assert not tx.exists("SELECT 1 FROM cakes WHERE layers < 0")


def test_work_beside_the_statements_of_rules_has_no_limit_of_time(
    connection: apsw.Connection,
) -> None:
    execute = SqliteExecutor(connection, limit_s=0.0)
    endless = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000)"
        " SELECT count(*) FROM n"
    )
    for run in (execute, execute.tuples):
        with pytest.raises(apsw.InterruptError):
            run(endless, {})
        assert execute._until == math.inf
        assert connection.execute(endless).get == 300_000


async def test_a_lone_write_costs_begin_and_commit(
    open_store: Callable[..., Any], database: Path, tools: Any
) -> None:
    def refuse(tx: Tx) -> None:
        tools.put("refused")(tx)
        raise InvalidState("not now")

    async with open_store() as store:
        await store.write(tools.put("before"))
        seen = statements(store._writer_connection)
        with pytest.raises(InvalidState):
            await store.write(refuse)
        assert [sql.split()[0] for sql in seen] == ["BEGIN", "INSERT", "INSERT", "ROLLBACK"]
        del seen[:]
        await tools.Batch(store).run({"one": tools.put("one"), "two": refuse})
        assert len([sql for sql in seen if sql.startswith("SAVEPOINT")]) == 2
    assert tools.keys_in(database) == {"before", "one"}


async def mark_and_end(fleet: Fleet) -> tuple[int, int]:
    (row,) = fleet.sql("SELECT max(seq) AS seq FROM events")
    return reached(fleet.database), row["seq"]


async def test_the_mark_follows_the_log_without_being_asked_for(tmp_path: Path) -> None:
    """However events are appended: one, many at once, in a rehearsal."""
    async with opened(tmp_path) as fleet:
        store = fleet.engine.store
        assert isinstance(store, SqliteStore)
        mission = await fleet.mission(3)
        seen = statements(store._writer_connection)
        await fleet.happen(3, mission_id=mission.id)
        mark, end = await mark_and_end(fleet)
        assert mark == end
        assert not [sql for sql in seen if "max(seq) FROM events" in sql]
        checkpoint = await fleet.checkpoint(mission)
        await fleet.complete(mission, 1, 2)
        for preview in (True, False):
            await fleet.restore(checkpoint, dry_run=preview)
            mark, end = await mark_and_end(fleet)
            assert mark == end, preview


async def test_many_rows_at_once_may_be_events(open_store: Callable[..., Any]) -> None:
    insert = (
        "INSERT INTO events (type, stream, timestamp, activity, data_json)"
        " VALUES ('note', 'fleet', '2026-01-01T00:00:00.000Z', 0, '{}')"
    )

    def append(tx: Tx) -> int:
        tx.log_end = tx.value(f"{insert} RETURNING seq")
        return tx.log_end

    def more(tx: Tx) -> None:
        append(tx)
        tx.many(insert, [{}, {}, {}])

    def tried(tx: Tx) -> None:
        with tx.rehearsal():
            append(tx)

    async with open_store() as store:
        first = await store.write(append)
        assert reached(store.path) == first
        await store.write(more)
        assert reached(store.path) == first + 4
        await store.write(tried)
        assert reached(store.path) == first + 4
