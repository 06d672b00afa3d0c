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
ACTIVITY = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop")


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
