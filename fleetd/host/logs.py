"""The log: one line per message on stderr, in the specification's format.

A message may hold what a client sent, so whatever could move a cursor or begin a line of its own
is escaped, and secrets are taken out: ids and paths are stored whole, and the log repeats them.
"""

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from ..protocol.invisible import escaped
from . import trace


class LineFormatter(logging.Formatter):
    """Renders ``[2026-01-05T12:00:00.000Z] [INFO] message``; a traceback becomes such lines too.

    What belongs to a request ends in ``(connection 12, request 7 checkpoint.create)``, each line.
    ``redact`` takes secrets out of a line.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        head = f"[{_iso(record.created)}] [{record.levelname}] "
        lines = [record.getMessage()]
        if record.exc_info:
            lines += self.formatException(record.exc_info).splitlines()
        whose = trace.current()
        tail = f" ({whose})" if whose else ""
        return "\n".join(head + escaped(self._redact(line) + tail) for line in lines)


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def configure(level: str, redact: Callable[[str], str], stream: TextIO | None = None) -> None:
    """Send the log to ``stream``, stderr by default; the libraries' own only from WARNING on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(redact))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("fleetd").setLevel(level)
    # A closed terminal must not turn every message into a traceback.
    logging.raiseExceptions = False
