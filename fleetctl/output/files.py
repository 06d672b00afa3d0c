"""Files that commands write for the user: whole or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fleetd.protocol.errors import Storage


@contextmanager
def written_whole(name: str) -> Iterator[IO[bytes]]:
    """Open a file that takes its name once all is written; only its owner can read it.

    A pipe or a device is written directly. Raises Storage.
    """
    target = Path(os.path.realpath(name))
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            with target.open("wb") as file:
                yield file
            return
        aside = target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}")
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            aside.replace(target)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
    except OSError as error:
        raise Storage(
            f"{target} cannot be written: {error.strerror}.",
            hint="Check the directory, its permissions and the free space, then try again.",
        ) from error
