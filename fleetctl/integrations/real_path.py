"""Where a path really leads, and a directory by its descriptor, through no link; knows no content.

A project is somebody else's word: its links lead nowhere out of it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetd.protocol.errors import InvalidState

# A directory on the way need not be one that may be listed.
_WALK = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


def target_of(path: Path, project: Path | None) -> Path:
    """Return the file behind the links; raises InvalidState where it is out of the project."""
    target = Path(os.path.realpath(path))
    if project is not None and not target.is_relative_to(root := os.path.realpath(project)):
        raise InvalidState(
            f"{path} leads to {target}, out of the project {root}.",
            hint="A link in a project may come with it, from whoever wrote it. Look where it "
            f"leads, and remove it: ls -ld {path.parent} {path}. Nothing was changed.",
        )
    return target


def leads_elsewhere(path: Path, target: Path, project: Path | None) -> bool:
    """Return whether a file is not where its name says, be it that the home itself is a link."""
    base = Path.home() if project is None else project
    if path.is_relative_to(base):
        path = os.path.realpath(base) / path.relative_to(base)
    # Not Path.absolute, which keeps "..".
    return os.path.abspath(path) != str(target)  # noqa: PTH100


@contextmanager
def opened(directory: Path, *, make: int | None = None) -> Iterator[int]:
    """Open a directory by its real path: a link that came into its way since is an error.

    What is missing is made with the mode ``make``, if there is one. Raises OSError.
    """
    here = os.open("/", _WALK)
    try:
        for part in directory.parts[1:]:
            deeper = _below(here, part, make)
            os.close(here)
            here = deeper
        yield here
    finally:
        os.close(here)


def _below(here: int, part: str, make: int | None) -> int:
    try:
        return os.open(part, _WALK, dir_fd=here)
    except FileNotFoundError:
        if make is None:
            raise
    os.mkdir(part, make, dir_fd=here)
    return os.open(part, _WALK, dir_fd=here)
