"""Private directories: makes them, and refuses those in which others can act.

A directory is as safe as the least safe one on the way to it.
"""

import os
import stat
from pathlib import Path

from . import permissions
from .atomic_files import make_directories
from .paths import PathRefused, runtime_dir

ADVICE = "Set FLEET_SOCKET to a path in a directory of your own with mode 0700."


def claim(directory: Path) -> None:
    """Make the directory of a socket if it is missing; raise PathRefused where others could act.

    Nobody else may even look into the one that is fleetd's own. One that a person has chosen, such
    as a home directory, may be open to others as long as they cannot write there.
    """
    try:
        make_directories(directory)
        info = directory.lstat()
        weak = permissions.way_problem(directory)
    except OSError as error:
        raise PathRefused(
            f"The socket's directory {directory} cannot be used: {error.strerror}. "
            "Set FLEET_SOCKET to a path in a directory of your own."
        ) from error
    if problem := _problem(info, alone=directory == runtime_dir()):
        raise PathRefused(
            f"The socket's directory {directory} {problem}. Run: chmod 700 {directory} - or set "
            "FLEET_SOCKET to a path in a directory of your own with mode 0700."
            if info.st_uid == os.getuid() and stat.S_ISDIR(info.st_mode)
            else f"The socket's directory {directory} {problem}. Somebody else could put a socket "
            f"there. {ADVICE}"
        )
    if weak:
        raise PathRefused(
            f"The socket's directory {directory} is reached by {weak[0]}, which {weak[1]}. "
            f"Somebody else could put another directory in its place. {ADVICE}"
        )


def _problem(info: os.stat_result, *, alone: bool) -> str | None:
    if stat.S_ISLNK(info.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory"
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}, not to uid {os.getuid()}"
    mode = f"has mode {stat.S_IMODE(info.st_mode):04o}"
    if info.st_mode & 0o022:
        return f"{mode}, so others may write to it"
    if alone and info.st_mode & 0o077:
        return f"{mode}, so others may look into it"
    return None
