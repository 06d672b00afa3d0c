"""What either end of a store migration can do."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from ...domain.core.tx import Tx

Values = tuple[Any, ...]


class Table(msgspec.Struct, frozen=True):
    """A table of both ends; ``key`` are the columns that it is read in the order of."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def key_of(self, row: Values) -> str:
        """Return what tells a row from others, for people."""
        return ", ".join(str(row[self.columns.index(name)]) for name in self.key)


class StoreSide(Protocol):
    """One end, within a transaction that whoever opened it commits."""

    where: str
    tx: Tx

    def rows(self, table: Table) -> Iterator[Values]:
        """Yield the rows of a table in the order of its key, few of them in memory."""
        ...

    def fill(self, table: Table, rows: Iterable[Values]) -> None:
        """Add rows to a table; no trigger of the schema hears of it."""
        ...

    def empty(self, tables: Iterable[Table]) -> None:
        """Remove every row, the last table first; no trigger hears of it."""
        ...

    def numbers(self, numbered: Iterable[Table]) -> dict[str, int]:
        """Return the highest number that was ever given out for each table that counts its rows."""
        ...

    def count_on(self, numbers: dict[str, int]) -> None:
        """Have the numbers of tables go on above those that were given out."""
        ...

    def commit(self) -> None:
        """Make what was done last."""
        ...

    def begin(self) -> None:
        """Begin another transaction after a commit."""
        ...
