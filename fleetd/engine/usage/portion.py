"""Portions of transcripts, read on a thread: limited bytes, whole lines, and their content."""

import hashlib
import os
import stat
from collections.abc import Collection
from typing import Any

import msgspec

from ...domain.usage.transcripts import ReadPortion, Transcript
from ...harness.usage import opencode
from ...harness.usage.readers import READERS
from ...harness.usage.record import lines_of
from ...host.file_system import PathWalk
from ...store.sqlite.foreign_rows import Unreadable, foreign_rows

PORTION_BYTES = 1_048_576
# A file's first bytes, and the last ones that were read, show whether it continues or was replaced.
HEAD_BYTES = 1_024
TAIL_BYTES = 4_096
MESSAGES = 500
# A session's own messages and those of its subagents, which have sessions below it.
_MESSAGES = (
    "WITH RECURSIVE family (id) AS (SELECT :session UNION SELECT s.id FROM session s"
    " JOIN family f ON s.parent_id = f.id)"
    " SELECT m.time_created, m.data FROM message m WHERE m.session_id IN (SELECT id FROM family)"
    " AND m.time_created >= :since AND m.time_created <= coalesce((SELECT o.time_created"
    " FROM message o WHERE o.session_id IN (SELECT id FROM family) AND o.time_created >= :since"
    " ORDER BY o.time_created LIMIT 1 OFFSET :most - 1), m.time_created)"
    " ORDER BY m.time_created, m.id"
)


class FileState(msgspec.Struct):
    """The state after a portion: the reader's state, and whether a long line continues."""

    reader: dict[str, Any] = msgspec.field(default_factory=dict)
    in_long_line: bool = False


def read_portion(
    walk: PathWalk, transcript: Transcript, now_ms: int, portion_bytes: int = PORTION_BYTES
) -> ReadPortion:
    """Read the next portion of a transcript; a file that was replaced is read from its start."""
    if transcript.harness == opencode.HARNESS:
        return _read_messages(walk, transcript, now_ms)
    walk.visit(transcript.path)
    try:
        return _read_file(transcript, portion_bytes)
    finally:
        walk.at = None


def _unread(transcript: Transcript) -> ReadPortion:
    return ReadPortion(
        position=transcript.position, head=transcript.head, state=transcript.state, missing=True
    )


def _read_file(transcript: Transcript, portion_bytes: int) -> ReadPortion:
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(transcript.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return _unread(transcript)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            return _unread(transcript)
        start = os.pread(descriptor, HEAD_BYTES, 0)
        position, state = transcript.position, msgspec.convert(transcript.state, FileState)
        before = _read_before(descriptor, position)
        if info.st_size < position or not _goes_on(start, before, transcript.head):
            position, state, before = 0, FileState(), b""
        data = os.pread(descriptor, portion_bytes, position)
    except OSError:
        return _unread(transcript)
    finally:
        os.close(descriptor)
    full = len(data) == portion_bytes
    skipped, long_lines = _long_line(data, state, full=full)
    lines, taken = lines_of(data[skipped:])
    end = skipped + taken
    position += end
    read = READERS[transcript.harness](state.reader, lines)
    state.reader = read.state
    return ReadPortion(
        position=position,
        head=_head(start, (before + data[max(end - TAIL_BYTES, 0) : end])[-TAIL_BYTES:]),
        state=msgspec.to_builtins(state),
        whole=not full,
        outstanding=max(info.st_size - position, 0),
        records=read.records,
        broken=read.broken,
        long_lines=long_lines,
        repeated=read.repeated,
    )


def _long_line(data: bytes, state: FileState, *, full: bool) -> tuple[int, int]:
    """Return how many bytes belong to a line longer than a portion, and whether it begins here."""
    end = data.find(b"\n") + 1
    if state.in_long_line:
        state.in_long_line = end == 0
        return (end or len(data)), 0
    if full and end == 0:
        state.in_long_line = True
        return len(data), 1
    return 0, 0


def _read_before(descriptor: int, position: int) -> bytes:
    """Return the last bytes before a position."""
    begin = max(position - TAIL_BYTES, 0)
    return os.pread(descriptor, position - begin, begin)


def _head(start: bytes, before: bytes) -> str:
    """Return the number of first bytes, their checksum, and that of the last bytes read."""
    return f"{len(start)}:{_checksum(start)}:{_checksum(before)}"


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _goes_on(start: bytes, before: bytes, head: str) -> bool:
    """Return whether a file is still the one whose head was noted, maybe when it was shorter."""
    length = head.partition(":")[0]
    return not length.isdecimal() or _head(start[: int(length)], before) == head


def _read_messages(walk: PathWalk, transcript: Transcript, now_ms: int) -> ReadPortion:
    walk.visit(transcript.path)
    try:
        if os.stat(transcript.path).st_uid != os.getuid():  # noqa: PTH116 - a path of any text
            return _unread(transcript)
        found = foreign_rows(
            transcript.path,
            _MESSAGES,
            {"session": transcript.session_id, "since": transcript.position, "most": MESSAGES},
        )
    except (OSError, ValueError, Unreadable):
        return _unread(transcript)
    finally:
        walk.at = None
    rows = [
        (created, data.encode("utf-8", "surrogatepass"))
        for created, data in found
        if isinstance(created, int) and isinstance(data, str)
    ]
    read, position = opencode.read_messages(transcript.position, rows, now_ms)
    return ReadPortion(
        position=position,
        head="",
        state={},
        whole=len(found) < MESSAGES or position == transcript.position,
        records=read.records,
        broken=read.broken,
    )


def subagent_files(walk: PathWalk, transcript: Transcript, known: Collection[str]) -> list[str]:
    """Return new transcripts of the subagents of a Claude Code session, or some of them.

    The next call finds those that were left out.
    """
    if transcript.harness != "claude" or not transcript.path.endswith(".jsonl"):
        return []
    place = f"{transcript.path.removesuffix('.jsonl')}/subagents"
    walk.visit(place)
    found: list[str] = []
    try:
        for directory, _, names in os.walk(place):
            paths = (f"{directory}/{name}" for name in names if name.endswith(".jsonl"))
            found += [path for path in paths if path not in known]
            if len(found) >= MESSAGES:
                break
    finally:
        walk.at = None
    return sorted(found)[:MESSAGES]
