"""What installing and uninstalling the server would do to a settings file; must not print."""

from pathlib import Path
from types import ModuleType

from fleetd.protocol.errors import InvalidState

from . import config_file, mcp_json, mcp_toml, settings_backups
from .hook_plan import Change, checked, complaints
from .jsonc import is_plain
from .mcp_locations import NAME, Command, Place, is_ours

BACKUP = ".before-fleet-mcp"


class State:
    """How a CLI's settings stand; ``installed`` is yes, no, other, or unknown with a problem."""

    def __init__(self, place: Place, file: Path) -> None:
        self.harness = place.harness.name
        self.here = place.harness.is_here()
        self.file = str(file)
        self.installed = "no"
        # Whether the entry is the one that this installation would write.
        self.current = False
        self.command = ""
        self.problem = ""


def installing(place: Place, project: Path | None, command: Command) -> Change:
    """Return what installing would change; raises InvalidState for a file that must stay."""
    file = config_file.read(place.settings_file(project), BACKUP, project)
    text, form = _text(file), _form(place)
    with complaints(file):
        known = form.found(text, place.section, NAME)
        _refuse_others(file, known)
        after = form.put_in(text, place.section, NAME, place.entry(command))
    change = Change(
        place.harness,
        file,
        after.encode(),
        notes=_notes(place, project, after),
        ours_before=known is not None,
    )
    return checked(change)


def uninstalling(place: Place, project: Path | None) -> Change:
    """Return what uninstalling would change; raises InvalidState for a file it cannot read."""
    file = config_file.read(place.settings_file(project), BACKUP, project)
    text, form = _text(file), _form(place)
    with complaints(file):
        if not is_ours(form.found(text, place.section, NAME)):
            return Change(place.harness, file, file.data)
        left = form.take_out(text, place.section, NAME, settings_backups.text(file))
    return checked(Change(place.harness, file, None if left is None else left.encode()))


def look(place: Place, project: Path | None, command: Command) -> State:
    """Look at a CLI's settings."""
    path = place.settings_file(project)
    seen, form = State(place, path), _form(place)
    try:
        file = config_file.read(path, BACKUP, project)
        with complaints(file):
            entry = form.found(_text(file), place.section, NAME)
    except InvalidState as error:
        seen.installed, seen.problem = "unknown", error.message
        return seen
    if entry is None:
        return seen
    seen.installed = "yes" if is_ours(entry) else "other"
    if isinstance(entry, dict):
        words = entry.get("command")
        line = words if isinstance(words, list) else [words, *(entry.get("args") or ())]
        seen.command = " ".join(map(str, line))
        wanted = place.entry(command)
        seen.current = all(entry.get(key) == value for key, value in wanted.items())
    return seen


def _form(place: Place) -> ModuleType:
    return mcp_toml if place.toml else mcp_json


def _text(file: config_file.SettingsFile) -> str:
    return file.text or ""


def _refuse_others(file: config_file.SettingsFile, entry: object) -> None:
    if entry is not None and not is_ours(entry):
        raise InvalidState(
            f"{file.path} has a server named {NAME} already, and it is not fleetd's.",
            hint="Rename it there, then try again. Nothing was changed.",
        )


def _notes(place: Place, project: Path | None, after: str) -> list[str]:
    notes = []
    if not place.harness.is_here():
        notes.append(
            f"{place.harness.title} was not found on this machine; the server waits for it."
        )
    if project is not None:
        notes.append(f"{place.project_file} names paths of this machine: keep it out of commits.")
    if place.harness.plain_json and not place.toml and not is_plain(after):
        notes.append(f"{place.harness.title} reads no comments: as it is, it ignores the file.")
    if place.note:
        notes.append(place.note)
    return notes
