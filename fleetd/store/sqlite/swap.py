"""Database swap: puts a finished database in another one's place, in steps that can be undone.

Every step leaves the old or the new database on the disk: a crash loses neither.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

from ...host.atomic_files import sync
from ..disk_audit import DATABASE_ENDINGS, REPLACED, second_names
from .online_backup import PART

_NOT_BY_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class Moves:
    """Steps that are undone, as far as the disk allows, when a block of them fails.

    A bug undoes nothing, because it is unknown what was done. Methods raise OSError.
    """

    def __init__(self) -> None:
        self._back: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError | KeyboardInterrupt):
            for step in reversed(self._back):
                with contextlib.suppress(OSError):
                    step()

    def then(self, back: Callable[[], object]) -> None:
        """Remember how to undo a step that the caller takes itself."""
        self._back.append(back)

    def make_directory(self, path: Path) -> None:
        """Make a private directory and its missing parents; an existing one is used."""
        for each in reversed((path, *path.parents)):
            if not each.is_dir():
                each.mkdir(mode=0o700)
                self._back.append(each.rmdir)
                sync(each.parent)

    def keep(self, path: Path, directory: Path) -> None:
        """Put a file also under a directory; its own place stays unchanged for now."""
        kept = directory / path.name
        self._back.append(lambda: _undo_keeping(kept, path))
        _link_or_copy(path, kept)
        sync(directory)

    def move(self, path: Path, directory: Path) -> None:
        """Move a file into a directory."""
        moved = directory / path.name
        self._back.append(lambda: _undo_moving(moved, path))
        _link_or_copy(path, moved)
        sync(directory)
        path.unlink()


def _link_or_copy(path: Path, other: Path) -> None:
    """Give a file a second place; where names cannot be linked, copy the content."""
    try:
        os.link(path, other, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_BY_LINK:
            raise
        shutil.copy2(path, other, follow_symlinks=False)
        sync(other)


def _undo_keeping(kept: Path, path: Path) -> None:
    if not path.exists():
        _link_or_copy(kept, path)
    kept.unlink(missing_ok=True)


def _undo_moving(moved: Path, path: Path) -> None:
    for directory in (path.parent.parent, path.parent):  # they may have become empty
        directory.mkdir(mode=0o700, exist_ok=True)
    _undo_keeping(moved, path)


def files_of(database: Path) -> list[Path]:
    """Return the files of a database: they belong together, even when it is damaged."""
    names = (Path(f"{database}{ending}") for ending in DATABASE_ENDINGS)
    return [path for path in names if os.path.lexists(path)]


def clear_up(database: Path) -> None:
    """Remove files left beside a database by a program that was killed while replacing it."""
    with contextlib.suppress(OSError):
        for path in (*database.parent.glob(f"{PART}*"), *second_names(database)):
            path.unlink()


def unused(places: tuple[Path, ...], now: str) -> str:
    """Return a directory name that is unused in all of these places; ``now`` is ISO."""
    stamp = now[:19].replace("-", "").replace(":", "")
    number, name = 1, f"{REPLACED}{stamp}Z"
    while any((place / name).exists() for place in places):
        number += 1
        name = f"{REPLACED}{stamp}Z-{number}"
    return name


def put_in_place(part: Path, database: Path, aside: Path | None, moves: Moves) -> None:
    """Give a finished file the name of a database, whose old files go to ``aside``.

    Until the one rename, the old database is in place and whole. Raises OSError; ``moves`` can undo
    what was done by then.
    """
    if aside is not None:
        moves.make_directory(aside)
        for path in files_of(database):
            moves.keep(path, aside)
    # A WAL must never meet another database than its own. A whole database has none by now; that of
    # a damaged one is kept beside its copy.
    for path in files_of(database):
        if path != database:
            path.unlink()
    sync(database.parent)
    part.rename(database)


def confirm(database: Path) -> None:
    """Bring the new name to the disk; ignore errors, because a failing disk is met again."""
    with contextlib.suppress(OSError):
        sync(database.parent)
