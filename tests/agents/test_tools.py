"""Agents that work with their fleet by fleetd's tools, in the real CLIs, beside their hooks."""

from collections.abc import Sequence

from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex, Gemini, M
from tests.agents.project import PROMPT
from tests.agents.responses import SEARCH
from tests.agents.script import Call, Reply, calls, says
from tests.support.processes import fleetctl

PLAN = {"goal": "Greet everybody", "sorties": [{"title": "Change the greeting"}]}


def _works_by_tools(desk: Desk[M], prefix: str, first: Sequence[Reply], *words: str) -> None:
    """Have a model call tools, and look at what the daemon made of it and the model heard."""
    held = str(desk.project / "notes.txt")
    assert fleetctl("mcp", "install", desk.cli.harness, "--yes").status == 0
    assert fleetctl("agent", "start", "rival").status == 0
    assert fleetctl("lock", "acquire", held, "--agent", "rival").status == 0
    desk.script.plays(
        [
            *first,
            calls(Call(f"{prefix}plan", PLAN)),
            calls(Call(f"{prefix}lock", {"file": "hello.py", "purpose": "greet"})),
            calls(Call(f"{prefix}lock", {"file": held})),
            calls(Call(f"{prefix}send", {"to": ["rival"], "subject": "May I have the notes?"})),
            calls(Call(f"{prefix}agents", {})),
            says("I wait."),
        ]
    )

    run = desk.cli.prompt(PROMPT, *words)

    assert run.status == 0, run.err
    heard = desk.script.asked_in("turn")[-1].text
    assert "You hold hello.py until" in heard
    assert "notes.txt is held by rival" in heard
    assert "call lock with wait_s" in heard

    memory = desk.memory
    mission = memory.mission()
    assert (mission.title, mission.project_dir) == ("Greet everybody", str(desk.project))
    assert [title for title, _ in memory.plan()] == ["Change the greeting"]
    # Hooks and tools are one agent: one registered beside the rival, and it holds and writes.
    agents = {each.agent_id for each in memory.events("agent_registered")} - {"rival"}
    (agent,) = agents
    assert agent is not None
    assert agent.startswith(f"{desk.cli.harness}-")
    assert f"{agent} (you)" in heard
    sent = memory.events("message_sent")
    assert [each.agent_id for each in sent] == [agent]
    taken = [each.agent_id for each in memory.events("lock_acquired")]
    assert taken == ["rival", agent]
    assert memory.told("prompt_submitted", "prompt") == [PROMPT]


def test_claude_works_with_its_fleet_by_tools(claude: Desk[Claude]) -> None:
    _works_by_tools(claude, "mcp__fleet__", [])


def test_codex_works_with_its_fleet_by_tools(codex: Desk[Codex]) -> None:
    # Codex offers no server's tools from the start: its model looks for them.
    found = calls(Call(SEARCH, {"query": "fleet plan lock send agents", "limit": 20}))
    # A scripted model is faster than any server: this one is waited for.
    wait = ("-c", "mcp_servers.fleet.required=true")
    _works_by_tools(codex, "mcp__fleet/", [found], *wait)


def test_gemini_works_with_its_fleet_by_tools(gemini: Desk[Gemini]) -> None:
    _works_by_tools(gemini, "mcp_fleet_", [])
