"""The PostgreSQL end of a store migration.

All that is written is one transaction: until its COMMIT nobody sees any of it, and whatever ends it
before leaves the store as it was.
"""

import contextlib
from collections.abc import Iterable, Iterator

import psycopg
from psycopg import errors, sql

from ...domain.core.tx import Tx
from ...protocol.errors import FleetError, InvalidState, LimitExceeded, Storage, Unavailable
from ..api import StoreRefused
from ..postgres.batch import LOCK
from ..postgres.connection import PostgresExecutor, ServerConnection, connect
from ..postgres.errors import ServerAway, server_message
from ..postgres.migrate import migrate, version_of
from ..postgres.url import display_name
from .copy import Table, Values

ROWS_AT_ONCE = 100
# A machine that was heard of since then is at work, or was killed just now.
AT_WORK_MS = 60_000
# A whole store takes longer than the transaction of a request.
TIMEOUT_S = 3_600.0
_LET_IN = (
    "Give the role a password (\\password in psql), and this computer the same in ~/.pgpass;"
    " nothing was changed."
)
_PATIENT = b"SET idle_in_transaction_session_timeout = 0"
_AT_WORK = (
    "SELECT name FROM machines WHERE status = 'here' AND id <> %s AND heard_awake_ms >"
    " (extract(epoch FROM clock_timestamp()) * 1000)::bigint - %s ORDER BY name"
)
_SEQUENCE = (
    "SELECT pg_get_serial_sequence(table_name, column_name) FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND table_name = %s AND is_identity = 'YES'"
)


class PostgresSide:
    """One schema of a PostgreSQL database, in a transaction that keeps all daemons from writing."""

    def __init__(self, connection: ServerConnection, where: str) -> None:
        self.where = where
        self.tx = Tx(PostgresExecutor(connection))
        self._connection = connection

    def at_work(self, own: str) -> list[str]:
        """Return the names of other machines whose daemons are at work with this store."""
        return [str(row[0]) for row in self._connection.execute(_AT_WORK, (own, AT_WORK_MS))]

    def rows(self, table: Table) -> Iterator[Values]:
        """Yield the rows of a table in the order of its key, which is that of its bytes."""
        query = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
            _names(table.columns), sql.Identifier(table.name), _names(table.key)
        )
        with self._connection.cursor(name=f"moving_{table.name}") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            yield from cursor.execute(query)

    def fill(self, table: Table, rows: Iterable[Values]) -> None:
        """Add rows to a table; no trigger of the schema hears of it."""
        query = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table.name), _names(table.columns)
        )
        with self._silent([table]), self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for row in rows:
                copy.write_row(row)

    def empty(self, tables: Iterable[Table]) -> None:
        """Remove every row, the last table first, and number anew; no trigger hears of it."""
        last_first = list(tables)[::-1]
        with self._silent(last_first):
            for table in last_first:
                self._connection.execute(
                    sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name))
                )
                self._number_from(table.name, 0)

    @contextlib.contextmanager
    def _silent(self, tables: Iterable[Table]) -> Iterator[None]:
        """Have no trigger counted: what they keep is carried too, and one by one it takes long."""
        change = "ALTER TABLE {} {} TRIGGER USER"
        for table in tables:
            name = sql.Identifier(table.name)
            self._connection.execute(sql.SQL(change).format(name, sql.SQL("DISABLE")))
        yield
        for table in tables:
            name = sql.Identifier(table.name)
            self._connection.execute(sql.SQL(change).format(name, sql.SQL("ENABLE")))

    def numbers(self, numbered: Iterable[Table]) -> dict[str, int]:
        """Return the highest numbers that were ever given out."""
        return {table.name: self._number(table) for table in numbered}

    def _number(self, table: Table) -> int:
        if (sequence := self._sequence(table.name)) is not None:
            kept = f"SELECT pg_sequence_last_value('{sequence}')"
        else:
            kept = f"SELECT value FROM counters WHERE name = '{table.name}'"
        (key,) = table.key
        query = f"SELECT greatest((SELECT max({key}) FROM {table.name}), ({kept}), 0)".encode()
        row = self._connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def count_on(self, numbers: dict[str, int]) -> None:
        """Have numbers go on above those that were given out."""
        for name, number in numbers.items():
            if self._number_from(name, number):
                continue
            self._connection.execute(
                "INSERT INTO counters (name, value) VALUES (%s, %s)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, number),
            )

    def _sequence(self, table: str) -> str | None:
        """Return what numbers the rows of a table, None where the rules or a trigger do."""
        row = self._connection.execute(_SEQUENCE, (table,)).fetchone()
        return None if row is None else str(row[0])

    def _number_from(self, table: str, number: int) -> bool:
        """Have the sequence of a table go on above a number; whether the table has one."""
        sequence = self._sequence(table)
        if sequence is not None:
            # A restart makes a new file, so that a rollback takes back what is set in it, too.
            self._connection.execute(f"ALTER SEQUENCE {sequence} RESTART".encode())
            if number:
                self._connection.execute("SELECT setval(%s, %s)", (sequence, number))
        return sequence is not None

    def commit(self) -> None:
        """Make what was done last."""
        self._connection.execute("COMMIT")

    def begin(self) -> None:
        """Begin another transaction after a commit."""
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")

    def ease(self, tables: Iterable[Table]) -> None:
        """Let the server learn what is in tables that were filled, which it would do by itself."""
        for table in tables:
            self._connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table.name)))


def _names(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


@contextlib.contextmanager
def opened(url: str, *, make: bool) -> Iterator[PostgresSide]:
    """Connect, keep daemons from writing, and begin; what is not committed is rolled back.

    With ``make`` a schema that is missing or older is made first. Raises FleetError.
    """
    try:
        where = display_name(url)
    except StoreRefused as error:
        raise InvalidState(str(error), hint="Nothing was changed.") from error
    with (
        _errors_translated(where),
        contextlib.closing(connect(url, "migration")) as connection,
        connection.without_timeout(TIMEOUT_S),
    ):
        connection.execute(_PATIENT)
        if not make and not version_of(connection):
            hint = "Check the URL."
            raise InvalidState(f"{where} holds no store of fleetd.", hint=hint)
        migrate(connection, where)
        # Of the whole session, and before the transaction: what it sees is what others left.
        connection.execute(LOCK.replace("_xact_", "_").encode())
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            yield PostgresSide(connection, where)
        finally:
            if not connection.closed:
                connection.execute("ROLLBACK")


@contextlib.contextmanager
def _errors_translated(where: str) -> Iterator[None]:
    """Turn what the server refuses into what a person is told; no message holds a secret."""
    try:
        yield
    except StoreRefused as error:
        raise InvalidState(str(error), hint="Nothing was changed.") from error
    except ServerAway as away:
        raise Unavailable(
            f"{where} cannot be used ({away.step}): {away.message}.",
            hint=_LET_IN if "no password supplied" in away.message else "Nothing was changed.",
        ) from away
    except psycopg.Error as error:
        raise _refusal(where, error) from error


def _refusal(where: str, error: psycopg.Error) -> FleetError:
    text = server_message(error)
    if isinstance(error, errors.InsufficientPrivilege):
        return InvalidState(
            f"{where} denies this role the move: {text}.",
            hint="Only the role that owns its tables can move a store. Put that role in the URL.",
        )
    if isinstance(error, errors.DiskFull | errors.OutOfMemory):
        return Storage(f"{where} has no space: {text}.", hint="That database is unchanged.")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return InvalidState(
            f"{where} is read-only: {text}.", hint="If it is a standby, use the primary server."
        )
    if isinstance(error, errors.ProgramLimitExceeded):
        return LimitExceeded(
            f"{where} cannot hold a value of this store: {text}.",
            hint="There a path or an id in an index has at most 2,700 bytes. Nothing was moved.",
        )
    if isinstance(error, errors.LockNotAvailable):
        return Unavailable(
            f"{where} is in use by another daemon or another move.",
            hint="Stop every fleetd that uses it, then try again.",
        )
    return Unavailable(
        f"{where} failed: {text}.",
        hint="The unfinished move left no data. Start again when the server is back.",
    )
