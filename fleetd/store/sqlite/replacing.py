"""Puts a finished database in the place of another, by names alone; must not look into either."""

import contextlib
import os
from pathlib import Path

from ...host.atomic_files import sync
from ..disk_audit import DATABASE_ENDINGS, REPLACED, second_names
from .online_backup import PART
from .swap import Moves


def files_of(database: Path) -> list[Path]:
    """Return the files of a database: they belong together, also when it is damaged."""
    names = (Path(f"{database}{ending}") for ending in DATABASE_ENDINGS)
    return [path for path in names if os.path.lexists(path)]


def clear_up(database: Path) -> None:
    """Remove what was left beside a database by a program that was to replace it and was killed."""
    with contextlib.suppress(OSError):
        for path in (*database.parent.glob(f"{PART}*"), *second_names(database)):
            path.unlink()


def unused(places: tuple[Path, ...], now: str) -> str:
    """Return a name for a directory that nothing has in any of these places; ``now`` is ISO."""
    stamp = now[:19].replace("-", "").replace(":", "")
    number, name = 1, f"{REPLACED}{stamp}Z"
    while any((place / name).exists() for place in places):
        number += 1
        name = f"{REPLACED}{stamp}Z-{number}"
    return name


def put_in_place(part: Path, database: Path, aside: Path | None, moves: Moves) -> None:
    """Give a finished file the name of a database, whose old files go to ``aside``.

    Until the one rename the old one is in place and whole. Raises OSError; ``moves`` can take back
    what was done by then.
    """
    if aside is not None:
        moves.make_directory(aside)
        for path in files_of(database):
            moves.keep(path, aside)
    # A WAL must never meet another database than its own. Of a database that is whole there
    # is none by now; of a damaged one it lies beside its copy.
    for path in files_of(database):
        if path != database:
            path.unlink()
    sync(database.parent)
    part.rename(database)


def confirm(database: Path) -> None:
    """Bring the new name to the disk; it is done, and a disk that fails now is met again."""
    with contextlib.suppress(OSError):
        sync(database.parent)
