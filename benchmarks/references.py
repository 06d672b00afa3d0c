"""What everything else is compared with: one fsync of this disk, one start of this Python."""

import os
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .measure import Operation

BLOCK = b"x" * 4096
# Begin again before the file is large: only the cost of one block is wanted.
BLOCKS = 4_096


@contextmanager
def appending(directory: Path) -> Iterator[Operation]:
    """Give ``write+fdatasync`` of 4 KB at the end of a file: what a commit cannot do without."""
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
    """Give the same in place: the file system has nothing but the data to write."""
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
    """Make an environment of this Python with nothing in it; return its interpreter.

    What lies in an environment's ``.pth`` files runs at every start: the finder of an editable
    install doubles what a start takes, and would flatter whatever is compared with one.
    """
    venv.create(directory, symlinks=True, with_pip=False)
    return str(directory / "bin" / "python")


def starting(*command: str) -> Operation:
    """Give one process from exec to exit."""
    return lambda: subprocess.run(command, check=True)
