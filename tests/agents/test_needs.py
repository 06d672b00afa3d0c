"""What an agent needs of a person, as the real CLIs tell it: set soon, and ended by the answer."""

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.agents import asking_server
from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex, M
from tests.agents.project import PROMPT
from tests.agents.script import Asked, Call, Reply, calls, says
from tests.support.processes import fleetctl

SOON_S = 2
# Codex asks its hooks also where it permits by itself: that is waited for.
CODEX_PERMISSION_S = 7
OPTIONS = [{"label": each, "description": each} for each in ("80", "8080")]
QUESTION = {"question": "Which port?", "header": "Port", "options": OPTIONS}
COMMAND = "touch made"


def _answered(
    desk: Desk[M], call: Call, need: str, text: str, within_s: float
) -> tuple[list[str], Callable[[str], None]]:
    """Have a model call a tool that asks a person, and look at what its agent needs.

    Return the list of what was asked, and what is to be called with each before its answer.
    """
    memory, script, asked, answered = desk.memory, desk.script, list[str](), list[float]()

    def asks(what: str) -> None:
        asked.append(what)
        memory.needs_by(script.asked_in("turn")[-1].at + within_s, need)
        [agent] = fleetctl("attention", "--json").json["agents"]
        assert (agent["needs"], agent["text"]) == (need, text)
        answered.append(time.monotonic())

    def aside(now: Asked) -> Reply | None:
        """Look before the model is told the answer, so that nothing follows it yet."""
        if answered:
            memory.needs_by(answered[0] + SOON_S, "none")
        return None

    script.aside = aside
    script.plays([calls(call), says("Done.")])
    return asked, asks


@pytest.mark.parametrize(
    ("call", "need", "text"),
    [
        (
            Call("AskUserQuestion", {"questions": [QUESTION | {"multiSelect": False}]}),
            "question",
            "Which port?",
        ),
        (
            Call("Bash", {"command": COMMAND, "description": "Make it"}),
            "permission",
            f"Bash: {COMMAND}",
        ),
    ],
)
def test_claude_needs_what_it_asks_for_until_the_answer(
    claude: Desk[Claude], call: Call, need: str, text: str
) -> None:
    asked, asks = _answered(claude, call, need, text, SOON_S)

    run = claude.cli.asked(PROMPT, asks)

    assert run.status == 0, run.err
    assert asked == [call.tool]
    told = claude.memory.told("agent_needs", "needs")
    assert told == [need, "none", "finished", "none"], claude.memory.log()


def test_claude_needs_approval_of_its_plan_until_the_answer(claude: Desk[Claude]) -> None:
    call = Call("ExitPlanMode", {})
    asked, asks = _answered(claude, call, "plan_approval", "Everybody.", SOON_S)
    looks = claude.script.aside

    def aside(now: Asked) -> Reply | None:
        """Write the plan into the file that Claude Code names."""
        if len(claude.script.asked_in("turn")) > 1:
            return looks(now)
        named = re.search(r"create your plan at (\S+\.md)", now.text)
        assert named, "no file was named for the plan"
        plan = {"file_path": named[1], "content": "# Greet all\n\nEverybody."}
        return calls(Call("Write", plan))

    claude.script.aside = aside
    run = claude.cli.asked(PROMPT, asks, "--permission-mode", "plan")

    assert run.status == 0, run.err
    assert asked == [call.tool]
    told = claude.memory.told("agent_needs", "needs")
    assert told == ["plan_approval", "none", "finished", "none"], claude.memory.log()


def test_claude_needs_what_a_server_of_tools_asks_for(claude: Desk[Claude]) -> None:
    asked, asks = _answered(claude, Call("mcp__asking__ask", {}), "question", "Which port?", SOON_S)
    program = {"command": sys.executable, "args": [asking_server.__file__]}
    servers = json.dumps({"mcpServers": {"asking": program}})
    words = ("--mcp-config", servers, "--allowedTools", "mcp__asking__ask")

    run = claude.cli.asked(PROMPT, asks, *words)

    assert run.status == 0, run.err
    assert asked == ["elicitation"]
    assert "8080" in claude.script.asked_in("turn")[-1].text
    told = claude.memory.told("agent_needs", "needs")
    assert told == ["question", "none", "finished", "none"], claude.memory.log()


@pytest.mark.parametrize(
    ("call", "answer", "need", "text", "within_s"),
    [
        (
            Call("request_user_input", {"questions": [QUESTION | {"id": "port"}]}),
            {"answers": {"port": {"answers": ["8080"]}}},
            "question",
            "Which port?",
            SOON_S,
        ),
        (
            Call("exec_command", {"cmd": COMMAND}),
            {"decision": "accept"},
            "permission",
            f"Bash: {COMMAND}",
            CODEX_PERMISSION_S,
        ),
    ],
)
def test_codex_needs_what_it_asks_for_until_the_answer(
    codex: Desk[Codex], call: Call, answer: dict[str, Any], need: str, text: str, within_s: float
) -> None:
    asked, asks = _answered(codex, call, need, text, within_s)

    def answers(method: str, _: dict[str, Any]) -> dict[str, Any]:
        asks(method)
        return answer

    run = codex.cli.asked(PROMPT, answers)

    assert run.status == 0, run.err
    assert len(asked) == 1
    told = codex.memory.told("agent_needs", "needs")
    assert told == [need, "none", "finished", "none"], codex.memory.log()
