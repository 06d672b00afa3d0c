"""Predictor: predicts the questions and answers of a rule from those of earlier runs.

A prediction may be wrong: the server compares the rows that a rule was given with those that it
finds. It does not compare columns of activity, so such a column is never predicted if another
daemon may have written it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import msgspec

from ...domain.core.assigned import Counter, with_numbers
from ...domain.core.tx import Execute, Row
from .shape import Shape, shape_of

Pairs = list[tuple[str, Any]]
"""A row, with its columns in their order."""
Key = tuple[str, tuple[Any, ...]]
"""A question: its SQL, and its parameters by the order of their names."""

# Columns that are written all the time, with their tables; ``expect`` does not compare them.
ACTIVITY = {
    "last_activity_at": "missions",
    "last_activity_seq": "missions",
    "last_deed_seq": "missions",
    "active_awake_ms": "missions",
    "silent": "missions",
    "last_seen_at": "agents",
    "seen_awake_ms": "agents",
}
# Longer answers are not remembered: by characters, and by values.
_CHARACTERS, _CELLS = 4_096, 200
# Answers after more writes than these are not remembered either.
_WRITES = 64
# An answer that was predicted right so often in a row is not asked for.
SURE = 8
_MOST = 1_000
# The pause between tries grows with failures in a row, up to 2 to the power of this.
_FAILURES = 6
# Shorter texts and smaller numbers count as constants, even if a parameter has the same value.
_SHORT, _SMALL = 3, 100


class Write(NamedTuple):
    """A statement of a rule that has written what is read then."""

    sql: str
    params: Row


PriorWrites = tuple[Write, ...]
ReadAfter = tuple[str, tuple[str, ...]]
"""A question, and what was written before of what it asks for, as SQL only."""


def read_after(key: Key, writes: PriorWrites) -> ReadAfter:
    """Return what is read after some writes."""
    return key[0], tuple(write.sql for write in writes)


class OwnWrites:
    """What a rule has written so far, by the tables."""

    def __init__(self) -> None:
        self._written: dict[str, list[Write]] = {}

    def note(self, shape: Shape, sql: str, params: Row) -> None:
        """Keep a statement, if it writes."""
        if shape.writes:
            self._written.setdefault(shape.writes, []).append(Write(sql, params))

    def read_by(self, shape: Shape, before: Mapping[Counter, int] | None = None) -> PriorWrites:
        """Return the statements that have written what this one reads.

        Once they are committed, their numbers are known by what the counters were ``before``.
        """
        if not self._written:
            return ()
        tables = sorted(self._written.keys() & shape.reads)
        found = tuple(each for table in tables for each in self._written[table])
        if before is None:
            return found
        return tuple(Write(sql, with_numbers(params, before)) for sql, params in found)


class NotKnown(Exception):
    """A rule that only looks ahead wants to know what nobody can guess."""


class _Cell(msgspec.Struct, frozen=True):
    """Where a value of a row comes from.

    From a parameter, of the ``write``-th write or, where that is None, of the question; else, with
    ``same``, from the row before the writes; else it is always ``value``. Where nobody knew the row
    before it is ``value`` only ``if_new``.
    """

    column: str
    value: Any
    same: bool = False
    if_new: bool = False
    name: str | int | None = None
    write: int | None = None


class _Template:
    """Rows that are read after some writes, by the parameters of these and the rows before them.

    The writes may have other parameters than those that it was made of, never other statements.
    """

    def __init__(self, cells: list[list[_Cell]], writes: PriorWrites) -> None:
        self.cells = cells
        # Of a row that the writes insert, all is new.
        inserted = {shape_of(each.sql).writes for each in writes if each.sql.startswith("INSERT")}
        self.has_old_activity = any(
            not cell.same and cell.write is None and ACTIVITY[cell.column] not in inserted
            for row in cells
            for cell in row
            if cell.column in ACTIVITY
        )
        """Whether a column of activity has a value from an earlier answer."""

    def rows(self, key: Key, writes: PriorWrites, before: list[Pairs]) -> list[Pairs]:
        """Return the rows; raises IndexError where there were fewer before."""
        return [
            [
                (cell.column, _value(cell, key, writes, before, (at, place)))
                for place, cell in enumerate(row)
            ]
            for at, row in enumerate(self.cells)
        ]


def _template(
    key: Key, writes: PriorWrites, before: list[Pairs], rows: list[Pairs], old: _Template | None
) -> _Template:
    """Return what would have predicted ``rows``; what ``old`` predicted right stays as it was."""
    sources = _sources(key, writes)
    try:
        predicted = old.rows(key, writes, before) if old else []
    except IndexError:
        predicted = []

    def cell(at: int, place: int, column: str, value: Any) -> _Cell:
        pair = (column, value)
        if old is not None and len(predicted) == len(rows) and _is_at(predicted, at, place, pair):
            known = old.cells[at][place]
            if known.same or known.name is not None:
                return known
        if len(before) == len(rows) and _is_at(before, at, place, pair):
            return _Cell(column, value, same=True)
        name, write = sources.get(value, (None, None)) if _is_distinctive(value) else (None, None)
        return _Cell(column, value, name=name, write=write, if_new=not before)

    cells = [
        [cell(at, place, column, value) for place, (column, value) in enumerate(row)]
        for at, row in enumerate(rows)
    ]
    return _Template(cells, writes)


def _sources(key: Key, writes: PriorWrites) -> dict[Any, tuple[str | int, int | None]]:
    """Return the parameters by their values: the name, and the place of the write if of one."""
    sources: dict[Any, tuple[str | int, int | None]] = {}
    for place, value in enumerate(key[1]):
        if _is_distinctive(value):
            sources[value] = (place, None)
    for at, write in enumerate(writes):
        for name, value in write.params.items():
            if _is_distinctive(value):
                sources[value] = (name, at)
    return sources


def _is_at(rows: list[Pairs], at: int, place: int, pair: tuple[str, Any]) -> bool:
    if place >= len(rows[at]):
        return False
    column, value = rows[at][place]
    # A number that is not known yet is equal to no other value, and refuses to be compared.
    return column == pair[0] and type(value) is type(pair[1]) and value == pair[1]


def _is_distinctive(value: Any) -> bool:
    """Whether a value is so rare that it comes from where it is found."""
    if type(value) is str:
        return len(value) > _SHORT
    return type(value) is int and abs(value) > _SMALL


def _value(
    cell: _Cell, key: Key, writes: PriorWrites, before: list[Pairs], at: tuple[int, int]
) -> Any:
    if isinstance(cell.name, str) and cell.write is not None:
        return writes[cell.write].params[cell.name]
    if isinstance(cell.name, int):
        return key[1][cell.name]
    if cell.same:
        return before[at[0]][at[1]][1]
    if cell.if_new and at[0] < len(before) and before[at[0]][at[1]][0] == cell.column:
        return before[at[0]][at[1]][1]
    return cell.value


class _Answer(NamedTuple):
    """What a question was answered, and what this daemon has written since of what it reads."""

    rows: list[Pairs]
    writes: PriorWrites


class _Prediction:
    """What predicts what is read after some writes, and how that went.

    Without a template, nothing is changed by them. It was ``right`` so many times in a row, or
    ``failures`` came in a row; so many tries are ``skipped`` for that.
    """

    __slots__ = ("failures", "right", "skipped", "template")

    def __init__(self) -> None:
        self.right = self.failures = self.skipped = 0
        self.template: _Template | None = None

    def rows(self, key: Key, writes: PriorWrites, before: list[Pairs]) -> list[Pairs]:
        """Return what is predicted, given the rows before the writes."""
        if self.template is None or self.template.has_old_activity:
            return before
        try:
            return self.template.rows(key, writes, before)
        except IndexError:
            return before

    def learn(self, key: Key, writes: PriorWrites, before: list[Pairs], rows: list[Pairs]) -> None:
        """Change so that the rows would have been predicted."""
        same = rows == before
        self.template = None if same else _template(key, writes, before, rows, self.template)


class Predictor:
    """Predicts the questions and answers of rules from recent ones."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Key, _Answer] = OrderedDict()
        self._last: dict[str, list[Pairs]] = {}
        self._new: dict[str, int] = {}
        """How often in a row a question with new parameters had the answer of the one before."""
        self._predictions: OrderedDict[ReadAfter, _Prediction] = OrderedDict()

    def note(self, key: Key, rows: list[Pairs]) -> None:
        """Keep an answer, and whether it was predicted right."""
        if (old := self._answers.get(key)) is None:
            right = self._last.get(key[0]) == rows
            self._new[key[0]] = self._new.get(key[0], 0) + 1 if right else 0
        else:
            prediction = self._prediction(key, old.writes)
            right = prediction.rows(key, old.writes, old.rows) == rows
            prediction.right = prediction.right + 1 if right else 0
            if old.writes and not right:
                prediction.learn(key, old.writes, old.rows, rows)
        self._keep(key, _Answer(rows, ()))

    def committed(self, key: Key, rows: list[Pairs], writes: PriorWrites) -> None:
        """Keep an answer, and what its rule has written after that."""
        if is_short(rows) and _are_short(writes):
            self._keep(key, _Answer(rows, writes))
        else:
            self._answers.pop(key, None)

    def _keep(self, key: Key, answer: _Answer) -> None:
        self._answers[key] = answer
        self._answers.move_to_end(key)
        self._last[key[0]] = answer.rows
        if len(self._answers) > _MOST:
            self._answers.popitem(last=False)
        if len(self._last) > _MOST:
            self._last.clear()
            self._new.clear()

    def guess(self, key: Key) -> list[Pairs]:
        """Return what the answer may be: by the last one to this question, else to one like it.

        Raises NotKnown.
        """
        if (answer := self._answers.get(key)) is not None:
            return self._prediction(key, answer.writes).rows(key, answer.writes, answer.rows)
        if (rows := self._last.get(key[0])) is None:
            raise NotKnown
        return rows

    def trusted(self, key: Key) -> list[Pairs] | None:
        """Return what the answer is where that was always right lately, else None.

        Columns of activity are always asked for.
        """
        rows: list[Pairs] | None
        if (answer := self._answers.get(key)) is None:
            rows = self._last.get(key[0]) if self._new.get(key[0], 0) >= SURE else None
        else:
            prediction = self._prediction(key, answer.writes)
            sure = prediction.right >= SURE
            rows = prediction.rows(key, answer.writes, answer.rows) if sure else None
        return None if rows is None or _has_activity(rows) else rows

    def forget_answers(self) -> None:
        """Forget what was answered, but not what rules ask for and read of their own writes.

        What is guessed by that is asked for, or compared.
        """
        self._answers.clear()
        self._new.clear()
        for prediction in self._predictions.values():
            prediction.right = 0

    def missed(self, key: Key) -> None:
        """Note that the answer to a question was another one at the commit."""
        self._new[key[0]] = 0
        if (answer := self._answers.get(key)) is not None:
            self._prediction(key, answer.writes).right = 0

    def guess_own(self, key: Key, own: PriorWrites, before: list[Pairs]) -> list[Pairs]:
        """Return what a rule may read of its own writes, given what was there before them."""
        return self._prediction(key, own).rows(key, own, before)

    def backs_off(self, key: Key, own: PriorWrites) -> bool:
        """Whether a try is not worth it, since the last ones failed here; sometimes it is again."""
        prediction = self._predictions.get(read_after(key, own))
        if prediction is None or not prediction.skipped:
            return False
        prediction.skipped -= 1
        return True

    def saw_own(self, key: Key, own: PriorWrites, rows: list[Pairs]) -> None:
        """Keep what a rule read of its own writes in its turn."""
        prediction = self._prediction(key, own)
        had_template = prediction.template is not None
        before = self.guess(key) if key in self._answers else []
        prediction.learn(key, own, before, rows)
        if prediction.template is not None and not had_template:
            prediction.failures = prediction.skipped = 0

    def failed(
        self, key: Key, own: PriorWrites, before: list[Pairs], rows: list[Pairs] | None
    ) -> None:
        """Note that a rule read other rows of its own writes than predicted, if known which."""
        prediction = self._prediction(key, own)
        prediction.failures = min(prediction.failures + 1, _FAILURES)
        prediction.skipped = 2**prediction.failures
        if rows is None or (prediction.template is not None and prediction.failures > 1):
            prediction.template = None
        else:
            prediction.learn(key, own, before, rows)

    def succeeded(self, key: Key, own: PriorWrites) -> None:
        """Note that a rule read of its own writes what was predicted."""
        if prediction := self._predictions.get(read_after(key, own)):
            prediction.failures = prediction.skipped = 0

    def _prediction(self, key: Key, writes: PriorWrites) -> _Prediction:
        kind = read_after(key, writes)
        prediction = self._predictions.get(kind)
        if prediction is not None:
            self._predictions.move_to_end(kind)
            return prediction
        prediction = self._predictions[kind] = _Prediction()
        if len(self._predictions) > _MOST:
            self._predictions.popitem(last=False)
        return prediction


def is_short(rows: Sequence[Pairs]) -> bool:
    """Whether rows are short enough to be remembered."""
    values = [value for row in rows for _, value in row]
    return len(values) <= _CELLS and _length(values) <= _CHARACTERS


def _are_short(writes: PriorWrites) -> bool:
    values = (value for write in writes for value in write.params.values())
    return len(writes) <= _WRITES and _length(values) <= _CHARACTERS


def _length(values: Iterable[Any]) -> int:
    return sum(len(value) for value in values if isinstance(value, str))


def _has_activity(rows: Sequence[Pairs]) -> bool:
    """Whether rows, which all have the same columns, have one of activity."""
    return bool(rows) and not ACTIVITY.keys().isdisjoint([column for column, _ in rows[0]])


class ExecuteWithColumns(Execute, Protocol):
    """Runs statements, and tells the columns that ``tuples`` last returned."""

    @property
    def columns(self) -> list[str]:
        """Return their names; none where no row came."""
        ...


class RecordingExecutor:
    """Runs the statements of a rule in its turn, and lets the predictor know what they returned."""

    def __init__(self, execute: ExecuteWithColumns, predictor: Predictor) -> None:
        self._execute = execute
        self._predictor = predictor
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
        if len(set(columns)) == len(columns):
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
        if shape.kind in ("read", "returning") and is_short(rows):
            key = shape.key(params)
            if own := self._own.read_by(shape):
                self._predictor.saw_own(key, own, [*rows])
            else:
                self._predictor.note(key, [*rows])
        self._own.note(shape, sql, dict(params))
