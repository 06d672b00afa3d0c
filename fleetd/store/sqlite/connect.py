"""Opening of the SQLite database: refusals, permissions, settings and the WAL.

A database is checked before anything in it is changed.
"""

import contextlib
import errno
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from ...host.atomic_files import make_directories, sync
from ..api import StoreFull, StoreRefused, StoreUnready
from . import integrity_check, page_checksums
from .database_files import ENDING as MARK
from .errors import FULL, classify
from .migrate import check_ours, migrate

# Older ones can lose commits when a WAL is reset at the wrong moment (fixed in 3.51.3).
SQLITE_NEEDED = (3, 51, 3)
BUSY_MS = 5_000
# Compiled statements kept. One recovery needs 80; with 100 kept it compiled half of them again.
STATEMENTS = 500
# SQLite itself would retry after 1, 2, 5, 10 ms, but a holder of the database takes only 3 ms.
BUSY_LOOK_MS = 0.5
# Errors that may be gone the next time: a failing disk, too many resources in use.
_PASSING = (errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
# SQLite never writes more at a time, and its own VFS cannot.
_PIECE = 65_536
_SYNC_FULL = 3


def check_sqlite(version: str) -> None:
    """Raise StoreRefused for a SQLite library that is too old to trust."""
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_NEEDED:
        needed = ".".join(map(str, SQLITE_NEEDED))
        raise StoreRefused(
            f"SQLite {version} is too old: fleetd needs {needed} or newer, because older ones can "
            "lose commits in WAL mode. Upgrade the package apsw: pip install --upgrade apsw"
        )


def connect(path: str, *, query_only: bool = False, vfs: str | None = None) -> apsw.Connection:
    """Open a connection with the settings that fleetd's guarantees depend on."""
    connection = page_checksums.opened(path, vfs=vfs, statementcachesize=STATEMENTS)
    try:
        _settle(connection)
        if query_only:
            connection.pragma("query_only", True)
    except BaseException:
        connection.close()
        raise
    return connection


def wait_while_busy(
    connection: apsw.Connection, most_ms: float, may_wait: Callable[[], bool] = lambda: True
) -> None:
    """Let a connection wait at most ``most_ms`` for others, and resume soon after they finish."""

    def wait(looks: int) -> bool:
        if not may_wait():
            return False
        time.sleep(BUSY_LOOK_MS / 1_000)
        return looks * BUSY_LOOK_MS < most_ms

    connection.set_busy_handler(wait)


def _settle(connection: apsw.Connection) -> None:
    wait_while_busy(connection, BUSY_MS)
    connection.pragma("trusted_schema", False)
    connection.pragma("cell_size_check", True)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", True)
    # Without this, SQLite prepares many statements again for other values, such as those that a
    # partial index could serve. There are no statistics that would make another plan better.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # A statement has little to undo, and a temporary file for it may be refused.
    connection.pragma("temp_store", "memory")
    connection.wal_autocheckpoint(0)


def open_database(
    path: Path, vfs: str | None, look: Callable[[apsw.Connection], None] = lambda _: None
) -> apsw.Connection:
    """Open or create the database, or refuse with a sentence for a person.

    ``look`` sees the database as it was left, before anything in it is changed.
    """
    try:
        make_directories(path.parent)
        # Create the file before SQLite does: SQLite would let others read it for a moment. The WAL
        # gets the permissions of the database.
        with contextlib.suppress(FileExistsError):
            path.touch(0o600, exist_ok=False)
        # Check before SQLite opens the file: closing a descriptor later would drop its locks.
        _check_checksums(path)
        connection = page_checksums.opened(str(path), vfs=vfs, statementcachesize=STATEMENTS)
    except (apsw.Error, OSError) as error:
        raise _cannot_open(path, error) from error
    try:
        _prepare(connection, path, vfs, look)
    except BaseException:
        # The close copies the WAL back; an error of the same disk must not hide the refusal.
        with contextlib.suppress(apsw.Error):
            connection.close()
        raise
    return connection


def _prepare(
    connection: apsw.Connection,
    path: Path,
    vfs: str | None,
    look: Callable[[apsw.Connection], None],
) -> None:
    """Check a database before anything in it is changed, then bring it up to date."""
    try:
        wait_while_busy(connection, BUSY_MS)
        _check_schema(connection, path, check_ours(connection, str(path)))
        page_checksums.reserve(connection)
        for ending in ("", "-wal", "-shm", MARK):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{ending}").chmod(0o600)
        _settle(connection)
        look(connection)
        rewrite_wal(connection, path, vfs)
    except apsw.NotADBError as error:
        raise StoreRefused(
            f"{path} is not a SQLite database. Move it away, or set FLEET_DB_PATH to another path; "
            "fleetd restores checkpoints from their files."
        ) from error
    except apsw.BusyError as error:
        raise _in_use(path) from error
    except (apsw.Error, OSError) as error:
        if page_checksums.is_damage(error):
            raise _damaged(path) from error
        raise _cannot_open(path, classify(error, connection.system_errno)) from error
    try:
        migrate(connection, str(path))
        _add_checksums(connection)
    except apsw.BusyError as error:
        raise _in_use(path) from error
    except apsw.Error as error:
        if page_checksums.is_damage(error):
            raise _damaged(path) from error
        raise _refusal(classify(error, connection.system_errno))(
            f"The schema of {path} cannot be brought up to date: {error}. Check the "
            "disk and its free space, then start fleetd again."
        ) from error


def _check_schema(connection: apsw.Connection, path: Path, version: int) -> None:
    """Refuse a schema other than fleetd's: an added trigger would run with every write."""
    found = integrity_check.differences(connection, version)
    if found:
        raise StoreRefused(
            f"{path} does not have the schema of fleetd (schema version {version}):"
            f" {integrity_check.summary(found)}."
            " Replace it with a copy: fleetctl restore FILE. Or move it,"
            f" {path.name}-wal and {path.name}-shm away and start without it: fleetd restores"
            " missions from their checkpoint files."
        )


def _add_checksums(connection: apsw.Connection) -> None:
    """Rewrite a database that has no checksums yet; if this start cannot, a later one does.

    Rewritten pages must reach the database file once they are committed. Otherwise this connection
    would write others without their checksums. Raises apsw.Error when that fails.
    """
    if not page_checksums.available() or page_checksums.checked(connection):
        return
    try:
        page_checksums.add(connection)
    except apsw.Error as error:
        classified = classify(error, connection.system_errno)
        if not isinstance(classified, apsw.FullError | apsw.BusyError | apsw.CorruptError):
            raise
    else:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _check_checksums(path: Path) -> None:
    """Refuse a database whose checksums cannot be trusted or cannot be kept."""
    if page_checksums.unmarked(path):
        raise _damaged(path)
    if not page_checksums.available() and page_checksums.has_room(path):
        raise StoreRefused(
            f"The pages of {path} have checksums, and this build of apsw lacks the extension "
            f"{page_checksums.EXTENSION} that keeps them. Install the one from PyPI: "
            "pip install --force-reinstall apsw"
        )


def _damaged(path: Path) -> StoreRefused:
    return StoreRefused(
        f"The database {path} is damaged. Replace it with a copy: fleetctl restore FILE. Or move "
        f"it, {path.name}-wal and {path.name}-shm away and start without it: fleetd restores "
        "missions from their checkpoint files."
    )


def _in_use(path: Path) -> StoreUnready:
    return StoreUnready(
        f"Another program holds a lock on the database {path}. Stop it (a sqlite3 shell, a copy in "
        "progress), then start fleetd again."
    )


def _cannot_open(path: Path, error: BaseException) -> StoreRefused:
    return _refusal(error)(
        f"The database {path} cannot be opened: {error}. Check that its directory exists and "
        "is writable, or set FLEET_DB_PATH to another path."
    )


def _refusal(error: BaseException) -> type[StoreRefused]:
    """Return how to refuse: a full or failing disk may work the next time."""
    reason = error.errno if isinstance(error, OSError) else None
    if isinstance(error, apsw.FullError) or reason in FULL:
        return StoreFull
    passing = isinstance(error, apsw.IOError) or reason in _PASSING
    return StoreUnready if passing else StoreRefused


def rewrite_wal(connection: apsw.Connection, path: Path, vfs: str | None) -> None:
    """Write the WAL that an unclean end left over itself, and sync it.

    When a sync fails, the kernel keeps the unsynced data readable and treats it as written. A WAL
    that reads back whole may then have holes on the disk. At the next power cut, everything that
    was appended to it is lost with the first hole. Only data that is written again is synced again.
    (The pages of the database need no such care: a checkpoint of the WAL whose sync failed does not
    count, and copies them all again.)

    Raises apsw.Error and OSError when the disk refuses: then nothing may rely on that WAL.
    """
    wal = Path(f"{path}-wal")
    if not wal.exists() or not wal.stat().st_size:
        return
    connection.execute("BEGIN IMMEDIATE")  # so that no other program appends to it meanwhile
    try:
        flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
        file = apsw.VFSFile(vfs or "", str(wal), flags)
        try:
            _rewrite(file)
        finally:
            file.xClose()
        sync(wal.parent)
    finally:
        connection.execute("ROLLBACK")


def _rewrite(file: apsw.VFSFile) -> None:
    size = file.xFileSize()
    for offset in range(0, size, _PIECE):
        file.xWrite(file.xRead(min(_PIECE, size - offset), offset), offset)
    file.xSync(_SYNC_FULL)
