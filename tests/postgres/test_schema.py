"""Both engines have one schema: SQLite's own text, its types put into PostgreSQL's words."""

import re
from typing import Any

import psycopg
import pytest

from fleetd.store.postgres.migrate import migrations
from fleetd.store.sqlite.migrate import schema
from tests.support.postgres_server import LocalPostgres

# What only a store that several share needs.
OWN_TABLES = {"schema_version", "writers"}
# In place of SQLite's AUTOINCREMENT and INTEGER PRIMARY KEY.
NUMBERED = {"events", "lock_waits", "hook_deliveries"}
IDENTITY = {"hook_deliveries.seq"}
OWN_TRIGGERS = {
    ("briefings", "number_briefing"),
    ("events", "number_event"),
    ("events", "number_event_kept"),
    ("lock_waits", "number_lock_wait"),
    ("lock_waits", "number_lock_wait_kept"),
}

# They fill SQLite's tables of words and names, which a server has as an index and a column.
SQLITES_SEARCH = (
    "search_document_made",
    "search_document_gone",
    "search_document_changed",
)
# Each hook updates these tables, and would run all their CHECKs: their columns have domains.
DOMAINS = {"missions", "agents", "sessions"}
# Each hook adds a document, and a CHECK of its kind takes as long as an index.
UNCHECKED = {"search_documents.search_documents_kind_check"}
# How a server finds words and parts of names, in the place of SQLite's full-text search.
OWN_SEARCH = {
    "search_documents.words_index",
    "search_documents.idx_search_documents_words",
    "search_documents.idx_search_documents_names",
}

COLUMNS = """
    SELECT c.relname || '.' || a.attname AS thing, a.attnum AS place,
        format_type(coalesce(nullif(t.typbasetype, 0), t.oid), a.atttypmod) AS type,
        o.collname AS collation, a.attnotnull AS filled,
        pg_get_expr(d.adbin, d.adrelid) AS default, a.attidentity AS identity
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation o ON o.oid = a.attcollation
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0
        AND NOT a.attisdropped
"""
CONSTRAINTS = """
    SELECT c.relname || '.' || k.conname AS thing, pg_get_constraintdef(k.oid) AS definition
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    WHERE k.connamespace = current_schema()::regnamespace
    UNION SELECT c.relname || '.' || c.relname || '_' || a.attname || '_check',
        replace(pg_get_constraintdef(k.oid), 'VALUE', a.attname)
    FROM pg_constraint k JOIN pg_attribute a ON a.atttypid = k.contypid
    JOIN pg_class c ON c.oid = a.attrelid
    WHERE k.connamespace = current_schema()::regnamespace AND c.relkind = 'r'
        AND k.contypid <> 0
"""
INDEXES = """
    SELECT tablename || '.' || indexname AS thing, replace(regexp_replace(
        indexdef, '\\((\\w+)\\)::text', '\\1', 'g'), schemaname || '.', '') AS definition
    FROM pg_indexes WHERE schemaname = current_schema()
"""
TRIGGERS = """
    SELECT c.relname AS "table", t.tgname AS trigger
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal
"""


def in_postgres_words(sql: str) -> str:
    """Return SQLite's tables and indices with the types, and without the words, that differ."""
    sql = re.sub(r"--[^\n]*", "", sql[: sql.index("CREATE TRIGGER")])
    sql = re.sub(r"\) STRICT(, WITHOUT ROWID)?;", ");", sql)
    sql = re.sub(r"INTEGER PRIMARY KEY( AUTOINCREMENT)?", "BIGINT PRIMARY KEY", sql)
    sql = re.sub(r"^(\s+\w+) TEXT\b", r'\1 TEXT COLLATE "C"', sql, flags=re.MULTILINE)
    return re.sub(r"^(\s+\w+) INTEGER\b", r"\1 BIGINT", sql, flags=re.MULTILINE)


@pytest.fixture
def connection(postgres: LocalPostgres, database: str) -> Any:
    with psycopg.connect(
        postgres.url(database), autocommit=True, row_factory=psycopg.rows.dict_row
    ) as connection:
        for name in ("ours", "expected"):
            connection.execute(f"CREATE SCHEMA {name}")
        for _, sql in migrations():
            connection.execute("SET search_path = ours")
            connection.execute(sql.encode())
        connection.execute("SET search_path = expected")
        connection.execute(in_postgres_words(schema()).encode())
        yield connection


def found(connection: Any, where: str, question: str) -> dict[str, dict[str, Any]]:
    """Return what a schema holds, without the tables that it has beyond SQLite's."""
    connection.execute(f"SET search_path = {where}")
    rows = connection.execute(question.encode()).fetchall()
    return {
        row["thing"]: row
        for row in rows
        if row["thing"].partition(".")[0] not in OWN_TABLES and row["thing"] not in OWN_SEARCH
    }


@pytest.mark.parametrize("question", [COLUMNS, CONSTRAINTS, INDEXES])
def test_tables_columns_constraints_and_indices_are_the_same(
    connection: Any, question: str
) -> None:
    ours, expected = (found(connection, schema, question) for schema in ("ours", "expected"))
    if question is COLUMNS:
        assert {name for name, row in ours.items() if row.pop("identity")} == IDENTITY
        assert not any(row.pop("identity") for row in expected.values())
    if question is CONSTRAINTS:
        assert {name for name in expected if name not in ours} == UNCHECKED
        expected = {name: row for name, row in expected.items() if name in ours}
    if question is INDEXES:
        # Without what changes with each event: there an update of it would write all indices.
        name = "missions.idx_missions_status"
        assert "(status, silent)" in ours[name].pop("definition")
        assert "(status, silent, active_awake_ms)" in expected[name].pop("definition")
    assert ours == expected
    assert any(thing.startswith("missions.") for thing in ours)


def test_no_table_that_each_hook_updates_has_checks_of_its_rows(connection: Any) -> None:
    found = connection.execute(
        "SELECT DISTINCT conrelid::regclass::text AS name FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = 'ours'::regnamespace"
    ).fetchall()
    checked = {row["name"].rpartition(".")[2] for row in found}
    assert "sorties" in checked
    assert not checked & {*DOMAINS, "search_documents", "events", "edits", "hook_deliveries"}


def test_a_value_that_a_column_cannot_have_is_refused_where_it_is_set(connection: Any) -> None:
    connection.execute("SET search_path = ours")
    insert = (
        "INSERT INTO missions (id, title, status, created_at, updated_at)"
        " VALUES ('m', '', %s, '', '') RETURNING status"
    )
    with pytest.raises(psycopg.errors.CheckViolation, match="mission_status"):
        connection.execute(insert, ["begun"])
    assert connection.execute(insert, ["pending"]).fetchall() == [{"status": "pending"}]
    for change, domain in (("status = 'begun'", "mission_status"), ("origin = ''", "origin")):
        with pytest.raises(psycopg.errors.CheckViolation, match=domain):
            connection.execute(f"UPDATE missions SET {change}".encode())


def test_text_sorts_by_its_bytes_everywhere(connection: Any) -> None:
    columns = found(connection, "ours", COLUMNS)
    assert {row["collation"] for row in columns.values() if row["type"] == "text"} == {"C"}
    assert {row["type"] for row in columns.values()} == {"text", "bigint"}


def test_the_same_triggers_count_and_others_number(connection: Any) -> None:
    connection.execute("SET search_path = ours")
    ours = {(row["table"], row["trigger"]) for row in connection.execute(TRIGGERS.encode())}
    sqlite = re.findall(r"CREATE TRIGGER (\w+) AFTER [A-Z]+(?: OF \w+)? ON (\w+)", schema())
    sqlite = [found for found in sqlite if found[0] not in SQLITES_SEARCH]
    assert ours == {(table, name) for name, table in sqlite} | OWN_TRIGGERS
    autoincrement = re.findall(r"CREATE TABLE (\w+) \(\s+\w+ INTEGER PRIMARY KEY AUTO", schema())
    assert set(autoincrement) == NUMBERED


def test_everything_lies_in_the_schema_that_search_path_names(connection: Any) -> None:
    elsewhere = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    ).fetchall()
    assert elsewhere == []
    # Whoever works on it by hand has another search_path, and the triggers find their tables.
    connection.execute("SET search_path = public")
    connection.execute(
        "INSERT INTO ours.sessions (harness, session_id, agent_id, started_at, last_event_at)"
        " VALUES ('claude', 's', 'ann', '', '')"
    )
    assert connection.execute("SELECT number FROM ours.tallies").fetchall() == [{"number": 1}]
