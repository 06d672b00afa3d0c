"""Live doctor of hooks: what agent CLIs sent lately, beside what is installed and runs now."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleetd.protocol.errors import InvalidState

from ..client.models import Finding, HarnessStatus, UnknownName
from ..output import console, tables
from ..output.tables import Column
from .hook_command import Installation
from .hook_plan import plan_install
from .registry import HARNESSES, Harness, version_text
from .status import HooksState

# This many silent sessions are a problem; fewer may be a user who opened a session and left.
SILENT = 2
NAMES = 10
# Descriptions of the kinds of things that fleetd does not know.
_UNKNOWN = {
    "event": "these events",
    "field": "these fields",
    "payload": "the form of these payloads",
}
COLUMNS = (Column("EVENT", cut="end"), Column("LAST", times="ago"), Column("COUNT", matters=5))


class Live:
    """What is known about one agent CLI: its settings and version now, and what it sent."""

    def __init__(
        self,
        name: str,
        seen: HooksState | None,
        status: HarnessStatus | None,
        installation: Installation,
        project: Path | None,
    ) -> None:
        self.name = name
        self.status = status
        self._seen = seen if seen is not None and seen.installed != "no" else None
        self._installation = installation
        self._project = project
        harness = HARNESSES.get(name)
        self._executable = harness.executable() if harness else None
        self.version = version_text(self._executable) if self._executable else None

    def findings(self) -> Iterator[Finding]:
        """Yield the findings."""
        harness = HARNESSES.get(self.name)
        if self._seen is not None and harness is not None and self._seen.installed != "unknown":
            yield self._settings(harness, self._seen)
        # A sender that is not an agent CLI has no program to ask for its version.
        if harness is not None and (self._seen is not None or self.status is not None):
            yield self._versions()
        if self.status is not None:
            yield self._sessions(self.status)
            yield from self._unknown(self.status.unknown)

    def document(self) -> dict[str, Any]:
        """Return everything as a document for programs."""
        status = self.status
        return {
            "harness": self.name,
            "version": self.version,
            "version_heard": status.version if status else None,
            "last_event": status.last_event if status else None,
            "last_event_at": status.last_event_at if status else None,
            "told_at": status.told_at if status else None,
            "silent_sessions": status.silent_sessions if status else 0,
            "silent_since": status.silent_since if status else None,
            "events": status.events if status else [],
            "unknown": status.unknown if status else [],
        }

    def show(self) -> None:
        """Print the last event of each kind."""
        if self.status is None or not self.status.events:
            return
        console.heading(" ".join(filter(None, (self.name, self.version))))
        rows = [(_name(e.event), e.last_at, str(e.count)) for e in self.status.events]
        tables.table(COLUMNS, rows)

    def _finding(self, check: str, detail: str, *, ok: bool = True, note: bool = False) -> Finding:
        return Finding(check=check, ok=ok, subject=self.name, detail=detail, note=note)

    def _settings(self, harness: Harness, seen: HooksState) -> Finding:
        """Compare what is installed with what this version would write."""
        try:
            change = plan_install(harness, self._project, self._installation)
        except InvalidState as error:
            return self._finding("settings", error.message, ok=False)
        if not change.changes:
            return self._finding("settings", "up to date")
        install = f"run: fleetctl hooks install {harness.name}"
        absent = [*seen.missing, *seen.updates]
        if seen.current and not absent:
            better = "run the compiled client" if seen.slower else "write them differently"
            detail = f"they work, but this version would {better}; {install}"
            return self._finding("settings", detail, note=True)
        without = f", without {', '.join(absent)}" if absent else ""
        detail = f"{seen.file} is not what this version would write{without}; {install}"
        return self._finding("settings", detail, ok=False)

    def _versions(self) -> Finding:
        """Compare the version that runs now with that of the last events."""
        before = self.status.version if self.status else None
        if self.version is None:
            why = "prints no version" if self._executable else "is not on the PATH"
            detail = f"{self.name} {why}" + (
                f"; its last events came from {before}" if before else ""
            )
            return self._finding("version", detail, note=True)
        if before is None:
            return self._finding("version", f"{self.version}; its events have no version")
        if before == self.version:
            return self._finding("version", f"{self.version}, as in its last events")
        detail = f"{self.version} now, {before} in its last events"
        return self._finding("version", detail, note=True)

    def _sessions(self, status: HarnessStatus) -> Finding:
        """Report sessions that started and then sent nothing."""
        count = status.silent_sessions
        if not count:
            detail = (
                f"last activity {console.moment(status.told_at)}" if status.told_at else "none yet"
            )
            return self._finding("sessions", detail)
        first = (
            f", the first of them {console.moment(status.silent_since)}"
            if status.silent_since
            else ""
        )
        detail = (
            f"{console.plural(count, 'session')} started and then sent no event{first}; send a "
            "prompt in one of them, then run this command again"
        )
        many = count >= SILENT
        return self._finding("sessions", detail, ok=not many, note=not many)

    def _unknown(self, unknown: Sequence[UnknownName]) -> Iterator[Finding]:
        """Yield what fleetd received and does not know, one finding for each kind."""
        for kind, what in _UNKNOWN.items():
            names = [each for each in unknown if each.kind == kind]
            if names:
                shown = ", ".join(map(_counted, names[:NAMES]))
                more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
                detail = (
                    f"fleetd does not know {what}: {shown}{more}. Update fleetd; if they are still "
                    "listed, open an issue of the project."
                )
                yield self._finding("unknown", detail, ok=False)
        if not unknown:
            yield self._finding("unknown", "no unknown events or fields in the last week")


def _counted(unknown: UnknownName) -> str:
    return f"{_name(unknown.name)} ({unknown.count})"


def _name(name: str) -> str:
    """Return a name for display; an empty name means all others together."""
    return name or "(others)"
