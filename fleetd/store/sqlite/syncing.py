"""Bringing to the disk what a sync that failed may have lost; must not know any table."""

from pathlib import Path

import apsw

from ...host.atomic_files import sync

# SQLite never writes more at a time, and its own file system cannot.
_PIECE = 65_536
_SYNC_FULL = 3


def write_wal_anew(connection: apsw.Connection, path: Path, vfs: str | None) -> None:
    """Write what an unclean end left in the WAL over itself, and sync it.

    When a sync fails, the kernel keeps what was to be synced for everybody to read, and takes it
    for written: a WAL that is read back whole may have holes on the disk, and everything that is
    appended to it goes with the first of them at the next power cut. Only what is written anew is
    synced anew. (The pages of the database need no such care: a checkpoint of the WAL whose sync
    failed does not count, and copies them all again.)

    Raises apsw.Error and OSError when the disk refuses: nothing may be built on that WAL then.
    """
    wal = Path(f"{path}-wal")
    if not wal.exists() or not wal.stat().st_size:
        return
    connection.execute("BEGIN IMMEDIATE")  # so that nobody appends to it meanwhile
    try:
        flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
        file = apsw.VFSFile(vfs or "", str(wal), flags)
        try:
            _write_anew(file)
        finally:
            file.xClose()
        sync(wal.parent)
    finally:
        connection.execute("ROLLBACK")


def _write_anew(file: apsw.VFSFile) -> None:
    size = file.xFileSize()
    for offset in range(0, size, _PIECE):
        file.xWrite(file.xRead(min(_PIECE, size - offset), offset), offset)
    file.xSync(_SYNC_FULL)
