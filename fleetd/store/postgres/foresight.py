"""Foresight: what rules asked for lately, and what they were told.

It says what a rule will ask for, and what it will be told. Right or wrong, it decides only what is
asked for in one message, and which tries are left out: the server compares all that a rule was
given.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec

from ...domain.core.assigned import encode_json
from ...domain.core.tx import Row
from .connection import PostgresExecutor
from .shape import Shape, shape_of

Pairs = list[tuple[str, Any]]
"""A row, with its columns in their order."""
Key = tuple[str, tuple[Any, ...]]
"""A question: its SQL, and its parameters by the order of their names."""

# Longer answers are not remembered.
KEPT_BYTES = 4_096
_MOST = 2_000
# After more failures in a row, tries are not spaced out further: 2 to the power of this.
_FAILURES = 6
# Shorter texts and smaller numbers are rather the same for all than taken from a parameter.
_SHORT, _SMALL = 3, 100


class Write(NamedTuple):
    """A statement by which a rule has written what it reads then."""

    sql: str
    params: Row


PriorWrites = tuple[Write, ...]
OwnRead = tuple[str, tuple[str, ...]]
"""A question, and what its rule has written before of what is asked for, as SQL only."""


def own_read(key: Key, own: PriorWrites) -> OwnRead:
    """Return what a rule reads of its own writes."""
    return key[0], tuple(write.sql for write in own)


class OwnWrites:
    """What a rule has written so far, by the tables."""

    def __init__(self) -> None:
        self._written: dict[str, list[Write]] = {}

    def note(self, shape: Shape, sql: str, params: Row) -> None:
        """Keep a statement, if it writes."""
        if shape.writes:
            self._written.setdefault(shape.writes, []).append(Write(sql, params))

    def read_by(self, shape: Shape) -> PriorWrites:
        """Return the statements that have written what this one reads."""
        tables = sorted(self._written.keys() & shape.reads)
        return tuple(each for table in tables for each in self._written[table])


class NotKnown(Exception):
    """A rule that only looks ahead wants to know what nobody can guess."""


class _Cell(msgspec.Struct, frozen=True):
    """A value of a row: that of a parameter, of a write or of the question, else always ``value``.

    ``write`` is the place of the write, and ``name`` its parameter's; for the question, ``write``
    is None, and ``name`` the place of its parameter.
    """

    column: str
    value: Any
    name: str | int | None = None
    write: int | None = None


class _Template:
    """Rows that a rule reads after it has written them, by what it wrote."""

    def __init__(self, key: Key, own: PriorWrites, rows: Iterable[Pairs]) -> None:
        places: dict[Any, tuple[str | int, int | None]] = {}
        for at, write in enumerate(own):
            for name, value in write.params.items():
                if _tells(value):
                    places.setdefault(value, (name, at))
        for place, value in enumerate(key[1]):
            if _tells(value):
                places.setdefault(value, (place, None))
        self._rows = [
            [
                _Cell(column, value, *(places.get(value, ()) if _tells(value) else ()))
                for column, value in row
            ]
            for row in rows
        ]

    def rows(self, key: Key, own: PriorWrites) -> list[Pairs]:
        """Return the rows for other parameters."""
        return [[(cell.column, _value(cell, key, own)) for cell in row] for row in self._rows]


def _tells(value: Any) -> bool:
    """Whether a value is so rare that it comes from where it is found."""
    if type(value) is str:
        return len(value) > _SHORT
    return type(value) is int and abs(value) > _SMALL


def _value(cell: _Cell, key: Key, own: PriorWrites) -> Any:
    if cell.write is not None and isinstance(cell.name, str):
        return own[cell.write].params[cell.name]
    return key[1][cell.name] if isinstance(cell.name, int) else cell.value


class _Prediction:
    """What foretells a read of what the same rule has written, and how that went.

    Without a template it is what the store holds before the rule writes. ``failures`` came in a
    row; so many tries are ``skipped`` for that.
    """

    __slots__ = ("failures", "skipped", "template")

    def __init__(self) -> None:
        self.failures = self.skipped = 0
        self.template: _Template | None = None


class Foresight:
    """What rules asked for lately, and what they were told."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Key, list[Pairs]] = OrderedDict()
        self._last: dict[str, list[Pairs]] = {}
        self._own: OrderedDict[OwnRead, _Prediction] = OrderedDict()

    def note(self, key: Key, rows: list[Pairs]) -> None:
        """Keep an answer."""
        self._answers[key] = self._last[key[0]] = rows
        self._answers.move_to_end(key)
        if len(self._answers) > _MOST:
            self._answers.popitem(last=False)
        if len(self._last) > _MOST:
            self._last.clear()

    def guess(self, key: Key) -> list[Pairs]:
        """Return what the answer may be: the last one to this question, else to one like it.

        Raises NotKnown.
        """
        if (rows := self._answers.get(key)) is None and (rows := self._last.get(key[0])) is None:
            raise NotKnown
        return rows

    def guess_own(self, key: Key, own: PriorWrites) -> list[Pairs] | None:
        """Return what a rule may read of its own writes; None if these seem to change nothing."""
        read = self._own.get(own_read(key, own))
        if read is None or read.template is None:
            return None
        return read.template.rows(key, own)

    def backs_off(self, key: Key, own: PriorWrites) -> bool:
        """Whether a try is not worth it, since the last ones failed here; sometimes it is again."""
        read = self._own.get(own_read(key, own))
        if read is None or not read.skipped:
            return False
        read.skipped -= 1
        return True

    def saw_own(self, key: Key, own: PriorWrites, rows: list[Pairs]) -> None:
        """Keep what a rule read of its own writes in its turn."""
        before = self._answers.get(key)
        same = rows == before if before is not None else not rows
        read = self._read(key, own)
        if not same and read.template is None:
            read.failures = read.skipped = 0
        read.template = None if same else _Template(key, own, rows)

    def failed(self, key: Key, own: PriorWrites, rows: list[Pairs] | None) -> None:
        """Note that a rule read something else of its own writes than was foretold, if known."""
        read = self._read(key, own)
        read.failures = min(read.failures + 1, _FAILURES)
        read.skipped = 2**read.failures
        by_store = not rows or (read.template is not None and read.failures > 1)
        read.template = None if rows is None or by_store else _Template(key, own, rows)

    def succeeded(self, key: Key, own: PriorWrites) -> None:
        """Note that a rule read of its own writes what was foretold."""
        if read := self._own.get(own_read(key, own)):
            read.failures = read.skipped = 0

    def _read(self, key: Key, own: PriorWrites) -> _Prediction:
        kind = own_read(key, own)
        read = self._own.setdefault(kind, _Prediction())
        self._own.move_to_end(kind)
        if len(self._own) > _MOST:
            self._own.popitem(last=False)
        return read


class Witness:
    """Runs the statements of a rule in its turn, and lets the foresight know what they returned."""

    def __init__(self, execute: PostgresExecutor, foresight: Foresight) -> None:
        self._execute = execute
        self._foresight = foresight
        self._own = OwnWrites()

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement; return its rows as dicts."""
        rows = self._execute(sql, params)
        self._saw(sql, params, [[*row.items()] for row in rows])
        return rows

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows as they come."""
        rows = self._execute.tuples(sql, params)
        columns = self._execute.columns
        self._saw(sql, params, [[*zip(columns, row, strict=True)] for row in rows])
        return rows

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Run a statement for each set of parameters."""
        rows = [*params]
        self._execute.many(sql, rows)
        for each in rows:
            self._saw(sql, each, [])

    def limited(self, most_ms: int) -> AbstractContextManager[None]:
        """End each statement inside after so long, with TookTooLong."""
        return self._execute.limited(most_ms)

    def _saw(self, sql: str, params: Row, rows: Sequence[Pairs]) -> None:
        shape = shape_of(sql)
        if shape.kind in ("read", "returning") and len(encode_json(rows)) <= KEPT_BYTES:
            key = shape.key(params)
            if own := self._own.read_by(shape):
                self._foresight.saw_own(key, own, [*rows])
            else:
                self._foresight.note(key, [*rows])
        self._own.note(shape, sql, dict(params))
