"""A count of the statements of rules: each is a round trip where the store is a server."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fleetd.domain.core.tx import Row, Tx


class _Counted:
    """Runs the statements of a transaction and notes each."""

    def __init__(self, execute: Any, seen: list[str]) -> None:
        self._execute, self._seen = execute, seen

    def __call__(self, sql: str, params: Row) -> Any:
        self._seen.append(sql)
        return self._execute(sql, params)

    def tuples(self, sql: str, params: Row) -> Any:
        self._seen.append(sql)
        return self._execute.tuples(sql, params)

    def many(self, sql: str, params: Iterable[Row]) -> None:
        self._seen.append(sql)
        self._execute.many(sql, params)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects every statement that rules run from now on.

    Each transaction adds its beginning and its end. Rules run one at a time, each once.
    """
    monkeypatch.setattr("fleetd.engine.engine.is_optimistic", lambda _: False)
    seen: list[str] = []
    real: Callable[..., None] = Tx.__init__

    def counted(tx: Tx, execute: Any, *rest: Any) -> None:
        real(tx, _Counted(execute, seen), *rest)

    monkeypatch.setattr(Tx, "__init__", counted)
    return seen
