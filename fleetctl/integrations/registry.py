"""What each agent CLI wants in its hook settings, and where; must not read or write them.

The one place to change when a vendor changes its format.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# The hook itself gives up after 1 s, before a compaction after 5 s.
SOON_S = 5
# The most that Codex allows for these; it warns of more.
AT_THE_END_S = 3
BEFORE_COMPACTION_S = 10

Env = Mapping[str, str]


class Event(NamedTuple):
    """An event that is installed for; ``word`` goes to the client where the payload names none.

    ``later`` is one that an earlier fleetd did not install: hooks without it are whole, but old.
    """

    name: str
    timeout_s: int = SOON_S
    background: bool = False
    word: str = ""
    later: bool = False


class Harness(NamedTuple):
    """An agent CLI: how to find it, where its settings are, and what goes into them."""

    name: str
    title: str
    executables: tuple[str, ...]
    directory: Callable[[Env], Path]
    file: str
    project_file: str
    events: tuple[Event, ...] = ()
    entry: Callable[[str, Event], dict[str, Any]] = lambda _command, _event: {}
    # The members, from an event's item down, in which the command stands.
    command_key: str = "command"
    grouped: bool = True
    version: int | None = None
    ending: str = "2>/dev/null || true"
    # Whether comments or trailing commas make it ignore the whole file.
    plain_json: bool = False
    enforces_at: str | None = None
    trust: str = ""
    # Of executables older than this, only the first ``always`` events can be installed.
    tolerant_since: tuple[int, ...] = ()
    always: int = 0

    def user_file(self, env: Env = os.environ) -> Path:
        """Return the settings file that holds for every project of this user."""
        return self.directory(env) / self.file

    def settings_file(self, project: Path | None) -> Path:
        """Return the settings file of a project, or of the user."""
        return self.user_file() if project is None else project / self.project_file

    def executable(self) -> str | None:
        """Return the path of the executable; None when it is not on the PATH."""
        return next(filter(None, map(shutil.which, self.executables)), None)

    def is_here(self) -> bool:
        """Return whether this machine has the harness, as far as one can see."""
        return self.executable() is not None or self.directory(os.environ).is_dir()


def _home(variable: str, *default: str) -> Callable[[Env], Path]:
    """Return where a harness lives: what a variable names, else a directory of the home."""

    def directory(env: Env) -> Path:
        value = env.get(variable) if variable else ""
        return Path(value).expanduser() if value else Path.home().joinpath(*default)

    return directory


def _gemini_home(env: Env) -> Path:
    return Path(env.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini"


def _opencode_home(env: Env) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"


def _in_group(command: str, event: Event) -> dict[str, Any]:
    hook: dict[str, Any] = {"type": "command", "command": command, "timeout": event.timeout_s}
    if event.background:
        hook["async"] = True
    return {"hooks": [hook]}


def _named_in_ms(command: str, event: Event) -> dict[str, Any]:
    timeout = event.timeout_s * 1_000
    hook = {"name": "fleetd", "type": "command", "command": command, "timeout": timeout}
    return {"hooks": [hook]}


def _flat(command: str, event: Event) -> dict[str, Any]:
    return {"command": command, "timeout": event.timeout_s}


def _flat_bash(command: str, event: Event) -> dict[str, Any]:
    return {"type": "command", "bash": command, "timeoutSec": event.timeout_s}


def _events(*names: str, words: bool = False) -> tuple[Event, ...]:
    return tuple(Event(name, word=name if words else "") for name in names)


def _compaction(name: str, *, words: bool = False) -> Event:
    return Event(name, timeout_s=BEFORE_COMPACTION_S, word=name if words else "")


CLAUDE = Harness(
    name="claude",
    title="Claude Code",
    executables=("claude",),
    directory=_home("CLAUDE_CONFIG_DIR", ".claude"),
    file="settings.json",
    # The local file: the command names paths of this machine, and this one is not committed.
    project_file=".claude/settings.local.json",
    # Not in the background: the order of tool calls, plans and checkpoints is what counts, and
    # what PostToolUse answers must reach the model at once.
    events=(
        *_events("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
        _compaction("PreCompact"),
        *_events("Stop", "SubagentStop"),
        Event("Notification", background=True),
        *_events("SessionEnd", "PostToolUseFailure", "PostCompact", "StopFailure"),
        *_events("SubagentStart", "TaskCreated", "TaskCompleted", "TeammateIdle"),
        Event("PermissionRequest", later=True),
    ),
    plain_json=True,
    # Before, one event that a build does not know made it ignore the whole settings file.
    tolerant_since=(2, 1, 101),
    always=9,
    entry=_in_group,
    enforces_at="PreToolUse",
)
CODEX = Harness(
    name="codex",
    title="Codex CLI",
    executables=("codex",),
    directory=_home("CODEX_HOME", ".codex"),
    file="hooks.json",
    project_file=".codex/hooks.json",
    events=(
        *_events("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
        _compaction("PreCompact"),
        *_events("PostCompact", "SubagentStart", "SubagentStop", "Stop"),
        Event("Interrupt", timeout_s=AT_THE_END_S),
        Event("SessionEnd", timeout_s=AT_THE_END_S),
        # Last: trust belongs to a hook's place.
        Event("PermissionRequest", later=True),
    ),
    plain_json=True,
    entry=_in_group,
    enforces_at="PreToolUse",
    trust="Codex runs no hook that you have not trusted: start codex, type /hooks, and trust "
    "those of fleetd.",
)
GEMINI = Harness(
    name="gemini",
    title="Gemini CLI",
    executables=("gemini",),
    directory=_gemini_home,
    file="settings.json",
    project_file=".gemini/settings.json",
    events=(
        *_events("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"),
        _compaction("PreCompress"),
        Event("SessionEnd"),
    ),
    entry=_named_in_ms,
    ending="2>/dev/null; exit 0",
    enforces_at="BeforeTool",
    trust="Gemini CLI runs no hooks in a folder that it does not trust: /permissions shows and "
    "changes that.",
)
OPENCODE = Harness(
    name="opencode",
    title="OpenCode",
    executables=("opencode",),
    directory=_opencode_home,
    file="plugins/fleet.js",
    project_file=".opencode/plugins/fleet.js",
    enforces_at="tool.execute.before",
)
CURSOR = Harness(
    name="cursor",
    title="Cursor",
    executables=("cursor-agent", "cursor"),
    directory=_home("", ".cursor"),
    file="hooks.json",
    project_file=".cursor/hooks.json",
    # One name that Cursor does not know would make it ignore the whole file. postToolUse tells of
    # edits, so afterFileEdit would tell each twice.
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
    title="Copilot CLI",
    executables=("copilot",),
    directory=_home("COPILOT_HOME", ".copilot"),
    file="hooks/fleet.json",
    project_file=".github/hooks/fleet.json",
    # Never preToolUse: a hook that fails there denies the tool.
    events=(
        *_events("sessionStart", "userPromptSubmitted", "postToolUse", words=True),
        *_events("postToolUseFailure", words=True),
        _compaction("preCompact", words=True),
        *_events("agentStop", "subagentStart", "subagentStop", words=True),
        *_events("errorOccurred", "sessionEnd", words=True),
    ),
    entry=_flat_bash,
    command_key="bash",
    grouped=False,
    version=1,
)
HARNESSES = {each.name: each for each in (CLAUDE, CODEX, GEMINI, OPENCODE, CURSOR, COPILOT)}
