"""Rows of the SQLite database of another program: read-only, with short waits."""

import os
from typing import Any
from urllib.parse import quote

import apsw

BUSY_MS = 200


class Unreadable(Exception):
    """A database that is not there, is no database, or has other tables."""


def foreign_rows(path: str, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a query; raises Unreadable."""
    try:
        return _rows(path, apsw.SQLITE_OPEN_READONLY, sql, params)
    except apsw.CantOpenError as error:
        # In WAL mode a reader needs a file beside it, which it may not be allowed to create.
        # Without a WAL no process has the database open.
        if os.path.exists(f"{path}-wal"):  # noqa: PTH110 - a path of any text
            raise Unreadable(str(error)) from error
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        try:
            return _rows(f"file:{quote(path)}?immutable=1", flags, sql, params)
        except apsw.Error as later:
            raise Unreadable(str(later)) from later
    except apsw.Error as error:
        raise Unreadable(str(error)) from error


def _rows(path: str, flags: int, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(path, flags=flags)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.pragma("query_only", True)
        connection.pragma("trusted_schema", False)
        return connection.execute(sql, params).fetchall()
    finally:
        connection.close()
