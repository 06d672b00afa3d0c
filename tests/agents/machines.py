"""Agent CLIs as on a person's machine, but with a model on loopback; must not know scripts."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tests.agents import anthropic, generate, packages, responses
from tests.agents.packages import Package
from tests.agents.running import Outside, Run, converse, run
from tests.agents.server import Dialect

CODEX_MODEL = "gpt-5.5"
# The model that Codex takes by itself calls its tools from one program, in a tool named exec.
CODEX_CODE_MODEL = "gpt-6.1-sol"


class Machine(Protocol):
    """What tests do with one CLI."""

    harness: str
    package: Package
    dialect: Dialect

    def __init__(self, url: str, proxy: Outside) -> None: ...

    def prompt(self, text: str, *words: str, **variables: str) -> Run:
        """Give a new session one prompt, and return when its turn is over."""
        ...

    def go_on(self, text: str, **variables: str) -> Run:
        """Give one more prompt to the last session, in a new process."""
        ...


M = TypeVar("M", bound=Machine)


class Claude:
    harness, package, dialect = "claude", packages.CLAUDE, anthropic
    allowed = "Agent,Bash,Read,Edit,Write,TaskCreate,TaskUpdate,TodoWrite,mcp__fleet"

    def __init__(self, url: str, proxy: Outside) -> None:
        self._proxy = proxy
        self._settings = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000",
        }

    def prompt(self, text: str, *words: str, **variables: str) -> Run:
        return run([*self._argv, *words, "--", text], self._proxy, self._settings | variables)

    def go_on(self, text: str, **variables: str) -> Run:
        return self.prompt(text, "--continue", **variables)

    def converse(self, *texts: str) -> Run:
        """Type several prompts, slash commands among them, into one session."""
        said = [{"type": "user", "message": {"role": "user", "content": text}} for text in texts]
        return converse(
            [*self._argv, "--input-format", "stream-json"],
            self._proxy,
            self._settings,
            [json.dumps(line) for line in said],
            lambda line: '"type":"result"' in line,
        )

    @property
    def _argv(self) -> list[str]:
        quiet = ["-p", "--output-format", "stream-json", "--verbose"]
        may = ["--permission-mode", "acceptEdits", "--allowedTools", self.allowed]
        return [*self.package.argv, *quiet, *may]


class Codex:
    harness, package, dialect = "codex", packages.CODEX, responses

    def __init__(self, url: str, proxy: Outside) -> None:
        self._proxy = proxy
        config = f"""
            model = "{CODEX_MODEL}"
            model_provider = "loopback"
            approval_policy = "never"
            sandbox_mode = "danger-full-access"
            model_auto_compact_token_limit = 150000
            check_for_update_on_startup = false
            [features]
            plugins = false
            [tools.update_plan]
            enabled = true
            [analytics]
            enabled = false
            [projects."{Path.cwd()}"]
            trust_level = "trusted"
            [model_providers.loopback]
            name = "loopback"
            base_url = "{url}/v1"
            wire_api = "responses"
            request_max_retries = 0
            stream_max_retries = 0
        """
        directory = Path(os.environ["HOME"], ".codex")
        directory.mkdir(exist_ok=True)
        lines = [line.strip() for line in config.splitlines()]
        (directory / "config.toml").write_text("\n".join(lines))

    def prompt(self, text: str, *words: str, **variables: str) -> Run:
        return self._run([*words, text], variables)

    def go_on(self, text: str, **variables: str) -> Run:
        return self._run(["resume", "--last", text], variables)

    def _run(self, words: Sequence[str], variables: dict[str, str]) -> Run:
        how = ["exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "--json"]
        return run([*self.package.argv, *how, *words], self._proxy, variables)


class Gemini:
    harness, package, dialect = "gemini", packages.GEMINI, generate

    def __init__(self, url: str, proxy: Outside) -> None:
        self._proxy = proxy
        self._settings = {
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_API_KEY": "none",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        }
        directory = Path(os.environ["HOME"], ".gemini")
        directory.mkdir(exist_ok=True)
        (directory / "settings.json").write_text(json.dumps(settings))

    def prompt(self, text: str, *words: str, **variables: str) -> Run:
        how = ["--model", "gemini-2.5-pro", "--approval-mode=yolo", "--output-format=stream-json"]
        argv = [*self.package.argv, *how, *words, "--prompt", text]
        return run(argv, self._proxy, self._settings | variables)

    def go_on(self, text: str, **variables: str) -> Run:
        return self.prompt(text, "--resume", "latest", **variables)


class Copilot:
    harness, package, dialect = "copilot", packages.COPILOT, anthropic

    def __init__(self, url: str, proxy: Outside) -> None:
        self._proxy = proxy
        self._settings = {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_BASE_URL": url,
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "200000",
            "COPILOT_MODEL": "claude-sonnet-4.5",
        }

    def prompt(self, text: str, *words: str, **variables: str) -> Run:
        argv = [*self.package.argv, "--allow-all-tools", *words, "-p", text]
        return run(argv, self._proxy, self._settings | variables)

    def go_on(self, text: str, **variables: str) -> Run:
        return self.prompt(text, "--continue", **variables)
