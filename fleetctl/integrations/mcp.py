"""The MCP server in an agent CLI's settings: its command, installation, removal and status."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fleetd.protocol.errors import InvalidState

from . import config_file, mcp_json, mcp_toml, settings_backups
from .hook_plan import PlannedChange, checked, complaints
from .installation import configured_socket, this_interpreter
from .jsonc import is_plain
from .registry import Harness, McpSettings, ServerCommand

NAME = "fleet"
LAUNCHER = "mcp_main.py"
BACKUP = ".before-fleet-mcp"


def this_command() -> ServerCommand:
    """Return the command that starts this installation's server; raises InvalidState."""
    launcher = Path(__file__).absolute().parent.parent / LAUNCHER
    # Agent CLIs pass no other variables on to the server.
    kept = ("HOME", "XDG_RUNTIME_DIR")
    socket = configured_socket({name: os.environ[name] for name in kept if name in os.environ})
    variables = {} if socket is None else {"FLEET_SOCKET": str(socket)}
    program = this_interpreter("setting")
    return ServerCommand(program, (_isolation(launcher), str(launcher)), variables)


def _isolation(launcher: Path) -> str:
    """Return the option that keeps a project's modules out.

    The option that also ignores its variables would hide packages installed with ``--user``.
    """
    # Imported here: commands that only read do not need it.
    import site

    own = Path(site.getusersitepackages())
    return "-P" if own in launcher.parents else "-I"


def is_ours(entry: object) -> bool:
    """Return whether an entry starts our server, from any installation."""
    if not isinstance(entry, dict):
        return False
    texts = [each for each in _words(entry) if isinstance(each, str)]
    if any(each.endswith(f"/fleetctl/{LAUNCHER}") for each in texts):
        return True
    names = [each.rpartition("/")[2] for each in texts[:1]]
    return names in (["fleetctl"], ["fleet"]) and texts[1:2] == ["mcp"]


def _words(entry: dict[str, Any]) -> list[Any]:
    words = entry.get("command")
    return words if isinstance(words, list) else [words, *(entry.get("args") or ())]


@dataclass
class McpStatus:
    """A CLI's MCP settings; ``installed`` is yes, no, other, or unknown with a problem."""

    harness: str
    # Whether its program or its directory is on this machine.
    here: bool
    file: str
    installed: str = "no"
    # Whether the entry is the one that this installation would write.
    current: bool = False
    command: str = ""
    problem: str = ""


def plan_install(harness: Harness, project: Path | None, command: ServerCommand) -> PlannedChange:
    """Return what installing would change; raises InvalidState for a file that must not change."""
    file = config_file.read(harness.mcp.settings_file(project), BACKUP, project)
    text, form = file.text or "", _form(harness.mcp)
    with complaints(file):
        known = form.found(text, harness.mcp.section, NAME)
        if known is not None and not is_ours(known):
            raise InvalidState(
                f"{file.path} has a server named {NAME} already, and it is not fleetd's.",
                hint="Rename it there, then try again. Nothing was changed.",
            )
        after = form.put_in(text, harness.mcp.section, NAME, harness.mcp.entry(command))
    notes = _notes(harness, project, after)
    change = PlannedChange(
        harness, file, after.encode(), notes=notes, ours_before=known is not None
    )
    return checked(change._replace(todo=[harness.mcp.note] if harness.mcp.note else []))


def plan_uninstall(harness: Harness, project: Path | None) -> PlannedChange:
    """Return what uninstalling would change; raises InvalidState for a file it cannot read."""
    file = config_file.read(harness.mcp.settings_file(project), BACKUP, project)
    text, form = file.text or "", _form(harness.mcp)
    with complaints(file):
        if not is_ours(form.found(text, harness.mcp.section, NAME)):
            return PlannedChange(harness, file, file.data)
        left = form.take_out(text, harness.mcp.section, NAME, settings_backups.text(file))
    return checked(PlannedChange(harness, file, None if left is None else left.encode()))


def look(harness: Harness, project: Path | None, command: ServerCommand) -> McpStatus:
    """Look at a CLI's settings."""
    path = harness.mcp.settings_file(project)
    seen, form = (
        McpStatus(harness.name, harness.is_here(), str(path)),
        _form(harness.mcp),
    )
    try:
        file = config_file.read(path, BACKUP, project)
        with complaints(file):
            entry = form.found(file.text or "", harness.mcp.section, NAME)
    except InvalidState as error:
        seen.installed, seen.problem = "unknown", error.message
        return seen
    if entry is None:
        return seen
    seen.installed = "yes" if is_ours(entry) else "other"
    if isinstance(entry, dict):
        seen.command = " ".join(map(str, _words(entry)))
        wanted = harness.mcp.entry(command)
        seen.current = all(entry.get(key) == value for key, value in wanted.items())
    return seen


def _form(settings: McpSettings) -> ModuleType:
    return mcp_toml if settings.toml else mcp_json


def _notes(harness: Harness, project: Path | None, after: str) -> list[str]:
    notes = []
    if not harness.is_here():
        notes.append(f"{harness.title} was not found on this machine; the server waits for it.")
    if project is not None:
        notes.append(
            f"{harness.mcp.project_file} names paths of this machine: keep it out of commits."
        )
    if harness.plain_json and not harness.mcp.toml and not is_plain(after):
        notes.append(f"{harness.title} reads no comments, and now ignores the file.")
    return notes
