"""The references of all rows: one fsync of this disk, one start of this Python."""

import os
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .measure import Operation

BLOCK = b"x" * 4096
# Start over before the file is large: only the cost of one block counts.
BLOCKS = 4_096


@contextmanager
def appending(directory: Path) -> Iterator[Operation]:
    """Yield ``write+fdatasync`` of 4 KB at the end of a file: the minimum for a commit."""
    with _scratch(directory / "appended") as descriptor:

        def append() -> None:
            if os.lseek(descriptor, 0, os.SEEK_CUR) >= BLOCKS * len(BLOCK):
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, BLOCK)
            os.fdatasync(descriptor)

        yield append


@contextmanager
def overwriting(directory: Path) -> Iterator[Operation]:
    """Yield the same in place: the file system only writes the data."""
    with _scratch(directory / "overwritten") as descriptor:

        def overwrite() -> None:
            os.pwrite(descriptor, BLOCK, 0)
            os.fdatasync(descriptor)

        overwrite()
        yield overwrite


@contextmanager
def _scratch(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink()


def bare_interpreter(directory: Path) -> str:
    """Create an empty environment of this Python; return its interpreter.

    An environment's ``.pth`` files run at every start: the finder of an editable install doubles
    the time of a start, and would flatter any path that is compared with one.
    """
    venv.create(directory, symlinks=True, with_pip=False)
    return str(directory / "bin" / "python")


def starting(*command: str) -> Operation:
    """Return an operation that runs one process from exec to exit."""
    return lambda: subprocess.run(command, check=True)
