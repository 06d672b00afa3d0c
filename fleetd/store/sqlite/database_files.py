"""The files of a SQLite database: whether they still are the ones that were opened, and whole.

SQLite keeps writing to files that were removed or replaced under it. Everything that it
acknowledges from then on is lost when they are closed.

The high-water mark is a file that records how far the log had come, to detect lost commits. A WAL
that was cut, or has a flipped bit, ends there for SQLite. SQLite silently drops the rest, because a
WAL also ends like this after a crash. The mark is written after each commit and never synced: after
a power cut it is behind the database, never ahead of it.
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

_ENDINGS = ("", "-wal", "-shm")


class FileReplaced(Exception):
    """A file of the database was removed or replaced while it was in use; the text says which."""


class FileIdentity:
    """Remembers which files were in place when the database was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places = {ending: f"{path}{ending}" for ending in _ENDINGS}
        self._files = tuple(self._places.values())
        self._seen: dict[str, tuple[int, int]] = {}
        self.replaced()

    @property
    def intact(self) -> bool:
        """Whether all of them are in place; checked before every commit."""
        try:
            now = [(found.st_dev, found.st_ino) for found in map(os.stat, self._files)]
        except OSError:
            return False
        return now == [self._seen.get(ending) for ending in _ENDINGS]

    def replaced(self) -> list[str]:
        """Return the endings of the files that are not the ones seen first; "" is the database."""
        gone = []
        for ending, place in self._places.items():
            now = _identity(place)
            if now is not None:
                self._seen.setdefault(ending, now)
            if now != self._seen.get(ending):
                gone.append(ending)
        return gone

    def problem(self) -> str:
        """Return which file was removed or replaced; empty when none was."""
        gone = self.replaced()
        path = f"{self._path}{gone[0]}" if gone else ""
        return f"{path} was removed or replaced while it was in use" if gone else ""

    def save(self, connection: apsw.Connection) -> str:
        """Save the content of the open files where it can be found; return what to do with it.

        If the database itself is still in place, everything is copied into it; otherwise into a new
        file beside it.
        """
        try:
            if "" not in self.replaced():
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                return "nothing that was acknowledged is lost; start fleetd again"
            return self._save_beside(connection)
        except (apsw.Error, OSError) as error:
            return f"its content could not be saved ({error}); checkpoints are restored from files"

    def _save_beside(self, connection: apsw.Connection) -> str:
        copy = f"{self._path}.rescued-{secrets.token_hex(4)}"
        descriptor = os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            connection.execute("VACUUM INTO ?", (copy,))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return f"its former content is in {copy}; restore it with: fleetctl restore {copy}"


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path takes longer to make
    except OSError:
        return None
    return found.st_dev, found.st_ino


ENDING = "-mark"
_MARK = struct.Struct(">QI")
_END = "SELECT max(seq) FROM events"


class HighWaterMark:
    """Writes the mark of a database, and detects commits that are missing."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._descriptor: int | None = None
        self._reached = reached(database)
        self.lost: LostCommits | None = None

    def look(self, connection: apsw.Connection) -> None:
        """Compare the mark with a database as it was left; keep its WAL if commits are missing."""
        end = end_of(connection)
        if end >= self._reached:
            return
        kept = _keep_wal(self._database)
        where = f"; the rest of its WAL is kept as {kept}" if kept else ""
        why = (
            f"{self._database} is damaged or was replaced: its log ends at {end}, but had reached"
            f" {self._reached}{where}"
        )
        self.lost = LostCommits(end, self._reached, why)

    def end_at_commit(self, connection: apsw.Connection) -> int:
        """Return how far the log will have come; called in a transaction, before its COMMIT.

        After the COMMIT, SQLite would have to take and release its locks once more.
        """
        with contextlib.suppress(apsw.Error):  # COMMIT fails with it too
            return int(connection.execute(_END).get or 0)
        return 0

    def note(self, end: int) -> None:
        """Write down how far the log has come; called after each commit.

        An error of the disk is not reported here, because the next commit meets it too.
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
        """Close the file, which stays on the disk."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def reached(database: Path) -> int:
    """Return how far a log had come by the mark beside its database; 0 when it is unknown."""
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
    """Copy the rest of a WAL to a name that is never overwritten; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        data = Path(f"{database}-wal").read_bytes()
        if not data:  # SQLite has just created it
            return None
        kept = Path(f"{database}-wal.damaged-{secrets.token_hex(4)}")
        write_new(kept, data)
        sync(kept.parent)
        return kept
    return None


def _sum(end: int) -> int:
    return zlib.crc32(end.to_bytes(8, "big"))
