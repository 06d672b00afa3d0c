"""Disk reserve: a file whose space is freed when the disk is full.

On a full disk nothing can be deleted from a database either, because a deletion is first written to
its WAL. So a file beside it reserves some space, and frees it in parts.
"""

import contextlib
import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("fleetd")
# The WAL usually has 4 MiB, and must be copied back before it is used again.
SIZE = 8 * 1024 * 1024
PART = 2 * 1024 * 1024


class DiskReserve:
    """A file of ``size`` bytes beside a database."""

    def __init__(self, database: Path, size: int = SIZE) -> None:
        self.path = Path(f"{database}.ballast")
        self.size = size

    @property
    def left(self) -> int:
        """Return the bytes that it reserves now."""
        with contextlib.suppress(OSError):
            info = self.path.lstat()
            return min(info.st_size, info.st_blocks * 512, self.size)
        return 0

    def close_to_others(self) -> None:
        """Make the file private again: a user who may truncate it could take its space."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, flags)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.fchmod(descriptor, 0o600)
            finally:
                os.close(descriptor)

    def make(self) -> bool:
        """Make it whole where there is room; return whether it is whole now.

        The same space again has to stay free: fleetd itself must not fill a disk.
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
        """Return whether there is room to make it whole, and the same again."""
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
        """Free a part, the last with the file itself; return False when nothing is left."""
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
