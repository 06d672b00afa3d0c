"""Looks at the transcripts that agent CLIs write: bounded, and only at regular files of ours."""

import hashlib
import os
import stat

from .domain.context import TranscriptMark

HEAD_BYTES = 4_096
TAIL_BYTES = 1_048_576


def mark_of(path: str | None) -> TranscriptMark | None:
    """Return what would show that a transcript was written anew; None where there is none."""
    found = _read(path, HEAD_BYTES, from_end=False)
    if found is None:
        return None
    size, head = found
    return TranscriptMark(size, hashlib.sha256(head.partition(b"\n")[0]).hexdigest())


def tail_of(path: str | None) -> str:
    """Return the end of a transcript, empty where there is none; its first line may be cut."""
    found = _read(path, TAIL_BYTES, from_end=True)
    return found[1].decode("utf-8", "replace") if found else ""


def _read(path: str | None, most: int, *, from_end: bool) -> tuple[int, bytes] | None:
    """Return a file's size and some of its bytes; None for what is no regular file of ours."""
    if path is None or not path.startswith("/") or "\0" in path:
        return None
    try:
        # Opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            return None
        if from_end:
            file.seek(max(info.st_size - most, 0))
        return info.st_size, file.read(most)
