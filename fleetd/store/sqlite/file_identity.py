"""File identity: whether the database's files still are the ones that were opened.

SQLite goes on writing into files that were removed or replaced under it, and whatever it
acknowledges from then on is gone when they are closed.
"""

import os
import secrets
from pathlib import Path

import apsw

_ENDINGS = ("", "-wal", "-shm")


class Displaced(Exception):
    """A file of the database was removed or replaced while it was in use; the text says which."""


class FileIdentity:
    """Remembers which files stood in their places when the database was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places = {ending: f"{path}{ending}" for ending in _ENDINGS}
        self._seen: dict[str, tuple[int, int]] = {}
        self.displaced()

    def displaced(self) -> list[str]:
        """Return the endings of the files that are not the ones seen first; "" is the database."""
        gone = []
        for ending, place in self._places.items():
            now = _identity(place)
            if now is not None:
                self._seen.setdefault(ending, now)
            if now != self._seen.get(ending):
                gone.append(ending)
        return gone

    def trouble(self) -> str:
        """Say which file was removed or replaced; empty when none was."""
        gone = self.displaced()
        path = f"{self._path}{gone[0]}" if gone else ""
        return f"{path} was removed or replaced while it was in use" if gone else ""

    def save(self, connection: apsw.Connection) -> str:
        """Put what the open files hold where it can be found; return what to do with it.

        Where the database itself still stands, everything is copied into it; else into a new file
        beside its place.
        """
        try:
            if "" not in self.displaced():
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                return "nothing that was acknowledged is lost; start fleetd again"
            return self._save_beside(connection)
        except (apsw.Error, OSError) as error:
            return f"what it held could not be saved ({error}); checkpoints come back from files"

    def _save_beside(self, connection: apsw.Connection) -> str:
        copy = f"{self._path}.rescued-{secrets.token_hex(4)}"
        descriptor = os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            connection.execute("VACUUM INTO ?", (copy,))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return f"what it held stands in {copy}; put it back with: fleetctl restore {copy}"


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - before every commit: a Path takes longer to make
    except OSError:
        return None
    return found.st_dev, found.st_ino
