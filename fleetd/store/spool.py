"""Spool: the files that the hook client left while no daemon ran.

They are taken in the order of their names, which begin with the time of the hook.
"""

import contextlib
import os
import re
import stat
import time
from pathlib import Path
from typing import NamedTuple

# Endings of files that the client still writes, and of those that turned out not to be fleetd's.
PART, UNREADABLE = ".part", ".unreadable"
# Longer than a client lives.
PART_S = 60
# A client reads 32 MiB at most, an older one 64; this leaves room for what escaping adds.
MOST_BYTES = 100 * 1024 * 1024

_NAME = re.compile(r"(\d{13})-([0-9a-f]{32})\.json")


class NoFrame(Exception):
    """A file was not written by the hook client; the text says why."""


class SpooledHook(NamedTuple):
    """A waiting file: when its hook ran, in ms since the Unix epoch, and its delivery."""

    name: str
    happened_ms: int
    delivery_id: str


class SpoolSize(NamedTuple):
    """Files and bytes in the spool, and since when the oldest waits (ms or None)."""

    files: int
    size_bytes: int
    unreadable: int
    oldest_ms: int | None


class Spool:
    """A directory of lines that wait to be taken in; None is a spool that is always empty."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory

    def any(self) -> bool:
        """Return whether a file waits: one look at the names, cheap enough for every hook."""
        return any(name.endswith(".json") for name in self._names())

    def waiting(self) -> list[SpooledHook]:
        """Return the waiting files, oldest first; put those with a similar name aside."""
        found = []
        for name in sorted(self._names()):
            if match := _NAME.fullmatch(name):
                found.append(SpooledHook(name, int(match[1]), match[2]))
            elif name.endswith(".json"):
                self.put_aside(name)
        return found

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None when it has gone meanwhile; raises NoFrame."""
        try:
            # O_NONBLOCK: opening a pipe would wait for a process that writes into it.
            handle = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NoFrame(error.strerror) from error
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
                raise NoFrame("it is not a regular file of this user")
            if info.st_size > MOST_BYTES:
                raise NoFrame(f"it has {info.st_size} bytes, {MOST_BYTES} are allowed")
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(MOST_BYTES)
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        """Remove a file that was taken in; raises OSError."""
        self._path(name).unlink(missing_ok=True)

    def put_aside(self, name: str) -> None:
        """Rename a file so that it no longer waits but can be examined; raises OSError."""
        path = self._path(name)
        path.rename(path.with_suffix(UNREADABLE))

    def clear(self) -> None:
        """Remove files that were put aside, and files of clients that died while writing."""
        for name in self._names():
            if name.endswith((PART, UNREADABLE)) and not self._path(name).is_dir():
                self.remove(name)

    def sweep(self) -> None:
        """Remove files of clients that died while writing."""
        for name in self._names():
            if name.endswith(PART) and time.time() - self._path(name).lstat().st_mtime > PART_S:
                self.remove(name)

    def size(self) -> SpoolSize:
        """Return how much is in the spool."""
        sizes: dict[str, int] = {}
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):
                sizes[name] = self._path(name).lstat().st_size
        times = [int(match[1]) for name in sizes if (match := _NAME.fullmatch(name))]
        unreadable = sum(name.endswith(UNREADABLE) for name in sizes)
        return SpoolSize(len(times), sum(sizes.values()), unreadable, min(times, default=None))

    def _names(self) -> list[str]:
        with contextlib.suppress(OSError):
            if self.directory is not None:
                return os.listdir(self.directory)  # noqa: PTH208 - names only, for every hook
        return []

    def _path(self, name: str) -> Path:
        return Path(self.directory or "", name)
