"""A real file system with little room, filled to the last byte; needs the right to mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CannotMount(Exception):
    """This user or this machine cannot mount file systems; the text says why."""


@contextmanager
def small_disk(place: Path, size: str = "2m") -> Iterator[Path]:
    """Mount a file system of ``size`` at a directory that this creates."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    except OSError as error:
        raise CannotMount("there is no mount command") from error
    if done.returncode != 0:
        raise CannotMount(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def grow(place: Path, size: str = "8m") -> None:
    """Change the size of such a file system."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)


def fill(filler: Path, *, leave: int = 0) -> None:
    """Write a file until the disk is full, then free ``leave`` bytes."""
    with filler.open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    assert os.statvfs(filler).f_bavail == 0
    if leave:
        os.truncate(filler, filler.stat().st_size - leave)
