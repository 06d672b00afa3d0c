"""Plan of hooks: what installing and uninstalling would change, and how to apply it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState

from . import config_file, launcher, settings_backups
from .hook_command import (
    AUTO,
    ENFORCE,
    Installation,
    is_plugin,
    lock_words,
    plugin_path,
    plugin_text,
    wanted_words,
)
from .hooks import UnusableSettings, found, put_in, take_out
from .jsonc import is_plain
from .registry import OPENCODE, Harness, installable, runs_directly


class PlannedChange(NamedTuple):
    """A file and its planned content; ``after`` is None when the file is to be removed."""

    harness: Harness
    file: config_file.SettingsFile
    after: bytes | None
    events: Sequence[str] = ()
    notes: Sequence[str] = ()
    # Whether the file already contains our hooks: its backup then holds the state before them.
    ours_before: bool = False
    # The source of a file that is installed or removed as a whole.
    whole: str = ""
    # What the user has to know before anything is written there.
    remarks: Sequence[str] = ()
    # What only the user can do, and must do before the hooks work.
    todo: Sequence[str] = ()
    # The wanted text of the launcher, if the hooks have one.
    launcher: str = ""

    @property
    def all_notes(self) -> list[str]:
        """Return everything that the user has to know, the most urgent last."""
        return [*self.remarks, *self.notes, *self.todo]

    @property
    def changes(self) -> bool:
        """Return whether there is anything to do."""
        stale = bool(self.launcher) and not launcher.is_current(self.launcher)
        return stale or self.after != self.file.data

    def diff(self) -> Iterator[str]:
        """Yield the lines of the change in the format of ``diff -u``."""
        return self.file.diff(self.after, self.whole)

    def install(self) -> Path | None:
        """Write the file and return where its copy is; None when there was nothing to copy."""
        if self.launcher:
            launcher.write(self.launcher)
        if self.after == self.file.data:
            return None
        if self.ours_before:
            config_file.write(self.file, self.after)
            return None
        return settings_backups.replace(self.file, self.after)

    def uninstall(self) -> None:
        """Write or remove the file, and remove its copy, so that nothing of ours is left."""
        config_file.write(self.file, self.after)
        settings_backups.remove(self.file)


def plan_install(
    harness: Harness,
    project: Path | None,
    installation: Installation,
    choices: Mapping[str, bool | None] = MappingProxyType({}),
) -> PlannedChange:
    """Return what installing would change; raises InvalidState for a file that must not be touched.

    ``choices`` maps each of ``LOCK_WORDS`` to whether it is wanted; None leaves it unchanged.
    """
    file = config_file.read(harness.settings_file(project), project=project)
    notes = _notes(harness, project, choices)
    if harness is OPENCODE:
        todo = []
        after, whole = plugin_text(file, choices), str(plugin_path())
        if installation.assignments:
            todo.append(f"Set this in OpenCode's own environment: {installation.assignments}")
        change = PlannedChange(harness, file, after, notes=notes, ours_before=True, whole=whole)
        return checked(change._replace(todo=todo))
    with complaints(file):
        text = file.text or ""
        ours = found(text, harness)
        now = frozenset[str]().union(*(lock_words(each.command) for each in ours))
        words = wanted_words(now, choices)
        events, warnings = installable(harness, {each.event for each in ours})
        direct = runs_directly(harness, known=any(each.args for each in ours))
        wanted = [
            (event, installation.command(harness, event, words=words, direct=direct))
            for event in events
        ]
        after = put_in(text, harness, wanted).encode()
    names = [event.name for event in events]
    if harness.plain_json and not is_plain(after.decode()):
        warnings.append(
            f"{harness.title} reads neither comments nor trailing commas, and now ignores "
            "the whole file."
        )
    change = PlannedChange(harness, file, after, names, [*warnings, *notes], ours_before=bool(ours))
    todo = [harness.trust] if harness.trust else []
    return checked(change._replace(todo=todo, launcher=installation.launcher_text))


def plan_uninstall(harness: Harness, project: Path | None) -> PlannedChange:
    """Return what uninstalling would change; raises InvalidState for a file it cannot read."""
    file = config_file.read(harness.settings_file(project), project=project)
    if harness is OPENCODE:
        after = None if is_plugin(file) else file.data
        return checked(PlannedChange(harness, file, after, whole=str(plugin_path())))
    with complaints(file):
        ours = found(file.text or "", harness)
        if not ours:
            return PlannedChange(harness, file, file.data)
        left = take_out(file.text or "", harness, settings_backups.text(file))
    after = None if left is None else left.encode()
    return checked(PlannedChange(harness, file, after, list(dict.fromkeys(e.event for e in ours))))


def checked(change: PlannedChange) -> PlannedChange:
    """Return a change with the remarks on its file; raises InvalidState if it is read-only."""
    if change.after == change.file.data:
        return change
    config_file.check_writable(change.file)
    return change._replace(remarks=change.file.remarks)


@contextmanager
def complaints(file: config_file.SettingsFile) -> Iterator[None]:
    """Turn an error in a text into one that names the file."""
    try:
        yield
    except (UnusableSettings, ValueError) as error:
        raise InvalidState(
            f"{file.path} cannot be understood: {error}.",
            hint="Correct the file, then try again. Nothing was changed in it.",
            file=str(file.path),
        ) from error


def _notes(harness: Harness, project: Path | None, choices: Mapping[str, bool | None]) -> list[str]:
    notes = []
    if not harness.is_here():
        notes.append(f"{harness.title} was not found on this machine; the hooks wait for it.")
    if choices.get(AUTO) and not harness.enforces_at:
        notes.append(
            f"{harness.title} has no hook before an edit: with locks.automatic = true in fleetd's"
            " configuration, edits take locks when they are done."
        )
    if choices.get(ENFORCE) and not harness.enforces_at:
        notes.append(
            f"{harness.title} denies no edits for fleetd: its hook for that could block tools by"
            " mistake. Its hooks are set up without --enforce-locks."
        )
    if project is not None and not harness.project_file.endswith(".local.json"):
        notes.append(f"{harness.project_file} names paths of this machine: keep it out of commits.")
    return notes
