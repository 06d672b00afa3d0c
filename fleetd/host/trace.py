"""Trace context, and the log whose lines end with it.

The context identifies the origin of the daemon's work. It goes with the task, and with work that
the task passes on: jobs for the writer and reader threads, effects after a commit, files that are
written later.

The log is one line per message on stderr, in the specification's format. A message may contain text
from a client. So anything that could move a cursor or begin a new line is escaped, and secrets are
removed: ids and paths are stored whole, and the log repeats them.
"""

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TextIO

import msgspec

from ..protocol.display import escaped, shown
from ..protocol.timestamps import iso

_NAME = re.compile(r"[a-z_.]{1,40}")


class TraceContext(msgspec.Struct, frozen=True):
    """A client's request, its connection alone, or an event that a hook left in the spool.

    ``connection`` counts from 1 since the start of the daemon. ``request`` is the JSON-RPC id, any
    text or number that the client chose; a notification has none. The context becomes text only
    when a log line needs it.
    """

    connection: int = 0
    method: str = ""
    request: str | int | None = None
    notification: bool = False
    about: str = ""

    def __str__(self) -> str:
        """Return ``connection 12, request 7 checkpoint.create``."""
        parts = [f"connection {self.connection}"] if self.connection else []
        if self.method:
            what = "notification" if self.notification else f"request {shown(self.request)}"
            known = _NAME.fullmatch(self.method)
            parts.append(f"{what} {self.method if known else shown(self.method)}")
        if self.about:
            parts.append(self.about)
        return ", ".join(parts)


_current: ContextVar[TraceContext | None] = ContextVar("origin", default=None)

current = _current.get


def enter(origin: TraceContext | None) -> Token[TraceContext | None]:
    """Set on whose behalf the task continues, until ``leave`` receives the token."""
    return _current.set(origin)


def leave(token: Token[TraceContext | None]) -> None:
    """Restore the origin from before ``enter``."""
    _current.reset(token)


@contextmanager
def on_behalf_of(origin: TraceContext | None) -> Iterator[None]:
    """Run a block on behalf of an origin."""
    token = _current.set(origin)
    try:
        yield
    finally:
        _current.reset(token)


def annotate(about: str) -> None:
    """Add a detail to the origin that became known since, such as a hook's session."""
    origin = _current.get() or TraceContext()
    joined = f"{origin.about}, {about}" if origin.about else about
    _current.set(msgspec.structs.replace(origin, about=joined))


class LineFormatter(logging.Formatter):
    """Renders ``[2026-01-05T12:00:00.000Z] [INFO] message``; a traceback becomes such lines too.

    Every line for a request ends in ``(connection 12, request 7 checkpoint.create)``.
    ``redact`` takes secrets out of a line.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        head = f"[{iso(round(record.created * 1e6) // 1_000)}] [{record.levelname}] "
        lines = [record.getMessage()]
        if record.exc_info:
            lines += self.formatException(record.exc_info).splitlines()
        tail = f" ({context})" if (context := current()) else ""
        return "\n".join(head + escaped(self._redact(line) + tail) for line in lines)


def configure(level: str, redact: Callable[[str], str], stream: TextIO | None = None) -> None:
    """Send the log to ``stream``, stderr by default; libraries log only from WARNING on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(redact))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("fleetd").setLevel(level)
    # A closed terminal must not turn every message into a traceback.
    logging.raiseExceptions = False
