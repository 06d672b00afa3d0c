"""Atomic files in one open directory: written whole, linked, removed, moved aside.

No symlink is followed, and nothing that may be a person's is removed: an entry of another kind than
expected is moved aside.
"""

import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

FILE_MAX = 64 * 1024 * 1024
TEMP = ".tmp-"
ASIDE = ".aside-"
Kind = Callable[[int], bool]
log = logging.getLogger("fleetd")


class NotAFile(Exception):
    """Something else is in the place of a file; the text says what."""


class Directory(msgspec.Struct, frozen=True):
    """An open directory: its descriptor, and its path for messages."""

    descriptor: int
    path: Path


def write_file(directory: Directory, name: str, data: bytes) -> None:
    """Write a file whole or not at all; after a crash it is there or it is not.

    Raises OSError; then no temp file is left.
    """
    temp = TEMP + secrets.token_hex(8)
    try:
        write_new(temp, data, directory.descriptor)
        make_way(directory, name, stat.S_ISREG)
        _rename(directory, temp, name)
    except BaseException:
        remove_temp(directory, temp)
        raise
    os.fsync(directory.descriptor)


def write_new(name: str | Path, data: bytes, directory: int | None = None) -> None:
    """Write a file that does not exist yet and bring its bytes, not its name, to the disk.

    Raises FileExistsError, and OSError; then a part of it may be left.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def point(directory: Directory, name: str, target: str | None) -> None:
    """Point a symlink at ``target`` in one step, or remove it; raises OSError."""
    if target is None:
        if _kind(directory, name, stat.S_ISLNK):
            os.unlink(name, dir_fd=directory.descriptor)
        return
    with contextlib.suppress(OSError):
        if os.readlink(name, dir_fd=directory.descriptor) == target:
            return
    temp = TEMP + secrets.token_hex(8)
    os.symlink(target, temp, dir_fd=directory.descriptor)
    try:
        make_way(directory, name, stat.S_ISLNK)
        _rename(directory, temp, name)
    except BaseException:
        remove_temp(directory, temp)
        raise
    os.fsync(directory.descriptor)


def remove_file(directory: Directory, name: str) -> None:
    """Remove a regular file; anything else in its place is moved aside. Raises OSError."""
    make_way(directory, name, stat.S_ISREG)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory.descriptor)


def make_way(directory: Directory, name: str, kind: Kind) -> None:
    """Move an entry out of a file's place, unless it is of the right kind.

    A directory there would make every write fail forever, and may hold somebody's data. The new
    name is never mistaken for one of fleetd's. Raises OSError.
    """
    if _kind(directory, name, kind) is not False:
        return
    aside = f"{name}{ASIDE}{secrets.token_hex(4)}"
    _rename(directory, name, aside)
    log.warning(
        "%s was in the place of a file of fleetd and was moved to %s",
        directory.path / name,
        aside,
    )


def remove_temp(directory: Directory, name: str) -> bool:
    """Remove a temp file; returns whether there was one that could be removed."""
    if not name.startswith(TEMP):
        return False
    try:
        os.unlink(name, dir_fd=directory.descriptor)
    except OSError:  # a directory, which is not fleetd's, or gone
        return False
    return True


def read_file(directory: Directory, name: str) -> bytes:
    """Return a file's bytes; raises OSError, and NotAFile unless it is a file of sane size."""
    # Non-blocking: a FIFO in the file's place must not hang the reader.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory.descriptor)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise NotAFile(str(error)) from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > FILE_MAX:
            raise NotAFile("not a regular file of an acceptable size")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> None:
    """Make a private directory and its missing parents, so that they survive a power cut.

    A file is lost with the directory that holds it: syncing it does not sync the names above it.
    """
    missing = [each for each in (path, *path.parents) if not each.is_dir()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        sync(each.parent)


def sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kind(directory: Directory, name: str, kind: Kind) -> bool | None:
    """Return whether a name is of a kind; None when nothing has it."""
    try:
        info = os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return bool(kind(info.st_mode))


def _rename(directory: Directory, old: str, new: str) -> None:
    os.rename(old, new, src_dir_fd=directory.descriptor, dst_dir_fd=directory.descriptor)
