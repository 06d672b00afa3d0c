"""Status of hooks: what is installed, whether this installation wrote it, what it sent."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState, MethodNotFound, Unavailable

from ..client import Fleet, TooSlow
from ..client.models import Finding, HarnessStatus, HookStatusGet, SpoolStatus
from ..output import console
from ..output.tables import Column
from . import config_file, hooks, launcher
from .hook_command import (
    AUTO,
    ENFORCE,
    Installation,
    is_compiled,
    is_plugin,
    lock_words,
    plugin_text,
    plugin_words,
)
from .hook_plan import complaints
from .registry import OPENCODE, Harness, installable

COLUMNS = (
    Column("LAST EVENT", matters=4),
    Column("AT", matters=6, times="ago"),
    Column("EVENTS", matters=5),
    Column("P50", matters=1),
    Column("P95", matters=2),
)


class DaemonHookStatus(NamedTuple):
    """What the daemon received, by harness; ``complaint`` says why it could not be asked.

    ``away`` is set if no daemon runs: hooks then write their payloads to the spool.
    """

    harnesses: Sequence[HarnessStatus] = ()
    spool: SpoolStatus | None = None
    complaint: str = ""
    away: bool = False

    @property
    def answered(self) -> bool:
        """Return whether a daemon answered."""
        return not self.complaint

    def of(self, harness: str) -> HarnessStatus | None:
        """Return what the daemon received from one harness."""
        return next((each for each in self.harnesses if each.harness == harness), None)

    def row(self, harness: str) -> tuple[str, ...]:
        """Return the cells of a table."""
        found = self.of(harness)
        if found is None:
            return ("", "", "0" if self.answered else "?", "", "")
        times = (_ms(found.p50_ms), _ms(found.p95_ms))
        return (found.last_event or "", found.last_event_at or "", str(found.deliveries), *times)

    def print_notes(self) -> None:
        """Print what there is to say besides the table."""
        if self.complaint:
            complaint = self.complaint.removesuffix(".")
            console.warn(f"{complaint}. Hooks keep their payloads in the spool until it starts.")
        elif self.spool is not None and self.spool.files:
            waiting = console.plural(self.spool.files, "file")
            contents = f"{waiting} ({console.size(self.spool.size_bytes)})"
            console.line(f"\nIn the spool {self.spool.directory}: {contents}")

    def finding(self, *, spooled: bool) -> Finding:
        """Return the daemon's presence as the result of a check.

        Its absence is only a note where hooks are ``spooled``: nothing is lost meanwhile.
        """
        if self.away and spooled:
            complaint = self.complaint.removesuffix(".")
            detail = f"{complaint}; hooks keep their payloads in the spool until it starts"
            return Finding(check="daemon", ok=True, note=True, detail=detail)
        detail = self.complaint or "fleetd answers"
        return Finding(check="daemon", ok=self.answered, detail=detail)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} ms"


def ask() -> DaemonHookStatus:
    """Ask the daemon; the result reports one that is away, hangs, or is too old."""
    try:
        with Fleet() as client:
            status = client.call(HookStatusGet())
    except Unavailable as error:
        return DaemonHookStatus(complaint=error.message, away=True)
    except TooSlow as error:
        return DaemonHookStatus(complaint=f"{error.message} Read its log, or restart it.")
    except MethodNotFound:
        return DaemonHookStatus(complaint="fleetd is of an older version; restart it.")
    return DaemonHookStatus(status.harnesses, status.spool)


@dataclass
class HooksState:
    """A harness's hooks; ``installed`` is yes, partly, no, or unknown with a ``problem``."""

    harness: str
    # Whether its program or its directory is on this machine.
    here: bool
    executable: str | None
    file: str
    installed: str = "no"
    events: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    # Events that installing again would add to an older, complete installation.
    updates: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    # Whether every command belongs to this installation, with either client.
    current: bool = False
    # The client of the first command: python, compiled, or empty for a plugin.
    client: str = ""
    # Whether installing again would switch to the compiled client.
    slower: bool = False
    enforce_locks: bool = False
    auto_locks: bool = False
    problem: str = ""


def state(harness: Harness, project: Path | None, installation: Installation) -> HooksState:
    """Look at a harness's settings."""
    file = harness.settings_file(project)
    seen = HooksState(harness.name, harness.is_here(), harness.executable(), str(file))
    try:
        found = config_file.read(file, project=project)
        if harness is OPENCODE:
            if is_plugin(found):
                seen.installed = "yes"
                seen.current = found.data == plugin_text(found, {})
                words = plugin_words(found)
                seen.enforce_locks, seen.auto_locks = ENFORCE in words, AUTO in words
        else:
            _look_at_settings(seen, harness, found, installation)
    except InvalidState as error:
        seen.installed, seen.problem = "unknown", error.message
    return seen


def _look_at_settings(
    seen: HooksState, harness: Harness, file: config_file.SettingsFile, installation: Installation
) -> None:
    with complaints(file):
        ours = hooks.found(file.text or "", harness)
    if not ours:
        return
    seen.events = list(dict.fromkeys(each.event for each in ours))
    seen.commands = list(dict.fromkeys(each.command for each in ours))
    words = frozenset[str]().union(*map(lock_words, seen.commands))
    seen.enforce_locks, seen.auto_locks = ENFORCE in words, AUTO in words
    events, _notes = installable(harness, set(seen.events))
    absent = [event for event in events if event.name not in seen.events]
    seen.missing = [event.name for event in absent if not event.later]
    seen.updates = [event.name for event in absent if event.later]
    seen.installed = "partly" if seen.missing else "yes"
    expected = {
        event.name: installation.commands(harness, event, words=words) for event in harness.events
    }
    seen.current = all(each.command in expected.get(each.event, ()) for each in ours)
    seen.current &= any(map(launcher.is_current, installation.launcher_texts))
    compiled = [is_compiled(command) for command in seen.commands]
    seen.client = "compiled" if compiled[0] else "python"
    seen.slower = bool(installation.compiled) and not all(compiled)
