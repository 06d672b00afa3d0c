"""Agent CLIs as on a person's machine, but with a model on loopback; must not know scripts."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.agents import anthropic, generate, packages, responses
from tests.agents.packages import Package
from tests.agents.running import Outside, Run, converse, run, seated, talk
from tests.agents.server import Dialect
from tests.support.terminal import Terminal

CODEX_MODEL = "gpt-5.5"
# The model that Codex takes by itself calls its tools from one program, in a tool named exec.
CODEX_CODE_MODEL = "gpt-6.1-sol"

# What OpenCode would look for outside.
_OPENCODE_AWAY = (
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_MODELS_FETCH",
)


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
    harness, package = "claude", packages.CLAUDE
    dialect: Dialect = anthropic
    _quiet = ("-p", "--output-format", "stream-json", "--verbose")
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

    def typed(
        self, text: str, answered: Callable[[int], Sequence[str] | None], **variables: str
    ) -> Run:
        """Type a prompt into a session, and what follows each answer, None to end it."""
        told = 0

        def prompts(*texts: str) -> list[str]:
            said = [
                {"type": "user", "message": {"role": "user", "content": each}} for each in texts
            ]
            return [json.dumps(line) for line in said]

        def hears(line: str) -> Sequence[str] | None:
            nonlocal told
            if '"type":"result"' not in line:
                return ()
            following = answered(told)
            told += 1
            return None if following is None else prompts(*following)

        argv = [*self._argv, "--input-format", "stream-json"]
        return talk(argv, self._proxy, self._settings | variables, prompts(text), hears)

    def asked(self, text: str, asks: Callable[[str], None], *words: str) -> Run:
        """Give one prompt in a session whose user is asked, and allow all that is asked.

        ``asks`` gets the tool before the answer, "elicitation" for a server's own question.
        """

        def hears(said: str) -> Sequence[str] | None:
            line = json.loads(said)
            if line["type"] == "result":
                return None
            if line["type"] != "control_request":
                return ()
            request = line["request"]
            asks(request.get("tool_name") or request["subtype"])
            response = {
                "subtype": "success",
                "request_id": line["request_id"],
                "response": _allowed(request),
            }
            return [json.dumps({"type": "control_response", "response": response})]

        said = {"type": "user", "message": {"role": "user", "content": text}}
        how = ["--input-format", "stream-json", "--permission-prompt-tool", "stdio"]
        argv = [*self.package.argv, *self._quiet, *how, *words]
        return talk(argv, self._proxy, self._settings, [json.dumps(said)], hears)

    def sits(self, argv: Sequence[str], directory: Path) -> AbstractContextManager[Terminal]:
        """Run a command in a terminal whose Claude Code has asked its first questions already."""
        place = Path(os.environ["HOME"], ".claude.json")
        known = json.loads(place.read_text()) if place.exists() else {}
        known |= {"hasCompletedOnboarding": True, "theme": "dark"}
        known["customApiKeyResponses"] = {"approved": ["none"], "rejected": []}
        known.setdefault("projects", {}).setdefault(str(directory), {})[
            "hasTrustDialogAccepted"
        ] = True
        place.write_text(json.dumps(known))
        return seated(argv, self._proxy, self._settings, directory)

    @property
    def _argv(self) -> list[str]:
        may = ["--permission-mode", "acceptEdits", "--allowedTools", self.allowed]
        return [*self.package.argv, *self._quiet, *may]


def _allowed(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a user who allows a tool, and says 8080 to each question."""
    if request["subtype"] == "elicitation":
        return {"action": "accept", "content": {"port": "8080"}}
    given = request["input"]
    answers = {each["question"]: "8080" for each in given.get("questions", ())}
    changed = given | ({"answers": answers} if answers else {})
    return {"behavior": "allow", "updatedInput": changed}


class Codex:
    harness, package = "codex", packages.CODEX
    dialect: Dialect = responses

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

    def fork(self, session_id: str, text: str) -> Run:
        """Give one prompt to a fork of a session, in a new process."""
        return self._run(["fork", session_id, text], {})

    def asked(self, text: str, asks: Callable[[str, dict[str, Any]], Any]) -> Run:
        """Give one prompt in a session whose user trusts the hooks and is asked.

        ``asks`` gets what is asked and its parameters, and returns the answer.
        """
        opened = {"cwd": str(Path.cwd()), "approvalPolicy": "untrusted", "sandbox": "read-only"}
        said_first = {"type": "text", "text": text}

        def goes_on(after: str, result: dict[str, Any]) -> Sequence[str]:
            if after == "hooks/list":
                return [_rpc("config/batchWrite", edits=[_trust(result)], reloadUserConfig=True)]
            if after == "config/batchWrite":
                return [_rpc("thread/start", **opened)]
            if after == "thread/start":
                thread = result["thread"]["id"]
                return [_rpc("turn/start", threadId=thread, input=[said_first])]
            return ()

        def hears(said: str) -> Sequence[str] | None:
            line = json.loads(said)
            if "method" not in line:
                return goes_on(line["id"], line["result"])
            if line["method"] == "turn/completed":
                return None
            if "id" not in line:
                return ()
            answer = asks(line["method"], line["params"])
            return [json.dumps({"id": line["id"], "result": answer})]

        first = [*_initialized(), _rpc("hooks/list", cwds=[str(Path.cwd())])]
        argv = [*self.package.argv, "app-server", "--enable", "default_mode_request_user_input"]
        return talk(argv, self._proxy, {}, first, hears)

    def sits(self, argv: Sequence[str], directory: Path) -> AbstractContextManager[Terminal]:
        """Run a command in a terminal whose user has trusted the hooks."""

        def hears(said: str) -> Sequence[str] | None:
            line = json.loads(said)
            if "method" in line:
                return ()
            if line["id"] == "hooks/list":
                edit = _trust(line["result"])
                return [_rpc("config/batchWrite", edits=[edit], reloadUserConfig=True)]
            return None if line["id"] == "config/batchWrite" else ()

        with Path(os.environ["HOME"], ".codex", "config.toml").open("a") as config:
            # Nor is a newer model offered.
            config.write(f'\n[notice.model_migrations]\n"{CODEX_MODEL}" = "gpt-6-sol"\n')
        first = [*_initialized(), _rpc("hooks/list", cwds=[str(directory)])]
        talk([*self.package.argv, "app-server"], self._proxy, {}, first, hears)
        return seated(argv, self._proxy, {}, directory)

    def _run(self, words: Sequence[str], variables: dict[str, str]) -> Run:
        how = ["exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "--json"]
        return run([*self.package.argv, *how, *words], self._proxy, variables)


def _rpc(method: str, **params: Any) -> str:
    return json.dumps({"id": method, "method": method, "params": params})


def _initialized() -> list[str]:
    client = {"name": "tests", "version": "1"}
    begin = _rpc("initialize", clientInfo=client, capabilities={"experimentalApi": True})
    return [begin, json.dumps({"method": "initialized"})]


def _trust(listed: dict[str, Any]) -> dict[str, Any]:
    """Return the change of the settings that /hooks makes of trusting all hooks."""
    hooks = [hook for each in listed["data"] for hook in each["hooks"]]
    trusted = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in hooks}
    return {"keyPath": "hooks.state", "mergeStrategy": "upsert", "value": trusted}


class Gemini:
    harness, package = "gemini", packages.GEMINI
    dialect: Dialect = generate

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


class OpenCode:
    harness, package = "opencode", packages.OPENCODE
    dialect: Dialect = anthropic

    def __init__(self, url: str, proxy: Outside) -> None:
        self._proxy = proxy
        limit = {"context": 180_000, "output": 8_000}
        config = {
            "model": "loopback/scripted",
            "small_model": "loopback/scripted",
            "autoupdate": False,
            "share": "disabled",
            "provider": {
                "loopback": {
                    "npm": "@ai-sdk/anthropic",
                    "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
                    "models": {"scripted": {"tool_call": True, "limit": limit}},
                }
            },
        }
        self._types_installed()
        self._settings = {
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "npm_config_offline": "true",
            **dict.fromkeys(_OPENCODE_AWAY, "true"),
        }

    def _types_installed(self) -> None:
        """Let it find the types of plugins, so that it does not install them.

        It would lock the directory for that, and the next process waits a minute for the lock of
        one that ended meanwhile.
        """
        directory = Path(os.environ["XDG_CONFIG_HOME"], "opencode")
        (directory / "node_modules").mkdir(parents=True, exist_ok=True)
        installed = {"dependencies": {"@opencode-ai/plugin": self.package.version}}
        lock = {"lockfileVersion": 3, "packages": {"": installed}}
        (directory / "package-lock.json").write_text(json.dumps(lock))

    def prompt(self, text: str, *words: str, **variables: str) -> Run:
        argv = [*self.package.argv, "run", "--format", "json", *words, text]
        return run(argv, self._proxy, self._settings | variables)

    def sits(self, argv: Sequence[str], directory: Path) -> AbstractContextManager[Terminal]:
        """Run a command in a terminal."""
        return seated(argv, self._proxy, self._settings, directory)

    def go_on(self, text: str, **variables: str) -> Run:
        return self.prompt(text, "--continue", **variables)


class Copilot:
    harness, package = "copilot", packages.COPILOT
    dialect: Dialect = anthropic

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
