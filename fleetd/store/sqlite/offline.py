"""Offline database: one that no daemon uses, read without changing it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import apsw

from ...domain.core.tx import Tx
from ...protocol.errors import (
    Corrupt,
    FleetError,
    Incompatible,
    InvalidParams,
    InvalidState,
    Storage,
)
from ..api import CopyDamaged
from . import integrity_check, page_checksums
from .group_commit import SqliteExecutor
from .integrity_check import damage_of
from .migrate import APPLICATION_ID, migrations
from .online_backup import copy

WAIT_MS = 500
_IDS = {
    "missions": "SELECT id FROM missions",
    "checkpoints": "SELECT id FROM checkpoints",
    "snapshots": "SELECT id FROM snapshots",
}


class OfflineDatabase:
    """One database, opened for reading; ``tx`` runs queries on it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.tx = Tx(SqliteExecutor(connection))

    def has(self, table: str) -> bool:
        """Return whether a table exists; a database of an older schema may lack it."""
        return bool(self._connection.table_exists(None, table))

    def damage(self) -> list[str]:
        """Return what SQLite finds wrong with it; empty when nothing is."""
        return damage_of(self._connection)

    def copy_to(self, part: Path, beat: Callable[[], None] = lambda: None) -> None:
        """Fill an existing file with a checked copy that needs no WAL."""
        try:
            copy(self._connection, part, beat)
        except CopyDamaged as error:
            raise Corrupt(f"The new copy is damaged: {error}.", hint="Check the disk.") from error


@contextlib.contextmanager
def open_offline(path: Path) -> Iterator[OfflineDatabase]:
    """Open a database of fleetd's that no process uses, with its WAL when it has one.

    Raises InvalidParams for any but a database of fleetd's, Incompatible for a newer schema,
    Corrupt for damage, InvalidState when another process uses it, Storage when it cannot be read.
    """
    try:
        with contextlib.closing(_open(path)) as connection:
            _check_ours(connection, path)
            yield OfflineDatabase(connection)
    except apsw.Error as error:
        raise _as_fleet_error(path, error) from error


def _open(path: Path) -> apsw.Connection:
    if not any(Path(f"{path}{ending}").exists() for ending in ("-wal", "-journal")):
        # There is no WAL or journal: read the file alone, even in a read-only directory.
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return page_checksums.opened(f"file:{quote(str(path))}?immutable=1", flags=flags)
    connection = page_checksums.opened(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    # Exclusive, so that no other process writes meanwhile; and the WAL is left unchanged.
    connection.pragma("locking_mode", "exclusive")
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("query_only", True)
    return connection


def _check_ours(connection: apsw.Connection, path: Path) -> None:
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    if connection.pragma("application_id") != APPLICATION_ID:
        raise InvalidParams(
            f"{path} is a SQLite database, but not one of fleetd's.",
            hint="Name a file that fleetctl backup made.",
        )
    version, newest = connection.pragma("user_version"), migrations()[-1][0]
    if version > newest:
        raise Incompatible(
            f"{path} has schema version {version}, this fleetd knows up to {newest}.",
            hint="Install the version of fleetd that made it, or a newer one.",
        )
    if found := integrity_check.differences(connection, version):
        raise Corrupt(
            f"{path} does not have the schema of fleetd (schema version {version}):"
            f" {integrity_check.summary(found)}.",
            hint="Use another copy: another program changed or made this one.",
        )


def fold(path: Path) -> None:
    """Have SQLite copy the WAL into a database that no process uses: then it is one file.

    A damaged database stays unchanged. Raises InvalidState when another process uses it,
    Storage when the disk refuses.
    """
    if not path.exists():
        return
    connection = page_checksums.opened(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with contextlib.closing(connection):
            connection.pragma("locking_mode", "exclusive")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        if page_checksums.is_damage(error):
            return
        raise _as_fleet_error(path, error) from error


def _as_fleet_error(path: Path, error: apsw.Error) -> FleetError:
    """Return the error that a person gets for an error of SQLite's."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return InvalidState(
            f"The database {path} is in use by another process.",
            hint="Stop it (a fleetd with another socket, a sqlite3 shell), then try again.",
        )
    if isinstance(error, apsw.NotADBError):
        return Corrupt(f"{path} is not a SQLite database.", hint="Check the path.")
    if page_checksums.is_damage(error) or isinstance(error, apsw.SQLError):
        return Corrupt(f"The database {path} is damaged ({error}).", hint="Use another copy.")
    if isinstance(error, apsw.FullError):
        return Storage("The disk is full.", hint="Free some space, then try again.")
    return Storage(
        f"The database {path} cannot be read or copied: {error}.",
        hint="Check its permissions, the free space and the disk.",
    )


def ids_in(database: Path, table: Literal["missions", "checkpoints", "snapshots"]) -> list[str]:
    """Return the ids in a table of a database file.

    There are none without such a file, and in one whose content was moved to another store. Raises
    OSError for a file that cannot be read.
    """
    if not database.is_file():
        return []
    try:
        with contextlib.closing(
            page_checksums.opened(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        ) as connection:
            connection.set_busy_timeout(WAIT_MS)
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not {table, "store_meta"} <= tables:
                return []
            moved = "SELECT 1 FROM store_meta WHERE key = 'moved_to'"
            if next(connection.execute(moved), None) is not None:
                return []
            return [str(row[0]) for row in connection.execute(_IDS[table])]
    except apsw.Error as error:
        raise OSError(str(error)) from error
