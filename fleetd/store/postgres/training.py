"""Training: rules run in a database in memory, so that the predictor knows them beforehand.

What a rule reads of its own writes can only be predicted from an earlier run. Without training that
is the first run of each daemon, which holds the fleet's turn for a round trip per statement.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import apsw

from ...domain.core.tx import Row, Tx
from ..sqlite.migrate import schema
from .predictor import Predictor, RecordingExecutor
from .shape import boolean_columns

log = logging.getLogger("fleetd")
# Numbers that are given out begin here: small ones could stand for anything else.
_BEGIN = 1_000_000
_NUMBERS = f"""
    INSERT INTO sqlite_sequence (name, seq)
        SELECT name, {_BEGIN} FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%';
    INSERT INTO counters (name, value) VALUES ('fencing', {_BEGIN})
        ON CONFLICT (name) DO UPDATE SET value = excluded.value;
"""


def train(predictor: Predictor, rules: Iterable[Callable[[Tx], object]]) -> None:
    """Run rules one after the other on an empty store that is thrown away.

    What fails ends it, and is logged: then first runs hold the turn.
    """
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            connection.execute(schema())
            connection.execute(_NUMBERS)
            for rule in rules:
                with connection:
                    rule(Tx(RecordingExecutor(_MemoryExecutor(connection), predictor)))
    except Exception:
        log.exception("The training failed: first sessions hold the fleet's turn")
    predictor.forget_answers()


class _MemoryExecutor:
    """Runs statements with named parameters in a database of training."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.columns: list[str] = []

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        rows = self.tuples(sql, params)
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as they come."""
        cursor = self._connection.execute(sql, params)
        first = next(cursor, None)
        if first is None:  # then nobody can tell the columns, and nobody needs them
            self.columns = []
            return []
        self.columns = [each[0] for each in cursor.get_description()]
        conditions = boolean_columns(sql)
        return [
            tuple(
                bool(value) if name in conditions else value
                for name, value in zip(self.columns, row, strict=True)
            )
            for row in (first, *cursor)
        ]

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Run a statement once for each set of parameters."""
        self._connection.executemany(sql, [*params])

    def limited(self, _most_ms: int) -> AbstractContextManager[None]:
        """Set no limit: there is next to nothing to read."""
        return nullcontext()
