"""A model with a script instead of a real one, which shows that a trial works.

Before the compaction it does what the task says. After it, the model solves the task only when the
request contains all that an agent must know; otherwise it acts like an agent that forgot.
"""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agents import anthropic, responses
from tests.agents.script import Asked, Call, Reply, Script, calls, says
from tests.agents.server import Dialect, serving

from .tasks import Task

# Each CLI's name for the tool that runs a command.
_SHELLS: dict[str, tuple[Dialect, Callable[[str], Call]]] = {
    "claude": (anthropic, lambda command: Call("Bash", {"command": command, "description": "Run"})),
    "codex": (responses, lambda command: Call("exec_command", {"cmd": command})),
}


@contextmanager
def serving_model(cli: str, task: Task, logs: Path) -> Iterator[str]:
    """Serve a model on loopback that plays a task; yields its URL.

    A log records the requests.
    """
    dialect, shell = _SHELLS[cli]
    script = _script(task, shell)
    with serving(dialect, script) as url:
        try:
            yield url
        finally:
            lines = [f"{asked.kind} {asked.text}\n" for asked in script.asked]
            (logs / "requests.log").write_text("".join(lines), "utf-8")


def _script(task: Task, shell: Callable[[str], Call]) -> Script:
    script = Script()
    for each in task.scripted:
        script.plays([calls(shell(each.run)), says(each.say)])
    first: list[Asked] = []

    def after(asked: Asked) -> Reply | None:
        if asked.kind != "turn" or script.replies:
            return None
        if first:
            return says("Done.")
        first.append(asked)
        part = "solution" if task.is_known("\n".join(_texts(asked.body))) else "wrong"
        return calls(shell(f"cp -R {shlex.quote(str(task.directory / part))}/. ."))

    script.aside = after
    return script


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
