"""Disk audit: permissions of fleetd's files, leftovers of a crash, free space.

The database's files are only ever examined by name: closing a descriptor of one would drop
SQLite's locks on it.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..host.atomic_files import TEMP
from ..host.paths import locks_of
from .files.layout import LAYOUTS
from .sqlite.database_files import ENDING as MARK
from .sqlite.disk_reserve import DiskReserve
from .sqlite.online_backup import PART

REPLACED = "replaced-"
# Younger files may be in use right now.
LEFT_S = 600
DATABASE_ENDINGS = ("", "-wal", "-shm", "-journal")


class AuditedPath(NamedTuple):
    """A file or directory and the permissions that it should have."""

    path: Path
    wanted: int


def places(
    database: Path, checkpoints: Path, socket: Path, spool: Path | None
) -> Iterator[AuditedPath]:
    """Yield every existing path of fleetd's; symlinks below the roots are skipped."""
    for ending in (*DATABASE_ENDINGS, MARK):
        yield from _existing(Path(f"{database}{ending}"), 0o600)
    reserve = DiskReserve(database).path
    for path in (reserve, socket, *locks_of(database, checkpoints, socket).values()):
        yield from _existing(path, 0o600)
    for directory in dict.fromkeys((database.parent, socket.parent)):
        # A home directory is not ours to close; it is enough that nobody else can write there.
        shared = Path.home().is_relative_to(directory)
        yield from _existing(directory, 0o755 if shared else 0o700)
    for tree in (checkpoints, *replaced(database.parent), *replaced(checkpoints.resolve().parent)):
        yield from _below(tree)
    # A user who may write above could replace the whole tree; reading is another matter.
    yield from _existing(checkpoints.parent, 0o755)
    if spool is not None:
        yield from _existing(spool.parent, 0o700)
        yield from _below(spool)


def replaced(directory: Path) -> list[Path]:
    """Return the directories in which a restore put the replaced files."""
    return sorted(path for path in directory.glob(f"{REPLACED}*") if path.is_dir())


def _existing(path: Path, wanted: int) -> Iterator[AuditedPath]:
    if path.exists():
        yield AuditedPath(path, wanted)


def _below(tree: Path) -> Iterator[AuditedPath]:
    """Yield a directory and its contents, including directories that cannot be read."""
    if tree.is_dir():
        yield AuditedPath(tree, 0o700)
    for directory, inner, names in os.walk(tree):
        for wanted, found in ((0o700, inner), (0o600, names)):
            for name in found:
                path = Path(directory, name)
                if not path.is_symlink():
                    yield AuditedPath(path, wanted)


def trouble(place: AuditedPath) -> tuple[str, bool] | None:
    """Return what is wrong with a place's owner or mode, and whether fleetd can repair it."""
    try:
        info = place.path.stat()
    except OSError:  # gone since
        return None
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}, not to uid {os.getuid()}", False
    mode = stat.S_IMODE(info.st_mode)
    if mode & ~place.wanted:
        return f"mode {mode:04o}, open to others", True
    if 0o700 & place.wanted & ~mode:
        return f"mode {mode:04o}, closed to fleetd itself", True
    return None


def mend(place: AuditedPath) -> bool:
    """Give a place the permissions that it should have; return False when the disk refuses."""
    try:
        mode = stat.S_IMODE(place.path.stat().st_mode)
        place.path.chmod((mode & place.wanted) | (0o700 & place.wanted))
    except OSError:
        return False
    return True


def leftovers(database: Path, checkpoints: Path) -> list[Path]:
    """Return the temporary files that a crash left, except those that may be in use now."""
    found = [*database.parent.glob(f"{PART}*")]
    for inside in dict.fromkeys(each.inside or "" for each in LAYOUTS.values()):
        found += checkpoints.glob(str(Path("*", inside, f"{TEMP}*")))
    return [*second_names(database), *(path for path in sorted(found) if _is_old(path))]


def second_names(database: Path) -> list[Path]:
    """Return the other names of the database, left by a restore that was killed.

    A database in use must have one name only, because SQLite finds its WAL by it.
    """
    names = (directory / database.name for directory in replaced(database.parent))
    return [path for path in names if path.exists() and path.samefile(database)]


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        info = path.lstat()
        return not stat.S_ISDIR(info.st_mode) and time.time() - info.st_mtime > LEFT_S
    return False


def free_bytes(path: Path) -> int | None:
    """Return the bytes that fleetd may still write where a path is, None when unknown."""
    with contextlib.suppress(OSError):
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize
    return None
