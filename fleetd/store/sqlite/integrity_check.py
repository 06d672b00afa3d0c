"""Integrity check of a SQLite database: its schema, its pages, and rows that no rule can read.

A copy from elsewhere may declare more than fleetd does: a trigger would run with every write, and a
view in place of a table would answer every read. So no content of a database is read before its
schema is known.

The check of rows knows columns by their names and types, and no table but the log's.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import re
from importlib import resources
from pathlib import Path
from typing import cast

import apsw

from . import page_checksums
from .migrate import migrations

DIGESTS = "digests.json"
SHOWN = 3
# SQLite's own: counters of AUTOINCREMENT, statistics of ANALYZE, indices of UNIQUE and PRIMARY KEY.
_OWN_TABLES = {
    "sqlite_sequence": "CREATE TABLE sqlite_sequence(name,seq)",
    "sqlite_stat1": "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "sqlite_stat4": "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}
_OWN_INDEX = "sqlite_autoindex_"

_SPACES = re.compile(r"[ \t\r\f]+")

SchemaObject = tuple[str, str]


def differences(connection: apsw.Connection, version: int) -> list[str]:
    """Return how a database's schema differs from that of a version, in words; empty for none."""
    found = declared(connection)
    if digest_of(found) == _digests().get(str(version)):
        return []
    expected = expected_of(version)
    return [
        *(f"it has {_described(item)}" for item in sorted(found.keys() - expected.keys())),
        *(f"it lacks {_described(item)}" for item in sorted(expected.keys() - found.keys())),
        *(
            f"{_described(item)} is declared differently"
            for item in sorted(found.keys() & expected.keys())
            if found[item] != expected[item]
        ),
    ]


def summary(found: list[str]) -> str:
    """Return differences as one sentence, the first of many."""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def _described(item: SchemaObject) -> str:
    kind, name = item
    return f"the {kind} {name[:80]!a}"


def declared(connection: apsw.Connection) -> dict[SchemaObject, str]:
    """Return the SQL of everything that a database declares, by its type and name."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return {
        (str(kind), str(name)): f"{table}: {_normalized(str(sql))}"
        for kind, name, table, sql in rows
        if not _is_sqlites_own(kind, name, sql)
    }


def _normalized(sql: str) -> str:
    """Return SQL without insignificant spaces.

    Line ends are significant, because they end comments. SQLite treats nothing else as a space.
    """
    lines = (_SPACES.sub(" ", line).strip(" ") for line in sql.split("\n"))
    return "\n".join(filter(None, lines))


def _is_sqlites_own(kind: object, name: object, sql: object) -> bool:
    if kind == "index":
        return sql is None and str(name).startswith(_OWN_INDEX)
    return kind == "table" and sql is not None and _OWN_TABLES.get(str(name)) == sql


@functools.cache
def expected_of(version: int) -> dict[SchemaObject, str]:
    """Return what the migrations up to a version declare."""
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        for number, sql in migrations():
            if number <= version:
                connection.execute(sql)
        return declared(connection)


def digest_of(objects: dict[SchemaObject, str]) -> str:
    """Return a checksum of what is declared."""
    rows = sorted([*item, sql] for item, sql in objects.items())
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


@functools.cache
def _digests() -> dict[str, str]:
    """Return the checksums of every version's schema; they save running all migrations."""
    file = resources.files("fleetd.store") / "migrations" / "sqlite" / DIGESTS
    return cast("dict[str, str]", json.loads(file.read_text("utf-8")))


def digests() -> dict[str, str]:
    """Return the checksums as they should be kept."""
    return {str(number): digest_of(expected_of(number)) for number, _ in migrations()}


# Larger numbers are not the same in every language that reads JSON.
NUMBERS_MAX = 2**53 - 1
FOUND_MAX = 20
# Columns of these names contain a JSON value of this type, and nothing else.
_KINDS = {
    "data_json": "object",
    "metadata_json": "object",
    "note_json": "object",
    "files_json": "array",
    "to_json": "array",
    "source_details_json": "array",
    "warnings_json": "array",
}
# Counters: beyond the limit, no number can follow. SQLite's own table has no types.
_COUNTERS = (("events", "seq"), ("counters", "value"), ("sqlite_sequence", "seq"))


def damage_of(connection: apsw.Connection) -> list[str]:
    """Return what is wrong with a database, at most twenty lines of each kind.

    It consists of what SQLite finds, and of rows that no rule can read.
    """
    damage = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({FOUND_MAX})")]
    orphans = (
        f"{table}: row {row_id} has no parent in {parent}"
        for table, row_id, parent, _ in connection.execute("PRAGMA foreign_key_check")
    )
    return [
        *(line for line in damage if line != "ok"),
        *itertools.islice(orphans, FOUND_MAX),
        *unreadable_rows(connection),
    ]


def unreadable_rows(connection: apsw.Connection) -> list[str]:
    """Return the rows that cannot be read, by their names, at most twenty."""
    found: list[str] = []
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    for table in (str(name) for (name,) in tables):
        columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        key = next((str(column[1]) for column in columns if column[5] == 1), None)
        types = {str(column[1]): str(column[2]) for column in columns}
        if key is not None:
            found += _not_json(connection, table, key, types)
            found += _out_of_range(connection, table, key, types)
        if len(found) >= FOUND_MAX:
            return found[:FOUND_MAX]
    return found + _beyond_counting(connection)


def _not_json(
    connection: apsw.Connection, table: str, key: str, types: dict[str, str]
) -> list[str]:
    found: list[str] = []
    for name in types:
        if not name.endswith("_json"):
            continue
        # The value of a deleted record is empty until its file is removed.
        rows = connection.execute(
            f'SELECT "{key}" FROM "{table}" WHERE "{name}" <> \'\' AND NOT json_valid("{name}")'
            f" LIMIT {FOUND_MAX}"
        )
        found += [f"{table}: row {row[0]!a} has invalid JSON in {name}" for row in rows]
        if kind := _KINDS.get(name):
            rows = connection.execute(
                f'SELECT "{key}" FROM "{table}" WHERE "{name}" <> \'\' AND json_valid("{name}")'
                f' AND json_type("{name}") <> ? LIMIT ?',
                (kind, FOUND_MAX),
            )
            found += [f"{table}: row {row[0]!a} has no {kind} in {name}" for row in rows]
    return found


def _out_of_range(
    connection: apsw.Connection, table: str, key: str, types: dict[str, str]
) -> list[str]:
    """Return the rows with a number that no rule can continue from."""
    found: list[str] = []
    for name, kind in types.items():
        if kind != "INTEGER" or (table, name) in _COUNTERS:
            continue
        rows = connection.execute(
            f'SELECT "{key}", "{name}" FROM "{table}" WHERE "{name}" NOT BETWEEN ? AND ? LIMIT ?',
            (-NUMBERS_MAX, NUMBERS_MAX, FOUND_MAX),
        )
        found += [f"{table}: row {row!a} has {number} in {name}" for row, number in rows]
    return found


def _beyond_counting(connection: apsw.Connection) -> list[str]:
    found = []
    for table, column in _COUNTERS:
        if not connection.table_exists(None, table):
            continue
        most = connection.execute(f"SELECT max({column}) FROM {table}").fetchone()
        if most and isinstance(most[0], int) and most[0] > NUMBERS_MAX:
            found.append(f"{table}: {column} has come to {most[0]}, where nothing can follow")
    return found


def unreadable_rows_in(path: Path) -> str:
    """Return the rows of a database that cannot be read, as one sentence; empty for none."""
    with contextlib.suppress(apsw.Error):
        flags = apsw.SQLITE_OPEN_READWRITE
        with contextlib.closing(page_checksums.opened(str(path), flags=flags)) as connection:
            return "; ".join(unreadable_rows(connection)[:3])
    return ""
