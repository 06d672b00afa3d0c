"""Where each agent CLI keeps its servers of tools, and how it wants one written; edits nothing.

The one place to change when a vendor changes its format.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fleetd.host import paths
from fleetd.protocol.errors import InvalidState

from . import registry
from .hook_command import steady_interpreter
from .registry import Env, Harness

NAME = "fleet"
LAUNCHER = "mcp_main.py"
# What a server needs to find the daemon and its agent, where a CLI does not hand everything on.
PASSED_ON = ("FLEET_AGENT_ID", "FLEET_SOCKET", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")


class Command(NamedTuple):
    """How the server of this installation is started."""

    program: str
    args: tuple[str, ...]
    env: Mapping[str, str] = {}


class Place(NamedTuple):
    """An agent CLI's settings for servers of tools."""

    harness: Harness
    file: Callable[[Env], Path]
    project_file: str
    section: str
    entry: Callable[[Command], dict[str, Any]]
    toml: bool = False
    # What the person has to know or do beside it.
    note: str = ""

    def settings_file(self, project: Path | None) -> Path:
        """Return the settings file of a project, or of the user."""
        return self.file(os.environ) if project is None else project / self.project_file


def this_command() -> Command:
    """Return how the server of this installation is started; raises InvalidState."""
    if not sys.executable:
        raise InvalidState(
            "This Python does not know its own executable, so no setting could name it.",
            hint="Run fleetctl with a Python that was installed as a program.",
        )
    launcher = Path(__file__).absolute().parent.parent / LAUNCHER
    program = steady_interpreter(Path(sys.executable))
    return Command(program, (_isolation(launcher), str(launcher)), _variables())


def _isolation(launcher: Path) -> str:
    """Return the option that keeps a project's modules out.

    The one that keeps its variables out as well would hide what was installed with ``--user``.
    """
    # Imported here: who only looks needs it not.
    import site

    own = Path(site.getusersitepackages())
    return "-P" if own in launcher.parents else "-I"


def _variables() -> dict[str, str]:
    """Return what the server must be told, because agent CLIs keep variables from it."""
    # Imported here: who only looks needs no settings.
    from fleetd.config import ConfigError, load

    try:
        configured = load().config.socket
    except ConfigError as error:
        raise InvalidState(str(error), hint="Correct the value, then try again.") from error
    kept = ("HOME", "XDG_RUNTIME_DIR")
    untold = {name: value for name, value in os.environ.items() if name in kept}
    return {} if configured == paths.socket_path(untold) else {"FLEET_SOCKET": str(configured)}


def is_ours(entry: object) -> bool:
    """Return whether an entry starts our server, of whatever installation."""
    if not isinstance(entry, dict):
        return False
    words = entry.get("command")
    line = words if isinstance(words, list) else [words, *(entry.get("args") or ())]
    texts = [each for each in line if isinstance(each, str)]
    if any(each.endswith(f"/fleetctl/{LAUNCHER}") for each in texts):
        return True
    names = [each.rpartition("/")[2] for each in texts[:1]]
    return names in (["fleetctl"], ["fleet"]) and texts[1:2] == ["mcp"]


def _claude_file(env: Env) -> Path:
    directory = env.get("CLAUDE_CONFIG_DIR")
    return (Path(directory).expanduser() if directory else Path.home()) / ".claude.json"


def _in(harness: Harness, *names: str) -> Callable[[Env], Path]:
    """Return the first of these files in a harness's directory that is there, else the last."""

    def file(env: Env) -> Path:
        places = [harness.directory(env) / name for name in names]
        return next((each for each in places if each.exists()), places[-1])

    return file


def _stdio(command: Command) -> dict[str, Any]:
    env = {"env": dict(command.env)} if command.env else {}
    return {"type": "stdio", "command": command.program, "args": list(command.args)} | env


def _plain(command: Command) -> dict[str, Any]:
    return {key: value for key, value in _stdio(command).items() if key != "type"}


def _listed(command: Command) -> dict[str, Any]:
    env = {"environment": dict(command.env)} if command.env else {}
    return {"type": "local", "command": [command.program, *command.args], "enabled": True} | env


def _with_tools(command: Command) -> dict[str, Any]:
    return _stdio(command) | {"type": "local", "tools": ["*"]}


def _in_toml(command: Command) -> dict[str, Any]:
    passed = [name for name in PASSED_ON if name not in command.env]
    return _plain(command) | {"env_vars": passed}


_SHARED = "{file} names paths of this machine: keep it out of commits."
PLACES = {
    each.harness.name: each
    for each in (
        Place(
            registry.CLAUDE,
            _claude_file,
            ".mcp.json",
            "mcpServers",
            _stdio,
            note="Claude Code asks before each tool; to allow all: mcp__fleet in /permissions.",
        ),
        Place(
            registry.CODEX,
            _in(registry.CODEX, "config.toml"),
            ".codex/config.toml",
            "mcp_servers",
            _in_toml,
            toml=True,
        ),
        Place(
            registry.GEMINI,
            _in(registry.GEMINI, "settings.json"),
            ".gemini/settings.json",
            "mcpServers",
            _plain,
            note="Gemini CLI starts no servers in a folder that it does not trust: /permissions.",
        ),
        Place(
            registry.OPENCODE,
            _in(registry.OPENCODE, "opencode.jsonc", "opencode.json"),
            "opencode.json",
            "mcp",
            _listed,
        ),
        Place(
            registry.CURSOR,
            _in(registry.CURSOR, "mcp.json"),
            ".cursor/mcp.json",
            "mcpServers",
            _plain,
        ),
        Place(
            registry.COPILOT,
            _in(registry.COPILOT, "mcp-config.json"),
            ".mcp.json",
            "mcpServers",
            _with_tools,
        ),
    )
}
