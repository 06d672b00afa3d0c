"""Registry of agent CLIs: how to find each, where its settings are, and what goes into them.

This is the only module to change when a vendor changes its format.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from .installation import run_program

# Syntax that only a shell understands. Every shell command of ours ends with some of it.
_SHELLS_MARKS = ("2>", "||", ";")

# Session IDs: no leading dash, which would make it an option, and no shell syntax.
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", re.ASCII)
# Gemini CLI reads a number as a position in its list, and "latest" as the newest session.
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)
_SES = re.compile(r"ses_[A-Za-z0-9]{1,124}", re.ASCII)

# The hook's own timeout is 1 s, or 5 s before a compaction.
SOON_S = 5
# The maximum that Codex allows for Interrupt and SessionEnd; it warns about more.
AT_THE_END_S = 3
BEFORE_COMPACTION_S = 10

# Variables that an MCP server needs to find the daemon and its agent. Some CLIs pass on only some.
PASSED_ON = ("FLEET_AGENT_ID", "FLEET_SOCKET", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")


class HookEvent(NamedTuple):
    """An event with a hook; the client gets ``word`` where the payload does not name the event.

    ``later`` marks an event that an earlier fleetd did not install: hooks without it are complete,
    but old. For an ``unspooled`` event only the immediate answer matters: it is not kept for a
    daemon that is away.
    """

    name: str
    timeout_s: int = SOON_S
    background: bool = False
    word: str = ""
    later: bool = False
    unspooled: bool = False


class ServerCommand(NamedTuple):
    """The command that starts the MCP server of this installation."""

    program: str
    args: tuple[str, ...]
    env: Mapping[str, str] = {}


class McpSettings(NamedTuple):
    """An agent CLI's settings for MCP servers: where they are, and how to write one."""

    file: Callable[[], Path]
    project_file: str
    section: str
    entry: Callable[[ServerCommand], dict[str, Any]]
    toml: bool = False
    # What the user also has to know or do.
    note: str = ""

    def settings_file(self, project: Path | None) -> Path:
        """Return the settings file of a project, or of the user."""
        return self.file() if project is None else project / self.project_file


class Harness(NamedTuple):
    """An agent CLI: how to find it, where its settings are, and what goes into them."""

    name: str
    title: str
    executables: tuple[str, ...]
    directory: Callable[[], Path]
    file: str
    project_file: str
    mcp: McpSettings
    events: tuple[HookEvent, ...] = ()
    entry: Callable[[str, HookEvent], dict[str, Any]] = lambda _command, _event: {}
    # The member of the settings that contains the events.
    section: str = "hooks"
    # The member of a hook that contains the command.
    command_key: str = "command"
    # Whether an event's items hold lists of hooks, or are hooks themselves; None for both.
    grouped: bool | None = True
    version: int | None = None
    ending: str = "2>/dev/null || true"
    # Whether comments or trailing commas make it ignore the whole file.
    plain_json: bool = False
    enforces_at: str | None = None
    trust: str = ""
    # For executables older than this, only the first ``always`` events can be installed.
    tolerant_since: tuple[int, ...] = ()
    always: int = 0
    # From this version on, hooks are started without a shell, with their arguments in "args".
    direct_since: tuple[int, ...] = ()
    # The arguments that resume a session; {} is its ID.
    resume: tuple[str, ...] = ()
    # The arguments that start a session with a first prompt, and stay in it. {} is the prompt,
    # which may begin with a dash.
    begin: tuple[str, ...] = ()
    # The form of its session IDs. Nothing else gets into a command.
    session_id: re.Pattern[str] = _TOKEN

    def user_file(self) -> Path:
        """Return the settings file that applies to every project of this user."""
        return self.directory() / self.file

    def settings_file(self, project: Path | None) -> Path:
        """Return the settings file of a project, or of the user."""
        return self.user_file() if project is None else project / self.project_file

    def executable(self) -> str | None:
        """Return the path of the executable; None when it is not on the PATH."""
        return next(filter(None, map(shutil.which, self.executables)), None)

    def is_here(self) -> bool:
        """Return whether this machine has the harness, as far as one can see."""
        return self.executable() is not None or self.directory().is_dir()


def _home(variable: str, *default: str) -> Callable[[], Path]:
    """Return a function for a harness's directory: from a variable, else below the home."""

    def directory() -> Path:
        value = os.environ.get(variable)
        return Path(value).expanduser() if value else Path.home().joinpath(*default)

    return directory


def _gemini_home() -> Path:
    return Path(os.environ.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini"


def _antigravity_home() -> Path:
    return Path.home() / ".gemini" / "config"


def _opencode_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"


def _in_group(command: str, event: HookEvent) -> dict[str, Any]:
    program, args = in_parts(command)
    direct = {} if args is None else {"args": args}
    hook = {"type": "command", "command": program} | direct | {"timeout": event.timeout_s}
    if event.background:
        hook["async"] = True
    return {"hooks": [hook]}


def in_parts(command: str) -> tuple[str, list[str] | None]:
    """Return a command's program and arguments; for one that needs a shell, itself and None."""
    if any(mark in command for mark in _SHELLS_MARKS):
        return command, None
    program, *args = shlex.split(command)
    return program, args


def _named_in_ms(command: str, event: HookEvent) -> dict[str, Any]:
    timeout = event.timeout_s * 1_000
    hook = {"name": "fleetd", "type": "command", "command": command, "timeout": timeout}
    return {"hooks": [hook]}


def _flat(command: str, event: HookEvent) -> dict[str, Any]:
    return {"command": command, "timeout": event.timeout_s}


def _flat_bash(command: str, event: HookEvent) -> dict[str, Any]:
    return {"type": "command", "bash": command, "timeoutSec": event.timeout_s}


def _of_antigravity(command: str, event: HookEvent) -> dict[str, Any]:
    hook = {"type": "command", "command": command, "timeout": event.timeout_s}
    return {"matcher": "*", "hooks": [hook]} if event.name == "PostToolUse" else hook


def _in(directory: Callable[[], Path], *names: str) -> Callable[[], Path]:
    """Return a function for the first of these files that exists in a directory, else the last."""

    def file() -> Path:
        places = [directory() / name for name in names]
        return next((each for each in places if each.exists()), places[-1])

    return file


def _stdio(command: ServerCommand) -> dict[str, Any]:
    env = {"env": dict(command.env)} if command.env else {}
    return {"type": "stdio", "command": command.program, "args": list(command.args)} | env


def _plain(command: ServerCommand) -> dict[str, Any]:
    return {key: value for key, value in _stdio(command).items() if key != "type"}


def _listed(command: ServerCommand) -> dict[str, Any]:
    env = {"environment": dict(command.env)} if command.env else {}
    return {"type": "local", "command": [command.program, *command.args], "enabled": True} | env


def _with_tools(command: ServerCommand) -> dict[str, Any]:
    return _stdio(command) | {"type": "local", "tools": ["*"]}


def _in_toml(command: ServerCommand) -> dict[str, Any]:
    passed = [name for name in PASSED_ON if name not in command.env]
    return _plain(command) | {"env_vars": passed}


def _events(*names: str, words: bool = False) -> tuple[HookEvent, ...]:
    return tuple(HookEvent(name, word=name if words else "") for name in names)


def _compaction(name: str, *, words: bool = False) -> HookEvent:
    return HookEvent(name, timeout_s=BEFORE_COMPACTION_S, word=name if words else "")


CLAUDE = Harness(
    name="claude",
    resume=("--resume", "{}"),
    begin=("--", "{}"),
    title="Claude Code",
    executables=("claude",),
    directory=_home("CLAUDE_CONFIG_DIR", ".claude"),
    file="settings.json",
    # The local file, which is not committed: the command names paths of this machine.
    project_file=".claude/settings.local.json",
    mcp=McpSettings(
        _in(_home("CLAUDE_CONFIG_DIR"), ".claude.json"),
        ".mcp.json",
        "mcpServers",
        _stdio,
        note="Claude Code asks before each tool; to allow all: mcp__fleet in /permissions.",
    ),
    # Not in the background: the order of tool calls, plans and checkpoints matters, and the
    # answer of PostToolUse must reach the model immediately.
    events=(
        *_events("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
        _compaction("PreCompact"),
        *_events("Stop", "SubagentStop"),
        HookEvent("Notification", background=True),
        *_events("SessionEnd", "PostToolUseFailure", "PostCompact", "StopFailure"),
        *_events("SubagentStart", "TaskCreated", "TaskCompleted", "TeammateIdle"),
        HookEvent("PermissionRequest", later=True),
        HookEvent("CwdChanged", later=True),
        HookEvent("PermissionDenied", later=True),
        HookEvent("Elicitation", later=True),
        HookEvent("ElicitationResult", later=True),
    ),
    plain_json=True,
    # Older builds ignore the whole settings file for one event that they do not know.
    tolerant_since=(2, 1, 101),
    always=9,
    direct_since=(2, 1, 330),
    entry=_in_group,
    enforces_at="PreToolUse",
)
CODEX = Harness(
    name="codex",
    resume=("resume", "{}"),
    begin=("--", "{}"),
    title="Codex CLI",
    executables=("codex",),
    directory=_home("CODEX_HOME", ".codex"),
    file="hooks.json",
    project_file=".codex/hooks.json",
    mcp=McpSettings(
        _in(_home("CODEX_HOME", ".codex"), "config.toml"),
        ".codex/config.toml",
        "mcp_servers",
        _in_toml,
        toml=True,
    ),
    events=(
        *_events("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
        _compaction("PreCompact"),
        *_events("PostCompact", "SubagentStart", "SubagentStop", "Stop"),
        HookEvent("Interrupt", timeout_s=AT_THE_END_S),
        HookEvent("SessionEnd", timeout_s=AT_THE_END_S),
        # Last: Codex trusts hooks by their position.
        HookEvent("PermissionRequest", later=True),
    ),
    plain_json=True,
    entry=_in_group,
    enforces_at="PreToolUse",
    trust="Codex runs no hook that you have not trusted: start codex, type /hooks, and trust "
    "those of fleetd.",
)
GEMINI = Harness(
    name="gemini",
    resume=("--resume", "{}"),
    begin=("--prompt-interactive={}",),
    session_id=_UUID,
    title="Gemini CLI",
    executables=("gemini",),
    directory=_gemini_home,
    file="settings.json",
    project_file=".gemini/settings.json",
    mcp=McpSettings(
        _in(_gemini_home, "settings.json"),
        ".gemini/settings.json",
        "mcpServers",
        _plain,
        note="Gemini CLI starts no servers in a folder that it does not trust: /permissions.",
    ),
    events=(
        *_events("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"),
        _compaction("PreCompress"),
        HookEvent("SessionEnd"),
        HookEvent("Notification", later=True),
        HookEvent("BeforeModel", later=True, unspooled=True),
    ),
    entry=_named_in_ms,
    ending="2>/dev/null; exit 0",
    enforces_at="BeforeTool",
    trust="Gemini CLI runs no hooks in a folder that it does not trust: /permissions shows and "
    "changes that.",
)
OPENCODE = Harness(
    name="opencode",
    resume=("-s", "{}"),
    begin=("--prompt={}",),
    session_id=_SES,
    title="OpenCode",
    executables=("opencode",),
    directory=_opencode_home,
    file="plugins/fleet.js",
    project_file=".opencode/plugins/fleet.js",
    mcp=McpSettings(
        _in(_opencode_home, "opencode.jsonc", "opencode.json"), "opencode.json", "mcp", _listed
    ),
    enforces_at="tool.execute.before",
)
CURSOR = Harness(
    name="cursor",
    resume=("--resume", "{}"),
    begin=("--", "{}"),
    title="Cursor",
    executables=("cursor-agent", "cursor"),
    directory=_home("", ".cursor"),
    file="hooks.json",
    project_file=".cursor/hooks.json",
    mcp=McpSettings(
        _in(_home("", ".cursor"), "mcp.json"), ".cursor/mcp.json", "mcpServers", _plain
    ),
    # One name that Cursor does not know would make it ignore the whole file. postToolUse reports
    # edits, so afterFileEdit would report each one twice.
    events=(
        *_events("sessionStart", "beforeSubmitPrompt", "postToolUse", "postToolUseFailure"),
        _compaction("preCompact"),
        *_events("stop", "sessionEnd"),
    ),
    entry=_flat,
    grouped=False,
    version=1,
)
COPILOT = Harness(
    name="copilot",
    resume=("--resume={}",),
    begin=("--interactive={}",),
    title="Copilot CLI",
    executables=("copilot",),
    directory=_home("COPILOT_HOME", ".copilot"),
    file="hooks/fleet.json",
    project_file=".github/hooks/fleet.json",
    mcp=McpSettings(
        _in(_home("COPILOT_HOME", ".copilot"), "mcp-config.json"),
        ".mcp.json",
        "mcpServers",
        _with_tools,
    ),
    # Never preToolUse: a hook that fails there denies the tool.
    events=(
        *_events("sessionStart", "userPromptSubmitted", "postToolUse", words=True),
        *_events("postToolUseFailure", words=True),
        _compaction("preCompact", words=True),
        *_events("agentStop", "subagentStart", "subagentStop", words=True),
        *_events("errorOccurred", "sessionEnd", words=True),
        HookEvent("notification", word="notification", later=True),
        HookEvent("permissionRequest", word="permissionRequest", later=True),
    ),
    entry=_flat_bash,
    command_key="bash",
    grouped=False,
    version=1,
)
ANTIGRAVITY = Harness(
    name="antigravity",
    resume=("--conversation", "{}"),
    title="Antigravity CLI",
    executables=("agy",),
    directory=_antigravity_home,
    file="hooks.json",
    project_file=".agents/hooks.json",
    mcp=McpSettings(
        _in(_antigravity_home, "mcp_config.json"), ".agents/mcp_config.json", "mcpServers", _plain
    ),
    # Antigravity silently drops the whole file for a name that it does not document. Never
    # PreToolUse: there an answer without a decision denies the tool.
    events=_events("PreInvocation", "PostToolUse", "Stop", words=True),
    plain_json=True,
    section="fleetd",
    entry=_of_antigravity,
    ending="2>/dev/null || echo {}",
    grouped=None,
)
HARNESSES = {
    each.name: each for each in (CLAUDE, CODEX, GEMINI, OPENCODE, CURSOR, COPILOT, ANTIGRAVITY)
}


ANSWER_S = 10
_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\b")


def installable(harness: Harness, present: Set[str]) -> tuple[list[HookEvent], list[str]]:
    """Return the events to install, and a note if some are left out.

    ``present`` are the installed events, which stay.
    """
    events = list(harness.events)
    version = _version(harness) if harness.tolerant_since else None
    if not harness.tolerant_since or (version and version >= harness.tolerant_since):
        return events, []
    known = [e for at, e in enumerate(events) if at < harness.always or e.name in present]
    left_out = ", ".join(event.name for event in events if event not in known)
    if not left_out:
        return known, []
    since = ".".join(map(str, harness.tolerant_since))
    found = "could not be found out" if version is None else f"is {'.'.join(map(str, version))}"
    note = (
        f"The version of {harness.title} {found}; before {since} these events could make it "
        f"ignore the file, so they were left out: {left_out}. Install again after an upgrade."
    )
    return known, [note]


def runs_directly(harness: Harness, *, known: bool) -> bool:
    """Return whether hooks are started without a shell.

    ``known`` means that some are: they stay so where the version is unknown.
    """
    if not harness.direct_since:
        return False
    version = _version(harness)
    return known if version is None else version >= harness.direct_since


def _version(harness: Harness) -> tuple[int, ...] | None:
    executable = harness.executable()
    text = None if executable is None else version_text(executable)
    return None if text is None else tuple(map(int, _VERSION.findall(text)[0]))


def version_text(executable: str) -> str | None:
    """Return the version that a program prints, such as ``2.1.330``; None without one."""
    try:
        answer = run_program([executable, "--version"], timeout_s=ANSWER_S).stdout
    except OSError:
        return None
    found = _VERSION.search(answer)
    return found[0] if found else None
