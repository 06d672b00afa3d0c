"""SQLite side of a store migration."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw

from ...domain.core.tx import Tx
from ...host.atomic_files import sync
from ...protocol.errors import Corrupt, InvalidState, Storage
from ..api import StoreRefused
from ..sqlite import page_checksums, search_index
from ..sqlite.connect import open_database
from ..sqlite.database_files import end_of, reached
from ..sqlite.group_commit import SqliteExecutor
from ..sqlite.integrity_check import damage_of
from .copy import Table, Values


class SqliteSide:
    """One database file, which no other process uses."""

    def __init__(self, connection: apsw.Connection, where: str) -> None:
        self.where = where
        self.tx = Tx(SqliteExecutor(connection, math.inf))  # whole tables at once
        self._connection = connection

    def tables(self) -> list[Table]:
        """Return every table, each after those that its rows refer to."""
        names = [
            str(row[0])
            for row in self._connection.execute(
                # Without the tables of the full-text search, which are rebuilt from its documents.
                "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
                " AND name NOT LIKE 'sqlite_%' ORDER BY name"
            )
        ]
        found: list[str] = []
        while len(found) < len(names):
            found += [name for name in names if name not in found and self._above(name) <= {*found}]
        return [self._table(name) for name in found]

    def _above(self, name: str) -> set[str]:
        return {str(row[2]) for row in self._connection.execute(f"PRAGMA foreign_key_list({name})")}

    def _table(self, name: str) -> Table:
        columns = list(self._connection.execute(f"PRAGMA table_info({name})"))
        key = sorted((row[5], str(row[1])) for row in columns if row[5])
        return Table(name, tuple(str(row[1]) for row in columns), tuple(name for _, name in key))

    def counted(self) -> set[str]:
        """Return the names of tables that number their rows and never reuse a number."""
        found = self._connection.execute(
            "SELECT name FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'"
        )
        return {str(row[0]) for row in found}

    def rows(self, table: Table) -> Iterator[Values]:
        """Yield the rows of a table in the order of its key."""
        yield from self._connection.execute(
            f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {', '.join(table.key)}"
        )

    def fill(self, table: Table, rows: Iterable[Values]) -> None:
        """Add rows to a table."""
        marks = ", ".join("?" * len(table.columns))
        self._connection.executemany(
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})", rows
        )
        if table.name == search_index.DOCUMENTS:
            search_index.rebuild(self._connection)

    def empty(self, tables: Iterable[Table]) -> None:
        """Remove every row; a new database has only those that its migrations made."""
        for table in reversed(list(tables)):
            self._connection.execute(f"DELETE FROM {table.name}")

    def numbers(self, numbered: Iterable[Table]) -> dict[str, int]:
        """Return the highest numbers that were ever assigned."""
        found = dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence"))
        return {table.name: int(found.get(table.name, 0)) for table in numbered}

    def count_on(self, numbers: dict[str, int]) -> None:
        """Continue numbering above the numbers that were assigned."""
        for name, number in numbers.items():
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            self._connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, number))

    def commit(self) -> None:
        """Commit what was done."""
        self._connection.execute("COMMIT")

    def begin(self) -> None:
        """Begin another transaction after a commit."""
        self._connection.execute("BEGIN IMMEDIATE")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[SqliteSide]:
    """Open the database of this machine in a transaction; uncommitted changes are rolled back.

    A database of an older schema is migrated to the current one first. Raises FleetError.
    """
    if not path.exists():
        raise InvalidState(
            f"There is no database {path}, so there is nothing to move.",
            hint="Set store to the server's URL and start fleetd: it creates the store there.",
        )
    with errors_translated(path), contextlib.closing(_open(path)) as connection:
        if (end := end_of(connection)) < (known := reached(path)):
            raise Corrupt(
                f"The log of {path} ends at {end} but had reached {known}: events are missing.",
                hint="Start fleetd once with this database: it reports the loss and continues.",
            )
        with _transaction(connection):
            yield SqliteSide(connection, str(path))


@contextlib.contextmanager
def made(part: Path) -> Iterator[SqliteSide]:
    """Fill an existing empty file; it is whole and on the disk when the block ends."""
    with errors_translated(part):
        with contextlib.closing(_open(part)) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            # No other program knows the file before it is whole, so an earlier sync is not needed.
            connection.pragma("synchronous", "off")
            with _transaction(connection):
                yield SqliteSide(connection, str(part))
            if damage := damage_of(connection):
                raise Corrupt(
                    f"The new database is incomplete: {'; '.join(damage)}",
                    hint="Nothing was changed. Check the disk, then try again.",
                )
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        sync(part)


def _open(path: Path) -> apsw.Connection:
    try:
        return open_database(path, None)
    except StoreRefused as error:
        raise Storage(str(error), hint="Nothing was changed.") from error


@contextlib.contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def errors_translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the disk into the errors that a person gets."""
    try:
        yield
    except apsw.FullError as error:
        raise Storage(
            f"The disk of {path} is full.", hint="Free some space, then try again."
        ) from error
    except (apsw.Error, OSError) as error:
        if isinstance(error, apsw.Error) and page_checksums.is_damage(error):
            raise Corrupt(
                f"The database {path} is damaged ({error}).",
                hint="fleetctl restore replaces it with a copy.",
            ) from error
        raise Storage(
            f"The database {path} cannot be read or written: {error}.",
            hint="Check its permissions, the free space and the disk.",
        ) from error
