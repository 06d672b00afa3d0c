"""Store migration: copies rows from one store to the other, and compares both.

Rows are carried unchanged except for their machine, which is ``''`` in a store that one machine has
to itself. Data that only has a meaning in its own store stays there.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from ...domain.core.text import without_nul
from ...domain.core.tx import Tx
from ...domain.rules import KINDS
from ...protocol.errors import FleetError
from ...protocol.migration import TableCheck

Values = tuple[Any, ...]


class Table(msgspec.Struct, frozen=True):
    """A table of both sides, which is read in the order of its ``key`` columns."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def key_of(self, row: Values) -> str:
        """Return what identifies a row, for people."""
        return ", ".join(str(row[self.columns.index(name)]) for name in self.key)


class StoreSide(Protocol):
    """One side, within a transaction that its opener commits."""

    where: str
    tx: Tx

    def rows(self, table: Table) -> Iterator[Values]:
        """Yield the rows of a table in the order of its key, few of them in memory."""

    def fill(self, table: Table, rows: Iterable[Values]) -> None:
        """Add rows to a table, without firing triggers of the schema."""

    def empty(self, tables: Iterable[Table]) -> None:
        """Remove every row, the last table first, without firing triggers."""

    def numbers(self, numbered: Iterable[Table]) -> dict[str, int]:
        """Return the highest number that was ever assigned for each table that counts its rows."""

    def count_on(self, numbers: dict[str, int]) -> None:
        """Continue the numbers of tables above those that were assigned."""

    def commit(self) -> None:
        """Commit what was done."""

    def begin(self) -> None:
        """Begin another transaction after a commit."""


# Machines at a store, lock waits in it, and the edits of the last hour: none of these is carried.
STAYING = ("machines", "lock_waits", "edits", "edit_conflicts", "outside_edits")
# A store's record of its own moves, and the clock of its figures: these are set again.
OWN_KEYS = ("moved_to", "moving_to", "arrived", "boot")
# Emptied where a file has to be written again, such as one of another machine.
_FILED = "backed_up_at"
# Columns that describe the files of a record.
_FILES = (_FILED, "compressed_at", "gzip_digest", "gzip_bytes")
PROGRESS_ROWS = 500
OnProgress = Callable[[str, int, int], None]


class TransferPlan(msgspec.Struct, frozen=True):
    """A transfer from one store to another: its direction, and the names of machines in it.

    ``machine`` is this one's id in the shared store; ``shared`` means that it goes there.
    """

    tables: tuple[Table, ...]
    counted: frozenset[str]
    machine: str
    shared: bool

    @property
    def carried(self) -> list[Table]:
        """Return the tables whose rows are carried, each after those that its rows refer to."""
        return [table for table in self.tables if table.name not in STAYING]

    @property
    def numbered(self) -> list[Table]:
        """Return the tables that number their rows and never reuse a number."""
        return [table for table in self.tables if table.name in self.counted]

    def leaving(self, table: Table, rows: Iterable[Values]) -> Iterator[Values]:
        """Yield the rows of the source, as the target is to have them."""
        change = self._change(table)
        for row in self.staying_out(table, rows):
            plain = _plain(table, row) if self.shared else row
            yield change(plain) if change else plain

    def staying_out(self, table: Table, rows: Iterable[Values]) -> Iterator[Values]:
        """Yield the rows of a table without those that are specific to each store."""
        own = {"store_meta": frozenset(OWN_KEYS), "counters": self.counted}.get(table.name)
        return (row for row in rows if row[0] not in own) if own else iter(rows)

    def _change(self, table: Table) -> Callable[[Values], Values] | None:
        if "machine" not in table.columns:
            return None
        place = table.columns.index("machine")
        if self.shared:
            return lambda row: _with(row, place, row[place] or self.machine)
        if _FILED not in table.columns:
            return lambda row: _with(row, place, "") if row[place] == self.machine else row
        filed = table.columns.index(_FILED)
        ours = (self.machine, "")
        # Another machine's file is written here, because no other machine is left to have it.
        return lambda row: _with(row if row[place] in ours else _with(row, filed, None), place, "")


def _plain(table: Table, row: Values) -> Values:
    """Return a row as PostgreSQL stores it, which allows no NUL in a text."""
    plain = without_nul(row)
    kind = next((each for each in KINDS.values() if each.table == table.name), None)
    if plain is row or kind is None:
        return plain
    named = dict(zip(table.columns, row, strict=True))
    try:
        record = without_nul(kind.from_row(named))
    except FleetError:  # damaged, or deleted: there is nothing to vouch for
        return plain
    # Its checksum and its file were made with the NUL; the file is written again.
    packed = {name: None for name in named if name in _FILES}
    named |= without_nul(named) | kind.to_columns(record) | packed
    return tuple(named[name] for name in table.columns)


def _with(row: Values, place: int, value: Any) -> Values:
    return (*row[:place], value, *row[place + 1 :])


def copy_rows(
    source: StoreSide, target: StoreSide, plan: TransferPlan, on_progress: OnProgress
) -> None:
    """Replace all rows of the target by those of the source."""
    target.empty(plan.tables)
    for table in plan.carried:
        rows = plan.leaving(table, source.rows(table))
        target.fill(table, _reported(table.name, rows, size(source, table), on_progress))
    given = source.numbers(plan.numbered)
    target.count_on({name: number for name, number in given.items() if number})


def compare(
    source: StoreSide, target: StoreSide, plan: TransferPlan, on_progress: OnProgress
) -> list[TableCheck]:
    """Read both stores whole; return the number and the checksum of each table's rows."""
    found = []
    for table in plan.carried:
        rows = plan.leaving(table, source.rows(table))
        here = _digest(_reported(f"{table.name} compared", rows, size(source, table), on_progress))
        there = _digest(plan.staying_out(table, target.rows(table)))
        first = None
        if here != there:
            # Read once more, up to the first row that differs between the sides.
            rows = plan.leaving(table, source.rows(table))
            pairs = itertools.zip_longest(rows, plan.staying_out(table, target.rows(table)))
            differing = next((pair for pair in pairs if pair[0] != pair[1]), ())
            keys = (table.key_of(row) for row in differing if row is not None)
            first = min(keys, default=None)
        found.append(_check(table.name, here, there, first))
    # The next numbers to be assigned, which no row need show.
    here, there = (
        _digest(sorted(side.numbers(plan.numbered).items())) for side in (source, target)
    )
    first = None if here == there else "the next number of a table"
    return [*found, _check("numbers given out", here, there, first)]


def _check(
    name: str, here: tuple[int, str], there: tuple[int, str], first: str | None
) -> TableCheck:
    return TableCheck(
        table=name,
        source_rows=here[0],
        target_rows=there[0],
        source_digest=here[1],
        target_digest=there[1],
        first_difference=first,
    )


def size(side: StoreSide, table: Table) -> int:
    """Return how many rows a table has."""
    return int(side.tx.value(f"SELECT count(*) AS number FROM {table.name}"))


def _reported(
    what: str, rows: Iterable[Values], total: int, on_progress: OnProgress
) -> Iterator[Values]:
    """Yield rows, and report now and then how many there were."""
    for done, row in enumerate(rows):
        if done % PROGRESS_ROWS == 0:
            on_progress(what, done, total)
        yield row


def _digest(rows: Iterable[Sequence[Any]]) -> tuple[int, str]:
    """Return the number of rows, and the SHA-256 over them in their order."""
    encode, total, number = msgspec.msgpack.Encoder().encode, hashlib.sha256(), 0
    for row in rows:
        total.update(encode(row))
        number += 1
    return number, total.hexdigest()
