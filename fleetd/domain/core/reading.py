"""Reading: a part of a rule that only reads, in which each query is run once.

Several places can so query the same rows, each where it needs them.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from .tx import Effect, Row, Tx


class Reading(Tx):
    """A transaction in its present state; nothing may be written while it is in use."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(_ReadOnce(tx))

    def after_commit(self, effect: Effect) -> None:
        """Refuse: a query has no effects."""
        raise AssertionError(f"an effect of a query: {effect}")


class _ReadOnce:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._known: dict[tuple[Any, ...], list[Any]] = {}

    def __call__(self, sql: str, params: Row) -> list[Row]:
        return self._once(self._tx.all, sql, params)

    def limited(self, most_ms: int) -> AbstractContextManager[None]:
        return self._tx.limited(most_ms)

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        return self._once(self._tx.tuples, sql, params)

    def many(self, sql: str, params: Iterable[Row]) -> None:
        raise AssertionError(f"a query that writes: {sql} with {params}")

    def _once(self, run: Callable[..., list[Any]], sql: str, params: Row) -> list[Any]:
        key = (run.__name__, sql, *params.items())
        if (rows := self._known.get(key)) is None:
            if not sql.startswith("SELECT"):
                raise AssertionError(f"a query that writes: {sql}")
            rows = self._known[key] = run(sql, **params)
        return rows.copy()  # the caller may sort them
