"""High-water mark: a file that says how far the log had come, to notice lost commits.

A WAL that was cut, or has a flipped bit, ends there for SQLite, which drops what follows without a
word: so ends a WAL after a crash, too. The mark is written after each commit and never synced: it
lies behind the database after a power cut, and never before it.
"""

import contextlib
import os
import secrets
import struct
import zlib
from pathlib import Path

import apsw

from ...host.atomic_files import sync, write_new
from ..api import LostCommits

ENDING = "-mark"
_MARK = struct.Struct(">QI")
_END = "SELECT max(seq) FROM events"


class HighWaterMark:
    """Writes the mark of a database, and misses what is not there any more."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._descriptor: int | None = None
        self._reached = reached(database)
        self.lost: LostCommits | None = None

    def look(self, connection: apsw.Connection) -> None:
        """Compare the mark with a database as it was left; what remains of its WAL is kept."""
        end = end_of(connection)
        if end >= self._reached:
            return
        kept = _keep_wal(self._database)
        where = f"; what is left of its WAL is kept as {kept}" if kept else ""
        why = (
            f"{self._database} is damaged or was replaced: its log ends at {end}, and it had come"
            f" to {self._reached}{where}"
        )
        self.lost = LostCommits(end, self._reached, why)

    def end_at_commit(self, connection: apsw.Connection) -> int:
        """Return how far the log will have come; asked within a transaction, before its COMMIT.

        After it, SQLite would have to take and leave its locks once more to tell.
        """
        with contextlib.suppress(apsw.Error):  # COMMIT meets it too
            return int(connection.execute(_END).get or 0)
        return 0

    def note(self, end: int) -> None:
        """Write down how far the log has come; called after each commit.

        A disk that refuses is not this file's to report: the next commit meets it too.
        """
        if end > self._reached:
            with contextlib.suppress(OSError):
                self._write(end)

    def _write(self, end: int) -> None:
        if self._descriptor is None:
            flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(f"{self._database}{ENDING}", flags, 0o600)
        os.pwrite(self._descriptor, _MARK.pack(end, _sum(end)), 0)
        self._reached = end

    def close(self) -> None:
        """Let go of the file; it stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def reached(database: Path) -> int:
    """Return how far a log had come by the mark beside its database; 0 when nobody knows."""
    with contextlib.suppress(OSError, struct.error):
        end, total = _MARK.unpack(Path(f"{database}{ENDING}").read_bytes())
        if total == _sum(end):
            return int(end)
    return 0


def end_of(connection: apsw.Connection) -> int:
    """Return the last position of the log; 0 when there is none."""
    if not connection.table_exists(None, "events"):
        return 0
    return int(connection.execute(_END).get or 0)


def _keep_wal(database: Path) -> Path | None:
    """Copy what is left of a WAL to where nobody overwrites it, None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        data = Path(f"{database}-wal").read_bytes()
        if not data:  # SQLite has just made it
            return None
        kept = Path(f"{database}-wal.damaged-{secrets.token_hex(4)}")
        write_new(kept, data)
        sync(kept.parent)
        return kept
    return None


def _sum(end: int) -> int:
    return zlib.crc32(end.to_bytes(8, "big"))
