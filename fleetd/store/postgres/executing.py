"""What a Tx runs its statements with on PostgreSQL; must not begin or end transactions."""

from collections.abc import Iterable
from typing import Any

from psycopg.rows import dict_row, tuple_row

from ...domain.core.tx import Row
from .connection import Line
from .dialect import translated

# A rehearsal's: psycopg would forget all that is prepared when it sees one rolled back.
_FRAMES = ("SAVEPOINT", "ROLLBACK", "RELEASE")


def executor_of(line: Line) -> "Executor":
    """Return what a line's statements are run with, made once."""
    if line.executor is None:
        line.executor = Executor(line)
    made: Executor = line.executor
    return made


class Executor:
    """Runs statements with named parameters, on one connection."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._dicts = line.cursor(row_factory=dict_row)
        self._tuples = line.cursor(row_factory=tuple_row)

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        if not params and sql.startswith(_FRAMES):
            self._line.say(sql.encode())
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
