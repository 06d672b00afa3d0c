"""Runs the rules' SQL on PostgreSQL: named parameters, values there and back.

Every column is TEXT or BIGINT, so every parameter is one of the two: what the server would have to
guess it is told.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.rows import dict_row, tuple_row
from psycopg.types.numeric import FloatDumper, Int8Dumper
from psycopg.types.string import StrDumper

from ...domain.core.text import NUL, SIGN_OF_NUL
from ...domain.core.tx import Row
from .connection import ServerConnection

# A text, a name in quotes and a comment stand for themselves, whatever is in them; two colons are
# a cast.
_PART = re.compile(
    r"'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|--[^\n]*"
    r"|/\*.*?\*/"
    r"|::"
    r"|:([a-z_][a-z0-9_]*)"
    r"|%",
    re.IGNORECASE | re.DOTALL,
)
# A rehearsal's: psycopg would forget all that is prepared when it sees one rolled back.
_FRAMES = ("SAVEPOINT", "ROLLBACK", "RELEASE")


@lru_cache(maxsize=2_000)
def translated(sql: str) -> str:
    """Return a statement with ``%(name)s`` where it has ``:name``."""
    return _PART.sub(_placed, sql)


def _placed(match: re.Match[str]) -> str:
    if match[1]:
        return f"%({match[1]})s"
    return match[0].replace("%", "%%")


class _Text(StrDumper):
    """A text; what is asked for may have a NUL in it, which PostgreSQL holds in none."""

    def dump(self, obj: str) -> Buffer | None:
        """Return its bytes."""
        return super().dump(obj.replace(NUL, SIGN_OF_NUL) if NUL in obj else obj)


class _Truth(Dumper):
    """A truth value, which is 0 or 1 in every column."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer | None:
        """Return its digit."""
        return b"1" if obj else b"0"


class _Number(Loader):
    """A sum, which is a numeric here and an integer there."""

    def load(self, data: Buffer) -> int | float:
        """Return it as Python counts."""
        text = bytes(data).decode("ascii")
        return float(text) if "." in text else int(text)


def adapt(connection: psycopg.Connection[Any]) -> None:
    """Have a connection pass values as the rules know them."""
    adapters = connection.adapters
    adapters.register_dumper(str, _Text)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(bool, _Truth)
    adapters.register_dumper(float, FloatDumper)
    adapters.register_loader("numeric", _Number)


def executor_of(connection: ServerConnection) -> "PostgresExecutor":
    """Return what a connection's statements are run with, made once."""
    if connection.executor is None:
        connection.executor = PostgresExecutor(connection)
    made: PostgresExecutor = connection.executor
    return made


class PostgresExecutor:
    """Runs statements with named parameters, on one connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._dicts = connection.cursor(row_factory=dict_row)
        self._tuples = connection.cursor(row_factory=tuple_row)

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        if not params and sql.startswith(_FRAMES):
            self._connection.simple_query(sql.encode())
            return []
        self._dicts.execute(translated(sql), params)
        return self._dicts.fetchall() if self._dicts.description else []

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as they come."""
        self._tuples.execute(translated(sql), params)
        return self._tuples.fetchall() if self._tuples.description else []

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Run a statement once for each set of parameters, without waiting for each answer."""
        self._tuples.executemany(translated(sql), list(params))
