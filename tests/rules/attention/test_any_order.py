"""Whatever order hooks come in: a later result always clears a permission."""

import random
from typing import Any

import pytest

from fleetd.domain.liveness import needs
from fleetd.protocol.requests.agent import AgentGet, AgentList
from fleetd.protocol.requests.attention import AttentionList
from tests.support.fleet import SECOND, Fleet
from tests.support.hook_payloads import Cli

INNER = {"agent_id": "acb594f61d1631b05", "agent_type": "explore"}
REMINDER = {"notification_type": "permission_prompt", "message": "May I?"}
IDLE = {"notification_type": "idle_prompt", "message": "Claude is waiting for your input"}
ASK = {"questions": [{"question": "Which port?"}]}
# The beginning of a call is none: calls run beside each other.
ACTIVITY = ("PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop")


def steps(harness: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what a session of a CLI may tell, some of it of its subagent."""
    told: list[tuple[str, dict[str, Any]]] = [
        ("UserPromptSubmit", {"prompt": "Go"}),
        ("Stop", {}),
        ("PreToolUse", {"tool_name": "AskUserQuestion", "tool_input": ASK}),
    ]
    for who in ({}, INNER):
        given = {"tool_name": "Bash", "tool_input": {"command": "make"}, **who}
        told += [(name, given) for name in ("PreToolUse", "PermissionRequest", "PostToolUse")]
    if harness == "claude":
        told += [
            ("Notification", REMINDER),
            ("Notification", IDLE),
            ("StopFailure", {"error": "x"}),
        ]
        told += [("PostToolUseFailure", {"tool_name": "Bash", "tool_input": {}, "error": "denied"})]
    return told


@pytest.mark.parametrize("harness", ["claude", "codex"])
@pytest.mark.parametrize("seed", range(4))
async def test_no_order_leaves_a_permission_set_after_a_later_result(
    fleet: Fleet, harness: str, seed: int
) -> None:
    seeded, possible = random.Random(seed), steps(harness)
    cli = Cli(fleet, harness)
    await cli.tell("UserPromptSubmit", prompt="Begin")
    for number in range(40):
        event, fields = seeded.choice(possible)
        await cli.tell(event, **fields, tool_use_id=f"call-{number}")
        fleet.clock.pass_by(seeded.choice((1, SECOND, 4 * SECOND, 6 * SECOND)))
        if seeded.random() < 0.5:
            await fleet.engine.write(needs.confirm_asks)
        await _holds(fleet, cli, event, inner="agent_id" in fields)
    # Both go on: nothing that was asked before is left, however late a request is settled.
    for who in (INNER, {}):
        await cli.tell("PostToolUse", **who, tool_name="Bash", tool_input={}, tool_use_id="last")
    fleet.clock.pass_by(10 * SECOND)
    await fleet.engine.write(needs.confirm_asks)
    for agent in (await fleet.do(AgentList())).agents:
        assert agent.needs is None
    [state] = (await fleet.do(AttentionList())).agents
    assert state.needs == "none"


# Of CLIs with events of their own: what a session may tell; of these, what is its own activity.
SHELL = {"toolName": "bash", "toolArgs": '{"command": "make"}'}
GEMINI = {"tool_name": "run_shell_command", "tool_input": {"command": "make"}}
OPENCODE = {"tool": "bash", "args": {"command": "make"}}
OTHERS: dict[str, tuple[list[tuple[str, dict[str, Any]]], tuple[str, ...]]] = {
    "gemini": (
        [
            ("BeforeAgent", {"prompt": "Go"}),
            ("BeforeTool", {"tool_name": "ask_user", "tool_input": ASK}),
            ("BeforeTool", GEMINI),
            ("Notification", {"notification_type": "ToolPermission", "message": "Run make"}),
            ("AfterTool", GEMINI | {"tool_response": {}}),
            ("AfterAgent", {"prompt_response": "Done"}),
        ],
        ("BeforeAgent", "AfterTool", "AfterAgent"),
    ),
    "copilot": (
        [
            ("userPromptSubmitted", {"prompt": "Go"}),
            ("permissionRequest", {"toolName": "bash", "toolInput": {"command": "make"}}),
            ("notification", REMINDER),
            ("notification", {"notification_type": "elicitation_dialog", "message": "Port?"}),
            ("postToolUse", SHELL | {"toolResult": {"resultType": "success"}}),
            ("agentStop", {"stopReason": "end"}),
        ],
        ("userPromptSubmitted", "postToolUse", "agentStop"),
    ),
    "opencode": (
        [
            ("chat.message", {"prompt": "Go"}),
            ("permission.asked", {"permission": "bash", "patterns": ["make"]}),
            ("question.asked", {"questions": ASK["questions"]}),
            ("tool.execute.before", OPENCODE),
            ("tool.execute.after", OPENCODE),
            ("session.idle", {"last_message": "Done"}),
        ],
        ("chat.message", "tool.execute.after", "session.idle"),
    ),
}
LAST = {"gemini": "AfterTool", "copilot": "postToolUse", "opencode": "tool.execute.after"}


@pytest.mark.parametrize("harness", OTHERS)
@pytest.mark.parametrize("seed", range(3))
async def test_no_order_of_another_cli_leaves_a_permission_set_after_a_later_result(
    fleet: Fleet, harness: str, seed: int
) -> None:
    seeded, (possible, activity) = random.Random(seed), OTHERS[harness]
    cli = Cli(fleet, harness)
    await cli.tell(possible[0][0], **possible[0][1])
    met = set()
    for number in range(40):
        event, fields = seeded.choice(possible)
        await cli.tell(event, **fields, **_call_id(harness, number))
        fleet.clock.pass_by(seeded.choice((1, SECOND, 4 * SECOND, 6 * SECOND)))
        if seeded.random() < 0.5:
            await fleet.engine.write(needs.confirm_asks)
        need = await cli.needs()
        met.add(need)
        assert event not in activity or need != "permission"
    assert {"permission", "finished"} <= met
    last = next(fields for event, fields in possible if event == LAST[harness])
    await cli.tell(LAST[harness], **last, **_call_id(harness, 40))
    fleet.clock.pass_by(10 * SECOND)
    await fleet.engine.write(needs.confirm_asks)
    assert await cli.needs() is None


def _call_id(harness: str, number: int) -> dict[str, str]:
    """Return the name of a call, for the CLIs that give one."""
    return {"call_id": f"call-{number}"} if harness == "opencode" else {}


async def _holds(fleet: Fleet, cli: Cli, event: str, *, inner: bool) -> None:
    """Check what is true after every event."""
    for agent in (await fleet.do(AgentList())).agents:
        assert (agent.needs is None) == (agent.needs_since is None)
        assert agent.needs is None or agent.status == "waiting"
    if event in ACTIVITY and not inner:
        assert (await fleet.do(AgentGet(cli.agent_id))).needs != "permission"
    told = [each for each in await fleet.events(kind="agent_needs") if each.agent_id]
    last = {each.agent_id: each.data["needs"] for each in told}
    for agent in (await fleet.do(AgentList())).agents:
        assert last.get(agent.id, "none") == (agent.needs or "none")
