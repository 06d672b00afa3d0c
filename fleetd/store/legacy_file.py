"""The file squawk.json beside a database: read once, then put away; must not know what it says."""

import errno
import itertools
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..host.atomic_files import sync

log = logging.getLogger("fleetd")
FILE_MAX = 64 * 1024 * 1024


class LegacyRefused(Exception):
    """The file cannot be used; the text says why and where, as an end of a sentence."""


class LegacyFile:
    """The file beside a database. Methods raise LegacyRefused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: os.stat_result | None = None

    def read(self) -> bytes | None:
        """Return what the file holds, None when there is none."""
        # Non-blocking: a FIFO in the file's place must not hang the start.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            link = error.errno == errno.ELOOP
            raise LegacyRefused("it is a symbolic link" if link else _reason(error)) from error
        try:
            return self._read_from(descriptor)
        except OSError as error:
            raise LegacyRefused(_reason(error)) from error
        finally:
            os.close(descriptor)

    def _read_from(self, descriptor: int) -> bytes:
        self._read = os.fstat(descriptor)
        if not stat.S_ISREG(self._read.st_mode):
            raise LegacyRefused("it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(FILE_MAX + 1)
        if len(data) > FILE_MAX:
            raise LegacyRefused(f"it is larger than {FILE_MAX} bytes")
        return data

    def put_away(self) -> Path:
        """Rename the file that was read, never over another, as private as the database.

        Returns its new name.
        """
        try:
            now = self.path.lstat()
            if self._read is None or _version(now) != _version(self._read):
                raise LegacyRefused("it has changed since: does its old program still run?")
            trouble = self._close_to_others()
            target = next(name for name in self._names() if not os.path.lexists(name))
            self.path.rename(target)
            sync(self.path.parent)
        except OSError as error:
            raise LegacyRefused(_reason(error)) from error
        if trouble:
            log.warning("%s stays open to others (%s): chmod 600 it.", target, trouble)
        return target

    def _close_to_others(self) -> str:
        """Make the file private before it has its new name, so that no crash leaves it open.

        Returns why that failed, if it did.
        """
        try:
            self.path.chmod(0o600)
        except OSError as error:
            return _reason(error)
        return ""

    def _names(self) -> Iterator[Path]:
        first = self.path.with_name(f"{self.path.name}.backup")
        yield first
        for number in itertools.count(1):
            yield first.with_name(f"{first.name}.{number}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _version(info: os.stat_result) -> tuple[int, ...]:
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
