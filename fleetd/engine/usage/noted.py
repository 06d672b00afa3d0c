"""Noted transcripts: those that hooks named since the last write, kept in memory.

So a hook costs no statement for them.
"""

from collections.abc import Iterable

import trio

from ...domain.redaction.redact import redact
from ...domain.usage.transcripts import NotedTranscript
from ...harness.report import Report
from ...harness.usage import opencode
from ...harness.usage.readers import KNOWN

# Fewer sessions than this report within half a minute.
MOST = 1_000


class NotedTranscripts:
    """The transcripts that hooks named recently; ``reading`` is held while some are read."""

    def __init__(self, opencode_database: str) -> None:
        self.reading = trio.Lock()
        self._opencode_database = opencode_database
        self._noted: dict[tuple[str, str], NotedTranscript] = {}

    def note(self, report: Report, now: str) -> None:
        """Note the transcripts of a report ``now`` (ISO 8601 UTC)."""
        if report.harness not in KNOWN:
            return
        paths = [report.transcript_path, report.subagent_transcript_path]
        if report.harness == opencode.HARNESS:
            paths = [self._opencode_database]
        for path in paths:
            place = path or "", report.session_id
            if path and path.startswith("/") and place not in self._noted:
                self._add(place, report, path, now)

    def _add(self, place: tuple[str, str], report: Report, path: str, now: str) -> None:
        # A path that looks like a secret is not kept, and its redacted form opens nothing.
        if len(self._noted) < MOST and redact(path) == path:
            self._noted[place] = NotedTranscript(
                harness=report.harness,
                session_id=redact(report.session_id),
                path=path,
                at=now,
            )

    def take(self) -> list[NotedTranscript]:
        """Return the noted transcripts and clear them."""
        noted, self._noted = self._noted, {}
        return list(noted.values())

    def put_back(self, noted: Iterable[NotedTranscript]) -> None:
        """Put back transcripts that could not be written."""
        for each in noted:
            self._noted.setdefault((each.path, each.session_id), each)
