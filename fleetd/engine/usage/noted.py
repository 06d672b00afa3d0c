"""Noted transcripts: what hooks named since it was last written, kept in memory.

A hook costs no statement for it.
"""

from collections.abc import Iterable

import trio

from ...domain.redaction.redact import redact
from ...domain.usage.transcripts import NotedTranscript
from ...harness.report import Report
from ...harness.usage import opencode
from ...harness.usage.readers import KNOWN

# More sessions do not report within half a minute.
MOST = 1_000


class NotedTranscripts:
    """The transcripts that hooks named lately; ``reading`` is held by whoever reads some."""

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
        # What looks like a secret is not kept, and another path opens nothing.
        if len(self._noted) < MOST and redact(path) == path:
            self._noted[place] = NotedTranscript(
                harness=report.harness,
                session_id=redact(report.session_id),
                path=path,
                at=now,
            )

    def take(self) -> list[NotedTranscript]:
        """Return what was noted, and forget it."""
        noted, self._noted = self._noted, {}
        return list(noted.values())

    def put_back(self, noted: Iterable[NotedTranscript]) -> None:
        """Take back what could not be written."""
        for each in noted:
            self._noted.setdefault((each.path, each.session_id), each)
