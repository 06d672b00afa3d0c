"""Online backup: a checked copy of the database on disk, or none.

A copy is one file: it needs no WAL beside it, and can be opened where nothing can be written.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from ...host import progress
from ...host.atomic_files import sync
from ..api import CopyDamaged
from . import page_checksums
from .connect import connect
from .database_files import ENDING as MARK
from .integrity_check import damage_of

PART = ".fleetd-part-"
STEP_PAGES = 256
# Data written in one go is also synced in one go, and commits of the daemon wait behind it.
FLUSH_STEPS = 8
BEAT_STEPS = 10_000
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def online_copy(path: str, target: Path, vfs: str | None, beat: Callable[[], None]) -> int:
    """Copy a database that others write to; return the copy's size in bytes.

    The copy is one snapshot. ``beat`` is called between the steps and may raise to end the copy.
    Raises FileExistsError when something has the target's name, CopyDamaged when the copy fails
    its checks, apsw.Error and OSError when the disk refuses; the target is then unchanged.
    """
    source = connect(path, query_only=True, vfs=vfs)
    with contextlib.closing(source), part_of(target) as part:
        copy(source, part, beat)
        size = part.stat().st_size
        publish(part, target)
    return size


@contextlib.contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """Make a private file beside the target; remove it and SQLite's files beside it at the end."""
    part = target.parent / f"{PART}{secrets.token_hex(8)}.db"
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    try:
        yield part
    finally:
        for ending in ("", "-journal", "-wal", "-shm", MARK):
            with contextlib.suppress(OSError):
                Path(f"{part}{ending}").unlink()


def copy(source: apsw.Connection, part: Path, beat: Callable[[], None]) -> None:
    """Fill a file with a snapshot of a database, check it and bring it to the disk."""
    _fill(source, part, beat)
    _stand_alone(part, beat)
    sync(part)


def _fill(source: apsw.Connection, part: Path, beat: Callable[[], None]) -> None:
    # In a transaction every step sees the same snapshot. Without one, SQLite would start again with
    # every commit, and never end under load. In WAL mode this blocks no other connection.
    source.execute("BEGIN")
    flushing = os.open(part, os.O_RDWR | os.O_CLOEXEC)
    try:
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with contextlib.closing(page_checksums.opened(str(part))) as target:
            # SQLite writes to the file immediately; the sync below brings it to the disk.
            target.pragma("synchronous", "off")
            if page_checksums.checked(source):
                page_checksums.begin(target, source.pragma("page_size"))
            with target.backup("main", source, "main") as backup:
                steps = 0
                while not backup.done:
                    backup.step(STEP_PAGES)
                    steps += 1
                    if steps % FLUSH_STEPS == 0:
                        os.fdatasync(flushing)
                    progress.at("pages", backup.page_count - backup.remaining, backup.page_count)
                    beat()
    finally:
        # Only now: closing a descriptor of a file drops SQLite's locks on it.
        os.close(flushing)
        if source.in_transaction:
            source.execute("ROLLBACK")


def _stand_alone(part: Path, beat: Callable[[], None]) -> None:
    """Take the copy out of WAL mode and check it; raises CopyDamaged."""
    progress.at("database")
    with contextlib.closing(page_checksums.opened(str(part))) as connection:
        # The check takes as long as the copy, so it must be possible to end it, too.
        connection.set_progress_handler(lambda: bool(beat()), BEAT_STEPS)  # type: ignore[func-returns-value]
        try:
            connection.pragma("cell_size_check", True)
            connection.pragma("locking_mode", "exclusive")
            connection.pragma("journal_mode", "delete")
            damage = damage_of(connection)
        except apsw.Error as error:
            if not page_checksums.is_damage(error):
                raise
            damage = [page_checksums.describe(error)]
    if damage:
        raise CopyDamaged("; ".join(damage))


def publish(part: Path, target: Path) -> None:
    """Give a finished file its name, in one step; raises FileExistsError when that is taken."""
    try:
        os.link(part, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links: claim the name first, so that nothing is overwritten.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        part.rename(target)
    try:
        sync(target.parent)
    except OSError:
        target.unlink()
        raise
