"""What is asked all day finds its rows by an index on a server wherever SQLite does."""

import contextlib
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from benchmarks.growth.filling import mission_id
from fleetd.domain.core.tx import Row
from fleetd.engine.jobs import daily
from fleetd.protocol.errors import FleetError
from fleetd.protocol.requests.sortie import SortieStart
from fleetd.store.postgres.connection import PostgresExecutor, translated
from fleetd.store.sqlite.migrate import schema
from tests.rules.system.test_growth import ASKED, GrownStore, StatementSteps
from tests.support.fleet import DAY, Fleet, opened
from tests.support.postgres_server import LocalPostgres, run_sql

# They hold a row for each machine, harness or kind of thing, or each request of the last 5 s.
SMALL = {
    *("counters", "hook_counts", "hook_names", "machines"),
    *("store_meta", "tallies", "unconfirmed_asks", "writers"),
}
MADE = (
    "INSERT INTO missions (id, title, status, project_dir, created_at, updated_at)"
    " VALUES (%s, 'Filled', 'completed', '/srv/project-3', '2026-01-01T00:00:00.000Z', '')"
)

# The server believes that there is much of everything, so that it weighs as it would then.
MANY = """
    UPDATE pg_class SET relpages = 1, reltuples = 1000000
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')
    AND relname <> ALL (%s)
"""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> dict[str, Row]:
    """Return what is asked from now on, each statement with what was bound in it first."""
    seen: dict[str, Row] = {}
    for name in ("__call__", "tuples"):
        ask = getattr(PostgresExecutor, name)

        def noting(self: PostgresExecutor, sql: str, params: Row, ask: Any = ask) -> Any:
            seen.setdefault(sql, dict(params))
            return ask(self, sql, params)

        monkeypatch.setattr(PostgresExecutor, name, noting)
    return seen


async def a_day(fleet: Fleet) -> None:
    """Do what is asked all day, and the daily work."""
    mission = await fleet.mission(4)
    await fleet.agents(mission, "worker", "veteran")
    sortie = (await fleet.sorties(mission))[0].id
    await fleet.do(SortieStart(sortie, "worker"))
    await fleet.checkpoint(mission)
    store = GrownStore(fleet, StatementSteps(), mission.id, sortie)
    for ask in ASKED.values():
        with contextlib.suppress(FleetError):  # what it asks for need not be there
            await ask(store)
    fleet.clock.pass_by(40 * DAY)
    await daily.tidy(fleet.engine)


def parts(plan: Any) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from parts(part)


def read_whole_here(connection: Any, sql: str, values: Row) -> set[str]:
    """Return what a statement reads from end to end on the server, by its name in the statement."""
    explain = f"EXPLAIN (FORMAT JSON) {translated(sql)}"
    (answer,) = connection.execute(explain.encode(), values).fetchone()
    return {
        part["Alias"]
        for part in parts(answer[0]["Plan"])
        if part["Node Type"] == "Seq Scan" and part["Relation Name"] not in SMALL
    }


def read_whole_there(sqlite: apsw.Connection, sql: str, values: Row) -> set[str]:
    """Return the same of SQLite."""
    told = [str(row[3]) for row in sqlite.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    return {found[1] for detail in told if (found := re.match(r"SCAN (\w+)", detail))}


async def test_nothing_is_read_whole_that_sqlite_does_not_read_whole(
    postgres: LocalPostgres, database: str, heard: dict[str, Row], tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with opened(tmp_path, store=url):
        pass
    for number in (0, 3, 12, 20, 50):
        run_sql(url, MADE, mission_id(number))
    async with opened(tmp_path, store=url) as fleet:
        await a_day(fleet)
    postgres.sql(MANY, [*SMALL], database=database)
    asked = {
        sql: values
        for sql, values in heard.items()
        # What goes whole is read whole.
        if re.match(r"SELECT|WITH|UPDATE|DELETE FROM \w+ WHERE|INSERT", sql)
    }
    worse = {}
    with (
        closing(apsw.Connection(":memory:")) as sqlite,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        sqlite.execute(schema())
        connection.execute("SET enable_seqscan = off")
        for sql, values in asked.items():
            more = read_whole_here(connection, sql, values) - read_whole_there(sqlite, sql, values)
            if more:
                worse[sql] = more
    assert worse == {}, json.dumps({sql: sorted(names) for sql, names in worse.items()}, indent=1)
    assert len(asked) > 150


@pytest.mark.parametrize(
    ("function", "condition", "index"),
    [
        ("search_words", "words_index @@ 'word'::tsquery", "idx_search_documents_words"),
        ("search_names", "search_parts(names) @> '{abc}'", "idx_search_documents_names"),
    ],
)
async def test_documents_are_searched_by_their_indices(
    postgres: LocalPostgres,
    database: str,
    tmp_path: Path,
    function: str,
    condition: str,
    index: str,
) -> None:
    url = postgres.url(database)
    async with opened(tmp_path, store=url):
        pass
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        question = f"SELECT id FROM search_documents WHERE {condition}"
        (plan,) = connection.execute(f"EXPLAIN (FORMAT JSON) {question}".encode()).fetchone()
        assert [part.get("Index Name") for part in parts(plan[0]["Plan"])] == [None, index]
        # The function asks in these words; its plan shows nothing of them.
        (text,) = connection.execute(
            "SELECT prosrc FROM pg_proc WHERE proname = %s", [function]
        ).fetchone()
        assert condition.partition(" '")[0] in text
