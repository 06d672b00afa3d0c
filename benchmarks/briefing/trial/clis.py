"""The agent CLIs of a trial: prompts to one session, then a compaction, then the rest.

To force the compaction, a CLI needs a command for it without a terminal. Claude Code and Codex
have one. Gemini CLI has none: without a terminal, its ``/compress`` runs beside the next prompt.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from .processes import Program, ProgramResult, clean, run, talk

_AFTER = "after"


class Failed(Exception):
    """A run has no result for briefings: something else went wrong."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one run: all its files are below ``root``."""

    root: Path
    logs: Path
    env: Mapping[str, str]
    deadline: float
    secrets: Sequence[str]

    @property
    def home(self) -> Path:
        """The home directory of the run."""
        return self.root / "home"

    @property
    def project(self) -> Path:
        """The project that the agent works on."""
        return self.root / "project"

    @property
    def commands(self) -> Path:
        """A directory of commands, which comes first in the PATH of a shell."""
        return self.root / "bin"

    def keep(self, name: str, text: str) -> None:
        """Put a text into the logs."""
        (self.logs / name).write_text(clean(text, self.secrets), "utf-8")


class Cli(ABC):
    """One session of an agent CLI; ``url`` is that of a scripted model."""

    name: ClassVar[str]
    # One of these variables must be set.
    keys: ClassVar[tuple[str, ...]]
    # Variables with these prefixes are passed to the CLI.
    variables: ClassVar[tuple[str, ...]]

    def __init__(self, place: Place, model: str | None, url: str | None) -> None:
        self._place = place
        self._model = model
        self._url = url
        self._own: dict[str, str] = {}
        self.compacted = False
        self.cost_usd: float | None = None

    @abstractmethod
    def prompt(self, number: int, text: str) -> None:
        """Give a prompt, the first one to a new session; raises Failed, TimedOut."""

    @abstractmethod
    def compact(self, texts: Sequence[str]) -> None:
        """Compact the window of the session, then give prompts; raises Failed, TimedOut."""

    def _program(self, log: str, *words: str) -> Program:
        return Program(
            argv=[str(self._place.commands / self.name), *words],
            env={**self._place.env, **self._own},
            cwd=self._place.project,
            log=self._place.logs / f"{log}.jsonl",
            deadline=self._place.deadline,
            secrets=self._place.secrets,
        )

    def _failed(self, why: object) -> Failed:
        return Failed(f"{self.name}: {' '.join(str(why).split())[:200]}")

    def _expect_success(self, output: ProgramResult) -> None:
        if output.status:
            last = output.errors.strip().splitlines()[-1:] or ["no message"]
            raise self._failed(f"exit status {output.status}, {last[0]}")


class Claude(Cli):
    """Claude Code in print mode; ``/compact`` compacts."""

    name = "claude"
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    variables = ("ANTHROPIC_", "CLAUDE_CODE_OAUTH_TOKEN")
    _tools = "Bash,Read,Edit,Write,Glob,Grep,TaskCreate,TaskUpdate,TaskList,TaskGet,TodoWrite"

    def __init__(self, place: Place, model: str | None, url: str | None) -> None:
        super().__init__(place, model, url)
        quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY")
        self._own = dict.fromkeys((*quiet, "DISABLE_AUTOUPDATER"), "1")
        if url:
            self._own |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}

    def prompt(self, number: int, text: str) -> None:
        """Give a prompt in a process of its own."""
        goes_on = ["--continue"] if number > 1 else []
        self._judge(run(self._program(f"{number}-before", *self._words, *goes_on, "--", text)))

    def compact(self, texts: Sequence[str]) -> None:
        """Type ``/compact`` and the prompts into one process, each after the answer before."""
        left = iter([*texts])

        def on_line(line: str) -> Sequence[str] | None:
            message = _json(line)
            self.compacted |= message.get("subtype") == "compact_boundary"
            if message.get("type") != "result":
                return ()
            following = next(left, None)
            return None if following is None else (_typed(following),)

        how = ["--continue", "--input-format", "stream-json"]
        program = self._program(_AFTER, *self._words, *how)
        self._judge(talk(program, [_typed("/compact")], on_line))

    @property
    def _words(self) -> list[str]:
        quiet = ["-p", "--output-format", "stream-json", "--verbose"]
        may = ["--permission-mode", "acceptEdits", "--allowedTools", self._tools]
        return [*quiet, *may, *(["--model", self._model] if self._model else [])]

    def _judge(self, output: ProgramResult) -> None:
        results = [line for line in _lines(output) if line.get("type") == "result"]
        for line in results:
            # The costs of the whole session so far, including earlier processes.
            self.cost_usd = line.get("total_cost_usd", self.cost_usd)
        for line in results:
            if line.get("is_error"):
                raise self._failed(line.get("result") or line.get("subtype"))
        self._expect_success(output)
        if not results:
            raise self._failed("no answer")


class Codex(Cli):
    """Codex: its app server has a request that compacts."""

    name = "codex"
    keys = ("OPENAI_API_KEY",)
    variables = ("OPENAI_",)
    # A model that calls its tools one at a time.
    _scripted_model = "gpt-5.5"

    def __init__(self, place: Place, model: str | None, url: str | None) -> None:
        super().__init__(place, model, url)
        self._thread = ""
        base = f"{url}/v1" if url else place.env.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        if url:
            self._own = {"OPENAI_API_KEY": "none"}
        named = model or (self._scripted_model if url else None)
        lines = [
            *([f"model = {json.dumps(named)}"] if named else []),
            'model_provider = "trial"',
            'approval_policy = "never"',
            'sandbox_mode = "danger-full-access"',
            "check_for_update_on_startup = false",
            "[analytics]",
            "enabled = false",
            f"[projects.{json.dumps(str(place.project))}]",
            'trust_level = "trusted"',
            "[model_providers.trial]",
            'name = "trial"',
            f"base_url = {json.dumps(base)}",
            'env_key = "OPENAI_API_KEY"',
            'wire_api = "responses"',
        ]
        settings = place.home / ".codex"
        settings.mkdir()
        (settings / "config.toml").write_text("\n".join([*lines, ""]), "utf-8")

    def prompt(self, number: int, text: str) -> None:
        """Give a prompt in a process of its own."""
        how = ["exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "--json"]
        which = ["resume", self._thread] if self._thread else []
        output = run(self._program(f"{number}-before", *how, *which, "--", text))
        for line in _lines(output):
            if line.get("type") == "thread.started":
                self._thread = line["thread_id"]
            if line.get("type") == "turn.failed":
                raise self._failed(line.get("error"))
        self._expect_success(output)
        if not self._thread:
            raise self._failed("no session")

    def compact(self, texts: Sequence[str]) -> None:
        """Open the session in an app server, compact it, and give it the prompts."""
        talking = _AppServer(self._thread, texts)
        program = self._program(_AFTER, "app-server")
        try:
            output = talk(program, talking.first(self._place.project), talking.on_line)
        finally:
            self.compacted = talking.compacted
        if talking.problem is not None:
            raise self._failed(json.dumps(talking.problem))
        self._expect_success(output)


class _AppServer:
    """The input for Codex's app server, and its answers."""

    def __init__(self, thread: str, texts: Sequence[str]) -> None:
        self._thread = thread
        self._texts = iter([*texts])
        self.compacted = False
        self.problem: object = None

    def first(self, project: Path) -> list[str]:
        """Return the first lines of the input."""
        client = {"name": "trial", "version": "1"}
        begin = _rpc("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        begun = json.dumps({"method": "initialized"})
        return [begin, begun, _rpc("hooks/list", cwds=[str(project)])]

    def on_line(self, line: str) -> Sequence[str] | None:
        """Return the input that follows a line of output, None when all is done."""
        message = _json(line)
        if "error" in message:
            self.problem = message["error"]
            return None
        if "result" in message:
            return self._answered(message["id"], message["result"])
        return self._noticed(message.get("method"), message.get("params", {}))

    def _answered(self, method: str, result: dict[str, Any]) -> Sequence[str]:
        if method == "hooks/list":
            return [_rpc("config/batchWrite", edits=[_trust(result)], reloadUserConfig=True)]
        if method == "config/batchWrite":
            return [_rpc("thread/resume", threadId=self._thread)]
        if method == "thread/resume":
            return [_rpc("thread/compact/start", threadId=self._thread)]
        return ()

    def _noticed(self, method: str | None, params: dict[str, Any]) -> Sequence[str] | None:
        if method == "item/completed":
            self.compacted |= params["item"]["type"] == "contextCompaction"
        if method != "turn/completed":
            return ()
        if params["turn"]["status"] != "completed":
            self.problem = params["turn"].get("error") or params["turn"]["status"]
            return None
        following = next(self._texts, None)
        if following is None or not self.compacted:
            return None
        prompt = {"type": "text", "text": following}
        return [_rpc("turn/start", threadId=self._thread, input=[prompt])]


CLIS: dict[str, type[Cli]] = {each.name: each for each in (Claude, Codex)}


def _typed(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}})


def _rpc(method: str, **params: Any) -> str:
    return json.dumps({"id": method, "method": method, "params": params})


def _trust(listed: dict[str, Any]) -> dict[str, Any]:
    """Return the change of the settings by which ``/hooks`` trusts all hooks."""
    hooks = [hook for each in listed["data"] for hook in each["hooks"]]
    trusted = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in hooks}
    return {"keyPath": "hooks.state", "mergeStrategy": "upsert", "value": trusted}


def _lines(output: ProgramResult) -> Iterator[dict[str, Any]]:
    yield from map(_json, output.lines)


def _json(line: str) -> dict[str, Any]:
    """Return a line of a CLI as JSON; other text is ignored."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
