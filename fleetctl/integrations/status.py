"""What is installed of fleetd's hooks, and whether it is of this installation; changes nothing."""

from pathlib import Path

from fleetd.protocol.errors import InvalidState

from . import config_file, hooks, opencode
from .hook_command import Installation, enforces
from .hook_plan import complaints
from .registry import OPENCODE, Harness
from .versions import installable


class State:
    """How a harness stands; ``installed`` is yes, partly, no, or unknown with a ``problem``."""

    def __init__(self, *, harness: str, here: bool, executable: str | None, file: str) -> None:
        self.harness = harness
        self.here = here
        self.executable = executable
        self.file = file
        self.installed = "no"
        self.events: list[str] = []
        self.missing: list[str] = []
        # What an installation of now would add to one of before that is whole.
        self.updates: list[str] = []
        self.commands: list[str] = []
        # Whether every command is the one that this installation would write.
        self.current = False
        self.enforce_locks = False
        self.problem = ""


def state(harness: Harness, project: Path | None, installation: Installation) -> State:
    """Look at a harness's settings."""
    file = harness.settings_file(project)
    seen = State(
        harness=harness.name,
        here=harness.is_here(),
        executable=harness.executable(),
        file=str(file),
    )
    try:
        found = config_file.read(file, project=project)
        if harness is OPENCODE:
            _look_at_plugin(seen, found)
        else:
            _look_at_settings(seen, harness, found, installation)
    except InvalidState as error:
        seen.installed, seen.problem = "unknown", error.message
    return seen


def _look_at_plugin(seen: State, file: config_file.SettingsFile) -> None:
    if opencode.is_ours(file):
        seen.installed = "yes"
        seen.current = file.data == opencode.content(file, enforce=None)
        seen.enforce_locks = opencode.enforces(file)


def _look_at_settings(
    seen: State, harness: Harness, file: config_file.SettingsFile, installation: Installation
) -> None:
    with complaints(file):
        ours = hooks.found(file.text or "", harness)
    if not ours:
        return
    seen.events = list(dict.fromkeys(each.event for each in ours))
    seen.commands = list(dict.fromkeys(each.command for each in ours))
    seen.enforce_locks = any(map(enforces, seen.commands))
    events, _said = installable(harness, set(seen.events))
    absent = [event for event in events if event.name not in seen.events]
    seen.missing = [event.name for event in absent if not event.later]
    seen.updates = [event.name for event in absent if event.later]
    seen.installed = "partly" if seen.missing else "yes"
    expected = {
        event.name: installation.command(harness, event, enforce=seen.enforce_locks)
        for event in harness.events
    }
    seen.current = all(expected.get(each.event) == each.command for each in ours)
