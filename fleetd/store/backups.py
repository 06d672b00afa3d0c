"""Checkpoint files: written whole or not at all, found again, removed; must not read a clock.

Layout: ``<root>/<mission_id>/<checkpoint_id>.json`` and ``latest.json``, a relative symlink to the
newest. Everything is opened relative to a directory descriptor and without following symlinks.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..wire.errors import Corrupt
from ..wire.types import RECORD_ID

LATEST = "latest.json"
FILE_MAX = 64 * 1024 * 1024
_ID = re.compile(RECORD_ID)
_TEMP = ".tmp-"


class BackupFile(msgspec.Struct, frozen=True):
    """A file that looks like a checkpoint's."""

    mission_id: str
    checkpoint_id: str


class Backups:
    """The directory of checkpoint files. Methods raise OSError when the disk refuses."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, mission_id: str, checkpoint_id: str) -> Path:
        """Return where a checkpoint's file lies; raises ValueError for ids that are paths."""
        return self.root / _checked(mission_id) / f"{_checked(checkpoint_id)}.json"

    def write(
        self, mission_id: str, checkpoint_id: str, data: bytes, latest_id: str | None
    ) -> None:
        """Write a checkpoint's file and point ``latest.json`` at the newest checkpoint.

        Temp file, fsync, rename, fsync of the directory: after a crash the file is whole or it is
        not there.
        """
        with self._mission_dir(mission_id, make=True) as directory:
            _write_file(directory, f"{_checked(checkpoint_id)}.json", data)
            _point_latest(directory, latest_id)

    def read(self, mission_id: str, checkpoint_id: str) -> bytes | None:
        """Return the bytes of a checkpoint's file, None when there is none.

        Raises Corrupt when something else than a regular file of sane size stands in its place.
        """
        name = f"{_checked(checkpoint_id)}.json"
        try:
            with self._mission_dir(mission_id) as directory:
                return _read_file(directory, name, self.path_of(mission_id, checkpoint_id))
        except FileNotFoundError:
            return None

    def find(self, checkpoint_id: str) -> BackupFile | None:
        """Return the file of a checkpoint whose mission is not known."""
        for file in self.files():
            if file.checkpoint_id == checkpoint_id:
                return file
        return None

    def files(self) -> Iterator[BackupFile]:
        """Yield everything that is named like a checkpoint's file, ordered by name."""
        for mission in sorted(_names(self.root)):
            if not _ID.match(mission):
                continue
            for name in sorted(self._names_in(mission)):
                checkpoint_id, dot, ending = name.rpartition(".")
                if dot and ending == "json" and _ID.match(checkpoint_id):
                    yield BackupFile(mission, checkpoint_id)

    def _names_in(self, mission_id: str) -> list[str]:
        """Return what lies in a mission's directory, nothing when it is no directory of ours."""
        try:
            with self._mission_dir(mission_id) as directory:
                return os.listdir(directory)  # noqa: PTH208 - it takes the descriptor
        except OSError:
            return []

    def remove(self, mission_id: str, checkpoint_id: str, latest_id: str | None) -> None:
        """Remove a checkpoint's file and point ``latest.json`` at what is newest now."""
        try:
            with self._mission_dir(mission_id) as directory:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{_checked(checkpoint_id)}.json", dir_fd=directory)
                _point_latest(directory, latest_id)
                os.fsync(directory)
        except FileNotFoundError:
            return
        if latest_id is None:
            self._remove_empty(mission_id)

    def _remove_empty(self, mission_id: str) -> None:
        with contextlib.suppress(OSError):
            (self.root / _checked(mission_id)).rmdir()

    def sweep(self) -> int:
        """Remove the temp files that a crash left, and nothing else; returns how many."""
        removed = 0
        for mission in filter(_ID.match, _names(self.root)):
            with contextlib.suppress(OSError), self._mission_dir(mission) as directory:
                names = os.listdir(directory)  # noqa: PTH208 - it takes the descriptor
                removed += sum(_remove_temp(directory, name) for name in names)
        return removed

    @contextlib.contextmanager
    def _mission_dir(self, mission_id: str, *, make: bool = False) -> Iterator[int]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if make:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = os.open(self.root, flags)
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(_checked(mission_id), 0o700, dir_fd=root)
                    os.fsync(root)
            directory = os.open(_checked(mission_id), flags | os.O_NOFOLLOW, dir_fd=root)
        finally:
            os.close(root)
        try:
            yield directory
        finally:
            os.close(directory)


def _checked(record_id: str) -> str:
    """Return an id that may become a file name; raises ValueError for any other text."""
    if not _ID.fullmatch(record_id):
        raise ValueError(f"not an id: {record_id!r}")
    return record_id


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are wanted, not paths
    except OSError:  # missing, or no directory of ours: there is nothing to find in it
        return []


def _remove_temp(directory: int, name: str) -> bool:
    if not name.startswith(_TEMP):
        return False
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:  # a directory, which is none of ours, or gone
        return False
    return True


def _write_file(directory: int, name: str, data: bytes) -> None:
    temp = _TEMP + secrets.token_hex(8)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temp, flags, 0o600, dir_fd=directory)
    try:
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp, dir_fd=directory)
        raise
    os.fsync(directory)


def _point_latest(directory: int, latest_id: str | None) -> None:
    """Make ``latest.json`` name the newest checkpoint, in one step, or remove it."""
    if latest_id is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(LATEST, dir_fd=directory)
        return
    target = f"{_checked(latest_id)}.json"
    with contextlib.suppress(OSError):
        if os.readlink(LATEST, dir_fd=directory) == target:
            return
    temp = _TEMP + secrets.token_hex(8)
    os.symlink(target, temp, dir_fd=directory)
    try:
        os.rename(temp, LATEST, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp, dir_fd=directory)
        raise
    os.fsync(directory)


def _read_file(directory: int, name: str, where: Path) -> bytes:
    # Non-blocking: a FIFO in the file's place must not hang whoever reads.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _not_a_file(where, str(error)) from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > FILE_MAX:
            raise _not_a_file(where, "not a regular file of a checkpoint's size")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _not_a_file(where: Path, why: str) -> Corrupt:
    return Corrupt(
        f"Corrupted checkpoint file: {where} ({why}).",
        hint="Move it away; fleetctl checkpoints verify --repair writes it again.",
        path=str(where),
    )
