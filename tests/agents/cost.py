"""What fleetd costs a session: one script, played with its hooks and without them, in a real CLI.

The session has two prompts, each in a process of its own, a plan where the CLI has one, commands
that pass and fail, an edit, and a compaction near the end.
"""

import json
from collections.abc import Callable
from enum import Enum

import msgspec
import pytest

from tests.agents import test_claude, test_codex, test_copilot, test_gemini, test_opencode
from tests.agents.added import Recording, Request, compared, size
from tests.agents.desk import Desk, desk_of, own_commands
from tests.agents.machines import Claude, Codex, Copilot, Gemini, Machine, OpenCode
from tests.agents.packages import installed
from tests.agents.project import PATCH, PROMPT, SHOUT
from tests.agents.script import Asked, Call, Reply, calls, says
from tests.support.homes import daemon_in, entered
from tests.support.processes import fleetctl

CLIS: tuple[type[Machine], ...] = (Claude, Codex, Gemini, OpenCode, Copilot)
WORKER, RIVAL = "worker", "rival"
SUBJECT = "May I have hello.py?"


class Way(Enum):
    """How a session is played."""

    WITHOUT = "without fleetd"
    ALONE = "with hooks"
    AMONG_OTHERS = "with hooks, a conflict and mail"
    TOOLS = "with hooks and tools"


class Cost(msgspec.Struct, frozen=True):
    """What fleetd adds to the requests of one CLI: turns first, then compactions.

    ``tools`` are the characters that its tools add to the first request.
    """

    cli: str
    version: str
    alone: list[Request]
    among_others: list[Request]
    tools: int


def measured(kind: type[Machine], recorded: Callable[[type[Machine], Way], Recording]) -> Cost:
    """Measure one CLI; raises AssertionError when anything enters that must not."""
    without = recorded(kind, Way.WITHOUT)
    first, *_ = without.of("turn")
    with_tools, *_ = recorded(kind, Way.TOOLS).of("turn")
    return Cost(
        cli=kind.harness,
        version=kind.package.version,
        alone=compared(without, recorded(kind, Way.ALONE)),
        among_others=compared(without, recorded(kind, Way.AMONG_OTHERS)),
        tools=size(with_tools) - size(first),
    )


def record(
    kind: type[Machine], way: Way, prepare: Callable[[Desk[Machine]], None] | None = None
) -> Recording:
    """Play the session in a home of its own; raises NotHere where the CLI cannot be had.

    ``prepare`` does more to the desk before.
    """
    installed(kind.package)
    with (
        pytest.MonkeyPatch.context() as patch,
        entered(patch) as home,
        daemon_in(home) as daemon,
        desk_of(kind, daemon, own_commands(home, patch), hooked=way is not Way.WITHOUT) as desk,
    ):
        words, waits = _tools(desk) if way is Way.TOOLS else ((), {})
        if way is Way.AMONG_OTHERS:
            _meets(desk)
        if prepare is not None:
            prepare(desk)
        first, second = _SCRIPTS[kind.harness](desk)
        desk.script.plays(first)
        assert desk.cli.prompt(PROMPT, *words, FLEET_AGENT_ID=WORKER, **waits).status == 0
        desk.script.plays(second)
        assert desk.cli.go_on("Go on", FLEET_AGENT_ID=WORKER, **waits).status == 0
        return Recording(kind.harness, home.name, desk.script.asked)


def _tools(desk: Desk[Machine]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Install fleetd's tools; return words and variables that make the CLI wait for them.

    A scripted model is faster than any server, and some CLIs say it when one is late.
    """
    assert fleetctl("mcp", "install", desk.cli.harness, "--yes").status == 0
    words = ("-c", "mcp_servers.fleet.required=true") if desk.cli.harness == "codex" else ()
    # Only Claude Code reads these; by itself it waits 5 s, and a busy machine takes longer.
    waits = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}
    return words, waits


def _meets(desk: Desk[Machine]) -> None:
    """Have another agent change the file before, and write at the end of the first turn."""
    assert fleetctl("agent", "start", RIVAL).status == 0
    edited = {"file": str(desk.project / "hello.py")}
    event = {"type": "file_modified", "agent_id": RIVAL, "data": edited}
    assert fleetctl("call", "event.append", json.dumps(event)).status == 0

    def aside(_: Asked) -> Reply | None:
        if len(desk.script.replies) == 1:
            desk.script.aside = lambda _: None
            sent = fleetctl("mail", "send", SUBJECT, "--from", RIVAL, "--to", WORKER)
            assert sent.status == 0, sent.err
        return None

    desk.script.aside = aside


# Copilot CLI compacts in the background, and takes a summary that is there before a request.
_LONGER = "sleep 2"
Replies = tuple[list[Reply], list[Reply]]


def _claude(desk: Desk[Machine]) -> Replies:
    file = str(desk.project / "hello.py")
    change = {"file_path": file, "old_string": "hello", "new_string": "hello, world"}
    edits = [Call("Read", {"file_path": file}), Call("Edit", change)]
    plan = [test_claude.task("Look at the greeting"), test_claude.task("Change the greeting")]
    looks = {"description": "Read the notes", "prompt": "Read them", "run_in_background": False}
    aside = [calls(Call("Agent", looks)), calls(test_claude.bash("true")), says("Nothing.")]
    return _works(test_claude.bash, edits, plan, aside)


def _codex(_: Desk[Machine]) -> Replies:
    return _works(test_codex.shell, [Call("apply_patch", PATCH)], [test_codex.planned(0)])


def _gemini(_: Desk[Machine]) -> Replies:
    edit = test_gemini.writes("hello.py", "print('hello, world')\n")
    return _works(test_gemini.shell, [edit])


def _opencode(desk: Desk[Machine]) -> Replies:
    made = test_opencode.edits(str(desk.project / "hello.py"))
    return _works(test_opencode.shell, [call for reply in made for call in reply.calls])


def _copilot(desk: Desk[Machine]) -> Replies:
    edit = test_copilot.edits(str(desk.project / "hello.py"))
    looks = {"name": "look", "description": "Look", "prompt": "Read it", "agent_type": "explore"}
    aside = [calls(Call("task", looks)), calls(test_copilot.shell("true")), says("Nothing.")]
    return _works(test_copilot.shell, [edit], aside=aside, last=_LONGER)


def _works(
    shell: Callable[[str], Call],
    edits: list[Call],
    plan: list[Call] | None = None,
    aside: list[Reply] | None = None,
    last: str = "true",
) -> Replies:
    """Return what a model says to the two prompts; the window is full near the end.

    ``aside`` is how it calls a subagent, and what that one says; ``last`` is the last command.
    """
    first = [calls(*plan)] if plan else []
    first += [calls(shell(SHOUT)), calls(shell("false")), *(aside or [])]
    first += [*(calls(edit) for edit in edits), says("Changed.")]
    second = [calls(shell("true")), calls(shell("true"), full=True), calls(shell(last))]
    return first, [*second, says("Done.")]


_SCRIPTS = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "copilot": _copilot,
}
