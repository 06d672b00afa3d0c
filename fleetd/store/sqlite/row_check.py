"""Row check: rows that no rule can read.

It knows columns by their names and types, and no table but the log's.
"""

import contextlib
from pathlib import Path

import apsw

from . import page_checksums

# Beyond this a number is not the same in every language that reads JSON.
NUMBERS_MAX = 2**53 - 1
FOUND_MAX = 20
# What stands in columns of these names is read as one of these, and nothing else.
_KINDS = {
    "data_json": "object",
    "metadata_json": "object",
    "note_json": "object",
    "files_json": "array",
    "to_json": "array",
    "source_details_json": "array",
    "warnings_json": "array",
}
# Nothing of these can follow what they have come to; SQLite's own table has no types.
_COUNTERS = (("events", "seq"), ("counters", "value"), ("sqlite_sequence", "seq"))


def unreadable(connection: apsw.Connection) -> list[str]:
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
        # What is deleted, and waits for its file to go, is emptied.
        rows = connection.execute(
            f'SELECT "{key}" FROM "{table}" WHERE "{name}" <> \'\' AND NOT json_valid("{name}")'
            f" LIMIT {FOUND_MAX}"
        )
        found += [f"{table}: row {row[0]!a} has no JSON in {name}" for row in rows]
        if name in _KINDS:
            found += _of_another_kind(connection, table, key, name)
    return found


def _of_another_kind(connection: apsw.Connection, table: str, key: str, name: str) -> list[str]:
    rows = connection.execute(
        f'SELECT "{key}" FROM "{table}" WHERE "{name}" <> \'\' AND json_valid("{name}")'
        f' AND json_type("{name}") <> ? LIMIT ?',
        (_KINDS[name], FOUND_MAX),
    )
    return [f"{table}: row {row[0]!a} has no {_KINDS[name]} in {name}" for row in rows]


def _out_of_range(
    connection: apsw.Connection, table: str, key: str, types: dict[str, str]
) -> list[str]:
    """Return the rows with a number that no rule can go on from."""
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


def named_in(path: Path) -> str:
    """Return the rows of a database that cannot be read, as one sentence; empty for none."""
    with contextlib.suppress(apsw.Error):
        flags = apsw.SQLITE_OPEN_READWRITE
        with contextlib.closing(page_checksums.opened(str(path), flags=flags)) as connection:
            return "; ".join(unreadable(connection)[:3])
    return ""
