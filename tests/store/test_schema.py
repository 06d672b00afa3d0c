"""A database that declares anything but what fleetd's migrations declare is refused by name."""

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest

from fleetd.protocol.errors import Corrupt
from fleetd.store.api import StoreRefused
from fleetd.store.sqlite.connect import open_database
from fleetd.store.sqlite.integrity_check import (
    DIGESTS,
    declared,
    differences,
    digests,
    expected_of,
)
from fleetd.store.sqlite.migrate import APPLICATION_ID, migrations, newest
from fleetd.store.sqlite.offline import open_offline
from fleetd.store.sqlite.store import SqliteStore

TRIGGER = (
    "CREATE TRIGGER friendly AFTER INSERT ON events BEGIN"
    " UPDATE missions SET title = 'Run this script'; END"
)
ENDLESS = (
    "CREATE VIEW cursors AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    " SELECT i AS consumer, i AS stream, i AS position, i AS updated_at FROM n"
)


def rewritten(table: str, words: str, others: str) -> list[str]:
    """Return the statements that put other words into what a table declares."""
    told = f"replace(sql, {words}, {others})"
    change = f"UPDATE sqlite_schema SET sql = {told} WHERE name = '{table}'"
    return ["PRAGMA writable_schema = ON", change]


HOSTILE: dict[str, tuple[list[str], str]] = {
    "a trigger": ([TRIGGER], r"it has the trigger 'friendly'"),
    "a view": (["CREATE VIEW harmless AS SELECT 1"], r"it has the view 'harmless'"),
    "a view in place of a table": (
        [
            "DROP TABLE cursors",
            ENDLESS,
        ],
        r"it has the view 'cursors'; .*it lacks the table 'cursors'",
    ),
    "a renamed column": (
        ["ALTER TABLE cursors RENAME COLUMN position TO place"],
        r"the table 'cursors' is declared differently",
    ),
    "a column that became a comment": (
        rewritten("machines", "'people.' || char(10)", "'people. '"),
        r"the table 'machines' is declared differently",
    ),
    "a space that is none": (
        rewritten("cursors", "'updated_at '", "'updated_at' || char(160, 32)"),
        r"the table 'cursors' is declared differently",
    ),
    "a table of SQLite's own that is none": (
        rewritten("sqlite_sequence", "',seq)'", "',seq,more)'"),
        r"it has the table 'sqlite_sequence'",
    ),
    "a table more": (["CREATE TABLE more (id INTEGER)"], r"it has the table 'more'"),
    "an index less": (["DROP INDEX idx_missions_status"], r"it lacks the index 'idx_missions_st"),
    "a trigger of the search that does more": (
        rewritten("search_event_gone", "' AND source IS NULL'", "' OR source IS NULL'"),
        r"the trigger 'search_event_gone' is declared differently",
    ),
    "a search over another table": (
        rewritten("search_words", "'search_documents'", "'messages'"),
        r"the table 'search_words' is declared differently",
    ),
    "no search": (
        ["DROP TABLE search_names"],
        r"it lacks the table 'search_names'; .*'search_names_",
    ),
    "a lowered version": (["PRAGMA user_version = 3"], r"schema version 3.*it has the "),
    "a name with escapes": (
        ['CREATE TABLE "\x1b[31mred" (id INTEGER)'],
        r"it has the table '\\x1b\[31mred'",
    ),
}


@pytest.fixture
def made(database: Path) -> Path:
    open_database(database, None).close()
    return database


def run(path: Path, statements: list[str]) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_schema_that_was_changed_is_refused_by_name_at_the_start(made: Path, what: str) -> None:
    statements, named = HOSTILE[what]
    run(made, statements)
    before = made.read_bytes()
    with pytest.raises(StoreRefused, match=named) as refusal:
        SqliteStore(made, lambda _: None)
    assert "fleetctl restore FILE" in str(refusal.value)
    assert made.read_bytes() == before
    assert "\x1b" not in str(refusal.value)


@pytest.mark.parametrize("what", HOSTILE)
def test_a_copy_with_a_schema_that_was_changed_is_refused_by_name(made: Path, what: str) -> None:
    statements, named = HOSTILE[what]
    run(made, statements)
    with pytest.raises(Corrupt, match=named), open_offline(made):
        pass


async def test_the_doctor_names_what_was_declared_beside_the_daemon(
    open_store: Callable[..., Any],
) -> None:
    async with open_store() as store:
        assert await store.check() == []
        await store.write(lambda tx: tx.run(TRIGGER))
        assert await store.check() == ["it has the trigger 'friendly'"]


@pytest.mark.parametrize("version", [number for number, _ in migrations()])
def test_every_version_of_the_schema_is_known(version: int) -> None:
    connection = apsw.Connection(":memory:")
    for number, sql in migrations():
        if number <= version:
            connection.execute(sql)
    assert differences(connection, version) == []
    connection.execute(TRIGGER.replace("missions SET title", "store_meta SET value"))
    assert differences(connection, version) == ["it has the trigger 'friendly'"]


def test_the_checksums_of_the_schemas_are_current() -> None:
    """Did a migration change? Run: make generate. One that was released never changes."""
    folder = resources.files("fleetd.store") / "migrations" / "sqlite"
    assert json.loads((folder / DIGESTS).read_text("utf-8")) == digests()


def test_without_a_known_checksum_the_migrations_themselves_are_compared(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.store.sqlite.integrity_check._digests", dict)
    connection = apsw.Connection(str(made))
    assert connection.pragma("application_id") == APPLICATION_ID
    assert differences(connection, newest()) == []
    assert declared(connection) == expected_of(newest())
    connection.close()
