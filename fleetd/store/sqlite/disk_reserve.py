"""Disk reserve: a file whose room is given up when the disk is full.

In a full disk nothing can be deleted from a database either: what is deleted is first written to
its WAL. So a file beside it keeps some room, and gives it up in parts.
"""

import contextlib
import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("fleetd")
# The WAL, which must be copied back before it is used again, has 4 MiB as a rule.
SIZE = 8 * 1024 * 1024
PART = 2 * 1024 * 1024


class DiskReserve:
    """A file of ``size`` bytes beside a database."""

    def __init__(self, database: Path, size: int = SIZE) -> None:
        self.path = Path(f"{database}.ballast")
        self.size = size

    @property
    def left(self) -> int:
        """Return the bytes that it keeps now."""
        with contextlib.suppress(OSError):
            info = self.path.lstat()
            return min(info.st_size, info.st_blocks * 512, self.size)
        return 0

    def close_to_others(self) -> None:
        """Take permissions back that somebody gave away: who may cut it may take its room."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, flags)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.fchmod(descriptor, 0o600)
            finally:
                os.close(descriptor)

    def make(self) -> bool:
        """Make it whole where there is room; whether it is whole now.

        As much again has to stay free: fleetd itself must not be what fills a disk.
        """
        if self.left == self.size:
            return True
        if not self.fits():
            return False
        try:
            self._allocate()
        except OSError as error:
            log.warning("No space can be reserved in %s: %s", self.path, error.strerror)
            return False
        return self.left == self.size

    def fits(self) -> bool:
        """Whether there is room to make it whole, and as much again."""
        with contextlib.suppress(OSError):
            room = os.statvfs(self.path.parent)
            return room.f_bavail * room.f_frsize >= 2 * self.size
        return False

    def _allocate(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, self.size)
            else:
                os.pwrite(descriptor, os.urandom(self.size), 0)
            os.ftruncate(descriptor, self.size)
        finally:
            os.close(descriptor)

    def give(self) -> bool:
        """Give a part up, the last with the file itself; False when nothing is left to give."""
        left = self.left
        if not left:
            return False
        log.warning("The disk is full: freeing a part of %s (%d bytes left)", self.path, left)
        try:
            if left <= PART:
                self.path.unlink()
            else:
                os.truncate(self.path, left - PART)
        except OSError as error:
            log.warning("The reserved space could not be freed: %s", error.strerror)
            return False
        return True
