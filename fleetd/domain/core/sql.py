"""Parts of SQL statements: lists of parameters and constants, and conditions on texts."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from .tx import Row

# The states of agents that count as living.
LIVING = "('active', 'waiting', 'idle')"
_IN_ONE = 500
T = TypeVar("T")


class Where:
    """Conditions of a statement that all have to hold, and their parameters."""

    def __init__(self) -> None:
        self._conditions = ["1 = 1"]
        self.params: Row = {}

    def add(self, condition: str, **params: Any) -> None:
        """Add a condition with the parameters that it names."""
        self._conditions.append(condition)
        self.params |= params

    def equal(self, **columns: Any) -> None:
        """Require columns to equal the given values; None leaves a column unconstrained."""
        for column, value in columns.items():
            if value is not None:
                self.add(f"{column} = :{column}", **{column: value})

    def since(self, column: str, time: str | None) -> None:
        """Require a column of times to be a time or later; None leaves it unconstrained."""
        if time is not None:
            self.add(f"{column} >= :since_time", since_time=time)

    def until(self, column: str, time: str | None) -> None:
        """Require a column of times to be a time or earlier; None leaves it unconstrained."""
        if time is not None:
            self.add(f"{column} <= :until_time", until_time=time)

    def __str__(self) -> str:
        return " AND ".join(self._conditions)


def named_params(prefix: str, values: Sequence[str | int]) -> Row:
    """Return parameters for values, named by the prefix and a number."""
    return {f"{prefix}{number}": value for number, value in enumerate(values)}


def inside_of(prefix: str, values: Sequence[str | int]) -> str:
    """Return the inside of ``IN (...)``; an empty list matches nothing."""
    return _inside_of(prefix, len(values))


@lru_cache(maxsize=1_000)
def _inside_of(prefix: str, number: int) -> str:
    return ", ".join([f":{name}" for name in named_params(prefix, range(number))]) or "NULL"


def in_sql(constants: Iterable[str]) -> str:
    """Return constants of this program, such as types of events, as a list in SQL."""
    return "(" + ", ".join(f"'{each}'" for each in constants) + ")"


def starts_with(column: str, name: str) -> str:
    """Return the condition that a text begins with a parameter."""
    return f"substr({column}, 1, length(:{name})) = :{name}"


def contains_any(column: str, names: Iterable[str]) -> str:
    """Return the condition that a text contains one of several parameters."""
    # Not LIKE, because case counts: removing a contained text changes the column's value.
    return " OR ".join(f"replace({column}, :{name}, '') <> {column}" for name in names)


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield values in parts that one statement can take as parameters."""
    for first in range(0, len(values), _IN_ONE):
        yield values[first : first + _IN_ONE]


Found = TypeVar("Found")
Cursor = TypeVar("Cursor")


class Batch(msgspec.Struct, Generic[Found, Cursor], frozen=True):
    """``following`` is the cursor of the next batch, None after the last one."""

    found: Found
    following: Cursor | None
