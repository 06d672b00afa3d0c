"""What fleetd has stored on this machine: where it lies, and its removal for good; asks nobody.

Only what has a name of fleetd's is removed. Whatever else lies in these directories stays.
"""

import fcntl
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetd.host import paths
from fleetd.protocol.errors import InvalidState, Storage

from ..integrations import settings_backups

if TYPE_CHECKING:
    from fleetd.config import Config

# What lies beside the database by its name, and by one of its own.
_ENDINGS = ("", "-wal", "-shm", "-journal", "-mark", "-lock", ".ballast")
# What damage or a vanished directory had fleetd put aside.
_KEPT = ("-wal.damaged-*", ".rescued-*")
_OF_THE_MACHINE = ("machine-id", "machine-nonces")
# Where a restore or a move has put what it replaced.
_REPLACED = "replaced-*"


class Stored(NamedTuple):
    """One thing that fleetd has stored, by the word that people know, and the paths of it."""

    what: str
    paths: tuple[Path, ...]

    @property
    def where(self) -> Path:
        """Return the path that stands for it."""
        return self.paths[0]


def stored(config: "Config") -> list[Stored]:
    """Return what there is."""
    here = config.database.parent
    state = paths.state_path()
    found = (
        ("database", _beside(config.database)),
        ("machine id", [here / name for name in _OF_THE_MACHINE]),
        ("checkpoints", [config.checkpoints]),
        ("replaced", [*here.glob(_REPLACED), *config.checkpoints.parent.glob(_REPLACED)]),
        ("spool", [paths.spool_path()]),
        ("copies of settings", [settings_backups.directory()]),
        ("log", [state / "fleetd.log", state / "fleetd.log.1"]),
    )
    every = ((what, tuple(filter(os.path.lexists, places))) for what, places in found)
    return [Stored(what, places) for what, places in every if places]


def _beside(database: Path) -> Iterator[Path]:
    for ending in _ENDINGS:
        yield database.with_name(database.name + ending)
    for pattern in _KEPT:
        yield from database.parent.glob(glob.escape(database.name) + pattern)


def delete(config: "Config", each: Stored) -> None:
    """Remove one of them; raises InvalidState while a daemon uses it, and Storage."""
    _check_unused(config)
    for path in each.paths:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Storage(
                f"{error.filename or path} cannot be removed: {error.strerror}.",
                hint=f"Look there: ls -la {path.parent}. Then run the command again.",
            ) from error
    for directory in {path.parent for path in each.paths}:
        _remove_if_empty(directory)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:  # something of somebody else's is in it
        return


def _check_unused(config: "Config") -> None:
    """Raise InvalidState while somebody holds one of the locks of a daemon."""
    locks = paths.locks_of(config.database, config.checkpoints, config.socket)
    for what, path in locks.items():
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # no daemon has made it, or it is none
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidState(
                f"A fleetd uses {what}; nothing of it was removed.",
                hint="Stop it, then run the command again: fleetctl daemon stop",
            ) from error
        finally:
            os.close(handle)
