"""Store migration: copies rows from one store to the other, and compares both.

Rows are carried as they are, but for whose machine they are of: ``''`` in a store that one machine
has to itself. What only has a meaning where it is stays there.
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

    def fill(self, table: Table, rows: Iterable[Values]) -> None:
        """Add rows to a table; no trigger of the schema hears of it."""

    def empty(self, tables: Iterable[Table]) -> None:
        """Remove every row, the last table first; no trigger hears of it."""

    def numbers(self, numbered: Iterable[Table]) -> dict[str, int]:
        """Return the highest number that was ever given out for each table that counts its rows."""

    def count_on(self, numbers: dict[str, int]) -> None:
        """Have the numbers of tables go on above those that were given out."""

    def commit(self) -> None:
        """Make what was done last."""

    def begin(self) -> None:
        """Begin another transaction after a commit."""


# Who is at a store, who waits in it, and what was changed within an hour: none of it goes along.
STAYING = ("machines", "lock_waits", "edits", "edit_conflicts", "outside_edits")
# What a store says of its own moves, and which clock its figures are of: those are set again.
OWN_KEYS = ("moved_to", "moving_to", "arrived", "boot")
# Where a file has to be written again once it is another machine's.
_FILED = "backed_up_at"
# What is said of the files of a record.
_FILES = (_FILED, "compressed_at", "gzip_digest", "gzip_bytes")
TELL_EVERY = 500
Tell = Callable[[str, int, int], None]


class TransferPlan(msgspec.Struct, frozen=True):
    """What goes from one store to another: to which, and under which names of machines.

    ``machine`` is this one's id in the shared store; ``shared`` says that it goes there.
    """

    tables: tuple[Table, ...]
    counted: frozenset[str]
    machine: str
    shared: bool

    @property
    def carried(self) -> list[Table]:
        """Return the tables whose rows go along, each behind those that its rows belong to."""
        return [table for table in self.tables if table.name not in STAYING]

    @property
    def numbered(self) -> list[Table]:
        """Return the tables whose rows are numbered and never twice the same."""
        return [table for table in self.tables if table.name in self.counted]

    def leaving(self, table: Table, rows: Iterable[Values]) -> Iterator[Values]:
        """Yield the rows of the store that is left, as they are to be in the other one."""
        change = self._change(table)
        for row in self.staying_out(table, rows):
            plain = _plain(table, row) if self.shared else row
            yield change(plain) if change else plain

    def staying_out(self, table: Table, rows: Iterable[Values]) -> Iterator[Values]:
        """Yield the rows of a table without those that each store has of its own."""
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
        # Another machine's file is written here: nobody else is there to have it.
        return lambda row: _with(row if row[place] in ours else _with(row, filed, None), place, "")


def _plain(table: Table, row: Values) -> Values:
    """Return a row as PostgreSQL has it, which knows no NUL in a text."""
    plain = without_nul(row)
    kind = next((each for each in KINDS.values() if each.table == table.name), None)
    if plain is row or kind is None:
        return plain
    named = dict(zip(table.columns, row, strict=True))
    try:
        record = without_nul(kind.from_row(named))
    except FleetError:  # damaged, or deleted: there is nothing to vouch for
        return plain
    # Its checksum was made with the NUL, and so was its file, which is written again.
    packed = {name: None for name in named if name in _FILES}
    named |= without_nul(named) | kind.to_columns(record) | packed
    return tuple(named[name] for name in table.columns)


def _with(row: Values, place: int, value: Any) -> Values:
    return (*row[:place], value, *row[place + 1 :])


def copy_rows(source: StoreSide, target: StoreSide, plan: TransferPlan, tell: Tell) -> None:
    """Replace whatever the target holds by the rows of the source."""
    target.empty(plan.tables)
    for table in plan.carried:
        rows = plan.leaving(table, source.rows(table))
        target.fill(table, _reported(table.name, rows, size(source, table), tell))
    given = source.numbers(plan.numbered)
    target.count_on({name: number for name, number in given.items() if number})


def compare(
    source: StoreSide, target: StoreSide, plan: TransferPlan, tell: Tell
) -> list[TableCheck]:
    """Read both stores whole, and tell of each table how many rows there are and their digest."""
    found = []
    for table in plan.carried:
        rows = plan.leaving(table, source.rows(table))
        here = _digest(_reported(f"{table.name} compared", rows, size(source, table), tell))
        there = _digest(plan.staying_out(table, target.rows(table)))
        first = None
        if here != there:
            # Streamed once more, up to the first row that is not the same on both sides.
            rows = plan.leaving(table, source.rows(table))
            pairs = itertools.zip_longest(rows, plan.staying_out(table, target.rows(table)))
            differing = next((pair for pair in pairs if pair[0] != pair[1]), ())
            keys = (table.key_of(row) for row in differing if row is not None)
            first = min(keys, default=None)
        found.append(_check(table.name, here, there, first))
    # The numbers that are given out next, which no row need show.
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


def _reported(what: str, rows: Iterable[Values], total: int, tell: Tell) -> Iterator[Values]:
    """Yield rows and tell now and then how many of them there were."""
    for done, row in enumerate(rows):
        if done % TELL_EVERY == 0:
            tell(what, done, total)
        yield row


def _digest(rows: Iterable[Sequence[Any]]) -> tuple[int, str]:
    """Return how many rows there are, and the SHA-256 over them in their order."""
    encode, total, number = msgspec.msgpack.Encoder().encode, hashlib.sha256(), 0
    for row in rows:
        total.update(encode(row))
        number += 1
    return number, total.hexdigest()
