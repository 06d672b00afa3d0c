"""The socket: bounded lines of what comes in, and the peer's credentials."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Large lines are not copied into what cannot be changed.
Line = bytes | bytearray


class FrameTooLong(Exception):
    """A line passed the limit; where the next one begins is not known any more."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a line is longer than {limit} bytes")
        self.limit = limit


# How the hook client begins its lines, the only ones that may be large.
HOOK_BEGINS = b'{"jsonrpc":"2.0","method":"hook.deliver","params":{'


class LineDecoder:
    """Cuts a stream into lines, without their LF.

    Feed bytes in as they come and take finished lines out. Memory is bounded by the limit, or
    ``hook_limit`` while a line of the hook client comes in, plus the largest single feed. Blank
    lines are skipped, a CR before the LF is dropped.
    """

    def __init__(self, limit: int, hook_limit: int = 0) -> None:
        self._limit = limit
        self._hook_limit = max(limit, hook_limit)
        self._buffer = bytearray()
        self._scanned = 0

    @property
    def partial(self) -> bool:
        """Whether a line has begun and its end has not come."""
        return bool(self._buffer)

    @property
    def outgrown(self) -> bool:
        """Whether more has come than the limit, and may go on as it began."""
        return len(self._buffer) > self._limit and self._buffer.startswith(HOOK_BEGINS)

    def feed(self, data: bytes) -> None:
        """Take in bytes as they came from the peer."""
        self._buffer += data

    def next_line(self) -> Line | None:
        """Return the next finished line, or None when more bytes are needed.

        Raises FrameTooLong, after which the stream cannot be used any more.
        """
        if not self._scanned and self._buffer[:1].isspace():
            self._skip_blank_lines()
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            limit = self._hook_limit if self.outgrown else self._limit
            if end > limit or (end < 0 and len(self._buffer) > limit):
                raise FrameTooLong(limit)
            if end < 0:
                self._scanned = len(self._buffer)
                return None
            self._scanned = 0
            if end > self._limit:
                return self._large_line(end)
            with memoryview(self._buffer) as view:
                line = bytes(view[:end])
            del self._buffer[: end + 1]
            line = line.removesuffix(b"\r")
            if line.strip():
                return line

    def _skip_blank_lines(self) -> None:
        """Skip a flood of them as one, or it would keep everybody waiting."""
        # Imported here: no reply begins with one, and commands start often.
        import re

        if blank := re.match(rb"\s*\n", self._buffer):
            length = blank.end()
            del blank  # it holds the buffer
            del self._buffer[:length]

    def _large_line(self, end: int) -> bytearray:
        """Give the buffer away instead of a copy, which takes its time when it is large."""
        line, self._buffer = self._buffer, self._buffer[end + 1 :]
        del line[end:]
        if line.endswith(b"\r"):
            del line[-1:]
        return line


if sys.platform == "linux":
    # The C module: fleetctl does without the slow import of the one above it.
    from _socket import SO_PEERCRED, SOL_SOCKET

    def credentials(sock: Any) -> tuple[int, int | None]:
        """Return the uid and the pid of the other end; raises OSError where nobody knows.

        Of a listener's end they are those of the process that called ``listen``.
        """
        # struct ucred: pid, uid and gid, four bytes each.
        found = memoryview(sock.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)).cast("i")
        # The kernel counts uids without a sign.
        return found[1] & 0xFFFFFFFF, found[0]

else:

    def credentials(sock: Any) -> tuple[int, int | None]:
        """Return the uid of the other end; raises OSError where nobody knows."""
        # struct xucred of macOS and FreeBSD begins with a version and the uid.
        local_level, local_peercred, size = 0, 1, 76
        found = memoryview(sock.getsockopt(local_level, local_peercred, size)).cast("I")
        return found[1], None
