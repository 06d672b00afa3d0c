"""The directories of one owner, opened by descriptor and without following symlinks.

Must not know what lies in them.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...host.atomic_files import Directory, make_directories

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Rooms(msgspec.Struct, frozen=True):
    """The directory of one owner, and the one that holds its files, if it is there."""

    top: Directory
    files: Directory | None

    @property
    def all(self) -> list[Directory]:
        """Return the directories there are, each once."""
        return [self.top] if self.files in (None, self.top) else [self.top, self.files]


@contextlib.contextmanager
def opened(root: Path, owner_id: str, inside: str | None, *, make: bool) -> Iterator[Rooms]:
    """Open an owner's directories while the block runs; ``make`` makes those that are missing.

    ``inside`` is the directory in the owner's that holds its files, None for the owner's own.
    Raises OSError, FileNotFoundError when the owner has none.
    """
    if make:
        make_directories(root)
    with contextlib.ExitStack() as stack:
        base = _open(stack, root, None)
        if make:
            _make(base, owner_id)
        top = _open(stack, Path(owner_id), base)
        if inside is None:
            yield Rooms(top, top)
            return
        if make:
            _make(top, inside)
        files = None
        with contextlib.suppress(FileNotFoundError):
            files = _open(stack, Path(inside), top)
        yield Rooms(top, files)


def _open(stack: contextlib.ExitStack, path: Path, above: Directory | None) -> Directory:
    """Open a directory; only the root, which a person has chosen, may be a symlink."""
    flags = _OPEN if above is None else _OPEN | os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=above.descriptor if above else None)
    stack.callback(os.close, descriptor)
    return Directory(descriptor, above.path / path if above else path)


def _make(above: Directory, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above.descriptor)
        os.fsync(above.descriptor)
