"""Looks at the transcripts that agent CLIs write: bounded, and only at regular files of ours."""

import hashlib
import os
import stat

from ...domain.core.context import TranscriptMark
from ...harness.gemini import first_message, last_count
from ...harness.report import WindowUsed
from ...host.file_system import PathWalk

HEAD_BYTES = 4_096
TAIL_BYTES = 1_048_576
# One line of a log can hold the whole conversation.
LOG_BYTES = 8 * TAIL_BYTES


def log_of(
    path: str | None, walk: PathWalk | None = None
) -> tuple[TranscriptMark | None, tuple[WindowUsed, ...]]:
    """Return what would show that a transcript was written anew, and how full its window is.

    A log of what happened is never written anew: there a later line says what it begins with. Its
    size says nothing, since a session that is resumed may go on in a file of another name.
    """
    log = path is not None and path.endswith(".jsonl")
    found = _read(path, LOG_BYTES if log else HEAD_BYTES, from_end=log, walk=walk)
    if found is None:
        return None, ()
    size, some = found
    if log:
        mark = TranscriptMark(0, first_message(some, whole=size <= LOG_BYTES))
        return mark, last_count(some)
    return TranscriptMark(size, hashlib.sha256(some.partition(b"\n")[0]).hexdigest()), ()


def tail_of(path: str | None, walk: PathWalk | None = None) -> str:
    """Return the end of a transcript, empty where there is none; its first line may be cut."""
    found = _read(path, TAIL_BYTES, from_end=True, walk=walk)
    return found[1].decode("utf-8", "replace") if found else ""


def _read(
    path: str | None, most: int, *, from_end: bool, walk: PathWalk | None
) -> tuple[int, bytes] | None:
    """Return a file's size and some of its bytes; None for what is no regular file of ours."""
    if path is None or not path.startswith("/") or "\0" in path:
        return None
    walk = walk or PathWalk()
    walk.visit(path)
    try:
        return _bytes_of(path, most, from_end=from_end)
    finally:
        walk.at = None


def _bytes_of(path: str, most: int, *, from_end: bool) -> tuple[int, bytes] | None:
    try:
        # Opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            return None
        begin = max(info.st_size - most, 0) if from_end else 0
        return info.st_size, os.pread(descriptor, most, begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)
