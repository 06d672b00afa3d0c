"""Statements by name: prepared once for a connection, and run with literals, many in one message.

A message of several statements has no parameters, so each value is a literal in it.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from ...domain.core.assigned import Assigned, Unpredictable, placeholders
from ...domain.core.text import NUL
from ...domain.core.tx import Row
from .connection import PART, ServerConnection, literal_writer

# The most prepared statements of a connection: the server keeps a plan of each.
_MOST = 1_000
# Classes of SQLSTATE that refuse the statement itself, unlike a lock, for example.
_REFUSED = ("42", "0A")
_written = literal_writer()
Number = Callable[[Assigned], str]
"""Gives the SQL of a number that is known at the commit only."""


def no_number(number: Assigned) -> str:
    """Refuse a number that is asked for before the commit."""
    raise Unpredictable(f"{number!r} is asked for before the commit")


def literal(value: Any, number: Number = no_number) -> str:
    """Return a value as SQL; raises Unpredictable for one that has no literal."""
    if isinstance(value, Assigned):
        return number(value)
    text = _plain(value)
    if isinstance(value, str):
        for mark, assigned in placeholders(value).items():
            text = f"replace({text}, '{mark}', ({number(assigned)})::text)"
    return text


def _plain(value: Any) -> str:
    """Return a value in which no number is missing."""
    # Most values are plain texts and numbers: a flush has some hundred of them.
    if type(value) is int and value >= 0:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Unpredictable(f"{value} has no literal")
    if not isinstance(value, str | int | float):
        raise Unpredictable(f"a value of {type(value).__name__} has no literal")
    try:
        if type(value) is str and "\\" not in value and NUL not in value:
            if not value.isascii():
                value.encode()
            return "'" + value.replace("'", "''") + "'"
        return bytes(_written(value)).decode()
    except UnicodeEncodeError as error:
        raise Unpredictable("a text is no Unicode") from error


# NULL is no parameter: the prepared statement has it.
_NULL = "NULL"
_TYPES = {
    str: "text",
    int: "bigint",
    bool: "bigint",
    Assigned: "bigint",
    float: "double precision",
    type(None): _NULL,
}


def _type_of(value: Any) -> str:
    """Return what a parameter of no plain kind is declared as."""
    return next((name for kind, name in _TYPES.items() if isinstance(value, kind)), "text")


@lru_cache(maxsize=4_000)
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with ``$1`` where it has ``:name``, and the names in their order."""
    names: dict[str, int] = {}

    def placed(match: re.Match[str]) -> str:
        if match[1]:
            return f"${names.setdefault(match[1], len(names) + 1)}"
        return match[0]

    text = PART.sub(placed, sql)
    return text, tuple(names)


Argument = str | Callable[[Number], str]
"""The SQL of a value, or what gives it once the numbers in it are known."""


class Call:
    """A statement by its name, with its arguments; ``size`` is of their texts, in characters."""

    __slots__ = ("_arguments", "_name", "size")

    def __init__(self, name: str, arguments: list[Argument], size: int) -> None:
        self._name = name
        self._arguments = arguments
        self.size = size

    def text(self, number: Number = no_number) -> str:
        """Return the SQL that runs it."""
        if not self._arguments:
            return f"EXECUTE {self._name}"
        values = [each if isinstance(each, str) else each(number) for each in self._arguments]
        return f"EXECUTE {self._name} ({', '.join(values)})"


def _argument(value: Any) -> Argument:
    """Return the SQL of a value; raises Unpredictable for one that has none."""
    if isinstance(value, Assigned):
        return partial(literal, value)
    text = _plain(value)
    if isinstance(value, str) and placeholders(value):
        return partial(literal, value)
    return text


_Key = tuple[str, str, tuple[str, ...]]
"""A statement, the form that it has here, and the types of its parameters."""


class PreparedStatements:
    """What is prepared on one connection, the most recently used of it."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._names: OrderedDict[_Key, str] = OrderedDict()
        self._new: dict[_Key, str] = {}
        self._bad: set[_Key] = set()
        self._given = 0

    def call(self, sql: str, params: Row, form: str = "SQL", expected: str | None = None) -> Call:
        """Return a statement with its parameters, for ``run`` or to be sent after ``prepare``.

        In ``form``, SQL stands for the statement and EXPECTED for a text, which is JSON.
        Raises Unpredictable for a statement that the server does not take by name.
        """
        types: list[str] = []
        arguments: list[Argument] = []
        size = 0
        for parameter in numbered(sql)[1]:
            value = params[parameter]
            types.append(_TYPES.get(type(value)) or _type_of(value))
            if value is not None:
                arguments.append(_argument(value))
                if isinstance(value, str):
                    size += len(value)
        if expected is not None:
            arguments.append(_argument(expected))
            size += len(expected)
        key = (sql, form, tuple(types))
        name = self._names.get(key)
        if name is not None:
            self._names.move_to_end(key)
        elif key in self._bad:
            raise Unpredictable("the server does not take this statement by name")
        elif (name := self._new.get(key)) is None:
            self._given += 1
            self._new[key] = name = f"fleet_{self._given}"
        return Call(name, arguments, size)

    def prepare(self) -> None:
        """Prepare what is called for the first time; raises as ``run`` does."""
        self.run(())

    def run(self, calls: Iterable[Call]) -> list[PGresult]:
        """Do the same and run the calls in the same message; return what each came to.

        Raises Unpredictable where a statement cannot be prepared, psycopg.Error.
        """
        new, self._new = self._new, {}
        texts = []
        while len(self._names) + len(new) > _MOST and self._names:
            texts.append(f"DEALLOCATE {self._names.popitem(last=False)[1]}")
        first = len(texts)
        texts += [_prepare(name, key) for key, name in new.items()]
        before = len(texts)
        texts += [call.text() for call in calls]
        if not texts:
            return []
        results = self._connection.outcomes("; ".join(texts).encode())
        failed = results[-1].status == ExecStatus.FATAL_ERROR
        if failed and len(results) <= before:
            error = error_from_result(results[-1])
            names = [*new.items()]
            done = max(0, len(results) - 1 - first)
            self._names |= names[:done]
            if self._connection.closed or error.sqlstate is None:
                raise error
            if error.sqlstate.startswith(_REFUSED):
                self._find_bad(key for key, _ in names[done:])
            raise Unpredictable("the server does not take a statement by name") from error
        self._names |= new
        if failed:
            raise error_from_result(results[-1])
        return results[before:]

    def _find_bad(self, keys: Iterable[_Key]) -> None:
        """Prepare statements one by one; a syntax error fails the whole message, whoever has it."""
        for key in keys:
            self._given += 1
            name = f"fleet_{self._given}"
            try:
                self._connection.simple_query(_prepare(name, key).encode())
            except psycopg.Error as error:
                if self._connection.closed or error.sqlstate is None:
                    raise
                if error.sqlstate.startswith(_REFUSED):
                    self._bad.add(key)
            else:
                self._names[key] = name


def _prepare(name: str, key: _Key) -> str:
    """Return what prepares a statement, with NULL in the place of what is none."""
    sql, form, types = key
    declared: list[str] = []
    places: dict[str, str] = {}
    for parameter, kind in zip(numbered(sql)[1], types, strict=True):
        if kind != _NULL:
            declared.append(kind)
        places[parameter] = _NULL if kind == _NULL else f"${len(declared)}"
    text = PART.sub(lambda part: places[part[1]] if part[1] else part[0], sql)
    if "EXPECTED" in form:
        declared.append("text")
        form = form.replace("EXPECTED", f"${len(declared)}")
    given = f" ({', '.join(declared)})" if declared else ""
    return f"PREPARE {name}{given} AS {form.replace('SQL', text)}"
