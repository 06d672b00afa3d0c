"""The store of tests where FLEET_TEST_STORE names a PostgreSQL server: a schema per home.

The URL is a superuser's. Schemas are emptied and reused: creating one takes six times as long.
"""

import atexit
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetd.domain.core.tx import Execute, Row, Tx

SERVER = os.environ.get("FLEET_TEST_STORE", "")
# The doctor's findings there: the server is fast instead of durable, and has another clock.
NOT_OURS = {"clock", "database"} if SERVER else set()
# Each process has its own schemas, for tests that run in parallel.
_PREFIX = f"t{os.getpid()}_"
_OWNER = "fleet"
TABLES = (
    "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()"
    " AND tablename <> 'schema_version' ORDER BY tablename"
)
# A daemon that should have ended may still hold a lock.
_PATIENCE = "10s"
_NO_ROWS = """
DO $$
DECLARE each regclass;
BEGIN
    SET LOCAL session_replication_role = replica;  -- no trigger counts what goes
    FOR each IN SELECT oid FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
        AND relname <> 'schema_version'
    LOOP
        EXECUTE 'DELETE FROM ' || each;
        IF EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = each AND attidentity <> '') THEN
            EXECUTE 'ALTER TABLE ' || each || ' ALTER COLUMN seq RESTART';
        END IF;
    END LOOP;
END $$
"""


# A trigger that a test creates, in SQLite's syntax, is translated for the server.
_TRIGGER = re.compile(
    r"^CREATE TRIGGER (\w+) (.*?) ON (\w+)(?: WHEN (.*?))? BEGIN (.*); END$", re.S
)
Rows = dict[str, list[dict[str, Any]]]


def _planted(match: re.Match[str]) -> str:
    name, when, table, condition, does = match.groups()
    return (
        f'CREATE FUNCTION "{name}"() RETURNS trigger LANGUAGE plpgsql AS'
        f" $$ BEGIN {does}; RETURN NEW; END $$;"
        f'CREATE TRIGGER "{name}" {when} ON {table} FOR EACH ROW'
        f' WHEN ({condition or "true"}) EXECUTE FUNCTION "{name}"()'
    )


# Rows are inserted with explicit numbers: later rows must get higher ones.
_NUMBER_ON = (
    "SELECT setval(pg_get_serial_sequence('hook_deliveries', 'seq'),"
    " (SELECT max(seq) FROM hook_deliveries))"
)
# The server computes these columns from others.
_GENERATED = frozenset(("words_index",))


class _Schemas:
    """The schema of each home, and the free schemas."""

    def __init__(self) -> None:
        self._of_home: dict[Path, str] = {}
        self._spoilt: set[str] = set()
        self._free: list[str] = []
        self._made = 0
        self._connection: Any = None
        self._lines: list[Any] = []

    def url(self, home: Path) -> str:
        if home not in self._of_home:
            self._of_home[home] = self._free.pop() if self._free else self._make()
        return with_options(SERVER, _OWNER, self._of_home[home])

    def run(self, home: Path, sql: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        from fleetd.store.postgres.connection import translated

        self.url(home)
        schema = self._of_home[home]
        if sql.lstrip().upper().startswith(("ALTER", "CREATE", "DROP")):
            self._spoilt.add(schema)
            sql = _TRIGGER.sub(_planted, sql)
            sql = re.sub(r"^DROP TRIGGER (\w+)", r'DROP FUNCTION "\1" CASCADE', sql)
            sql = re.sub(r"SELECT RAISE\(ABORT, ('\w+')\)", r"RAISE EXCEPTION \1", sql)
        # Without values the text may hold several statements, and no text in it is a placeholder.
        statement, given = (translated(sql), dict(values)) if values else (sql, None)
        cursor = self._superuser(schema).execute(statement.encode(), given)
        return cursor.fetchall() if cursor.description is not None else []

    def executor(self) -> Execute:
        from fleetd.store.postgres.connection import PostgresExecutor, connect
        from fleetd.store.postgres.migrate import migrate

        line = connect(self.url(Path(f"/no home {len(self._of_home)}")), "test")
        migrate(line, "test")
        self._lines.append(line)
        return PostgresExecutor(line)

    def empty(self, home: Path) -> None:
        self.url(home)
        self._superuser(self._of_home[home]).execute(_NO_ROWS.encode())

    def fill(self, home: Path, rows: Rows) -> None:
        self.url(home)
        with self._superuser(self._of_home[home]).transaction():
            self._connection.execute("SET LOCAL session_replication_role = replica")
            for table, those in rows.items():
                for each in those:
                    row = {name: each[name] for name in each if name not in _GENERATED}
                    names = ", ".join(row)
                    values = ", ".join(f"%({name})s" for name in row)
                    insert = f"INSERT INTO {table} ({names}) VALUES ({values})"
                    self._connection.execute(insert.encode(), row)
            self._connection.execute(_NUMBER_ON.encode())

    def release(self) -> None:
        """Empty the schemas of a test's homes and return them to the pool."""
        for line in self._lines:
            line.close()
        self._lines.clear()
        for schema in self._of_home.values():
            if schema in self._spoilt:
                self._superuser(schema).execute(f"DROP SCHEMA {schema} CASCADE".encode())
            else:
                self._superuser(schema).execute(_NO_ROWS.encode())
                self._free.append(schema)
        self._of_home.clear()
        self._spoilt.clear()

    def _make(self) -> str:
        self._made += 1
        schema = f"{_PREFIX}{self._made}"
        self._superuser(schema).execute(f"CREATE SCHEMA {schema} AUTHORIZATION {_OWNER}".encode())
        return schema

    def _superuser(self, schema: str) -> Any:
        import psycopg

        from fleetd.store.postgres.connection import adapt

        if self._connection is None:
            # Do not prepare statements: the types of one schema are not those of another.
            self._connection = psycopg.connect(
                SERVER, autocommit=True, row_factory=psycopg.rows.dict_row, prepare_threshold=None
            )
            atexit.register(self._connection.close)
            adapt(self._connection)
            self._connection.execute(f"SET lock_timeout = '{_PATIENCE}'".encode())
        self._connection.execute(f"SET search_path = {schema}".encode())
        return self._connection


_schemas = _Schemas()
release = _schemas.release
empty = _schemas.empty
fill = _schemas.fill


def url(home: Path) -> str:
    """Return the URL of a home's store, '' where tests open files."""
    return _schemas.url(home) if SERVER else ""


def executor() -> Execute:
    """Return a function that runs statements in a separate schema until the test ends."""
    return _schemas.executor()


def written(tx: Tx) -> list[Row]:
    """Return the transaction that wrote each row, and the row's location."""
    tables = [row["name"] for row in tx.all(TABLES)]
    each = [f"SELECT '{name}' AS name, xmin::text, ctid::text FROM {name}" for name in tables]
    return tx.all(" UNION ALL ".join(each))


def run(home: Path, sql: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run a statement of ``:name`` SQL in a home's schema, as superuser; return its rows."""
    return _schemas.run(home, sql, values)


def rows(home: Path) -> Rows:
    """Return every row of a home's schema except its version number."""
    names = run(home, TABLES, {})
    return {row["name"]: run(home, f"SELECT * FROM {row['name']}", {}) for row in names}


def with_options(server: str, user: str, schema: str) -> str:
    """Return a server's URL for a user whose tables are in a schema."""
    place, _, query = server.partition("?")
    scheme, _, rest = place.partition("://")
    place = f"{scheme}://{user}@{rest.rpartition('@')[2]}"
    return f"{place}?{query}{'&' if query else ''}options=-csearch_path%3D{schema}"
