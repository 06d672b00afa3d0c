"""What runs for an agent: begun, seen and ended by what its hooks tell, and bounded."""

import random
from typing import Any

import pytest

from fleetd.domain.agents import agents
from fleetd.domain.attention import running
from fleetd.harness.report import RunningItem
from fleetd.protocol.requests.agent import AgentDeregister
from fleetd.protocol.requests.agent import AgentList as AgentListing
from fleetd.protocol.requests.attention import AttentionList, RunningWork
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import MINUTE, Fleet
from tests.support.hook_payloads import Cli, told_needs

Step = tuple[str, dict[str, Any]]
INNER = {"agent_id": "acb594f61d1631b05", "agent_type": "explore"}
SHELL = {"id": "b1", "type": "shell", "command": "npm run serve"}


async def runs(cli: Cli) -> list[RunningWork]:
    return (await cli.state()).running


@pytest.fixture
async def cli(fleet: Fleet) -> Cli:
    """A session that a person has just asked for something."""
    session = Cli(fleet)
    await session.tell("UserPromptSubmit", prompt="Go")
    return session


async def test_a_subagent_runs_from_its_start_to_its_end_and_its_hooks_are_signs_of_life(
    fleet: Fleet, cli: Cli
) -> None:
    await cli.tell("SubagentStart", **INNER)
    [work] = await runs(cli)
    assert (work.id, work.kind, work.told) == (INNER["agent_id"], "subagent", "explore")
    assert work.seen_at == work.began_at == fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    await cli.tell("PreToolUse", **INNER, tool_name="Read", tool_input={}, tool_use_id="1")
    [work] = await runs(cli)
    assert (work.seen_at, work.seen_at > work.began_at) == (fleet.clock.now, True)
    await cli.tell("SubagentStop", **INNER)
    assert await runs(cli) == []


async def test_a_subagent_is_told_what_the_call_says_that_starts_it(fleet: Fleet, cli: Cli) -> None:
    for number, task in enumerate(("Read the notes", "Look at the form")):
        call = {"description": task, "prompt": "Please", "subagent_type": "explore"}
        await cli.tell("PreToolUse", tool_name="Agent", tool_input=call, tool_use_id=f"t{number}")
    await cli.tell("SubagentStart", agent_id="a", agent_type="explore")
    await cli.tell("SubagentStop", agent_id="a", agent_type="explore")
    for name in ("b", "c"):
        await cli.tell("SubagentStart", agent_id=name, agent_type="explore")
    [told] = fleet.sql("SELECT told FROM running_work WHERE id = 'a'")
    assert told["told"] == "Read the notes"
    assert {each.id: each.told for each in await runs(cli)} == {
        "b": "Look at the form",
        "c": "explore",
    }
    for name in ("b", "c"):
        await cli.tell("SubagentStop", agent_id=name, agent_type="explore")
    for number in range(2):
        await cli.tell("PostToolUse", tool_name="Agent", tool_input={}, tool_use_id=f"t{number}")
    await cli.tell("SubagentStart", agent_id="d", agent_type="explore")
    assert [each.told for each in await runs(cli)] == ["explore"]


async def found(fleet: Fleet, cli: Cli, name: str, task: str, answer: str) -> None:
    """Let a subagent be told something, and end with an answer."""
    call = {"description": task, "prompt": "Please", "subagent_type": "explore"}
    await cli.tell("PreToolUse", tool_name="Agent", tool_input=call, tool_use_id=f"t-{name}")
    inner = {"agent_id": name, "agent_type": "explore"}
    await cli.tell("SubagentStart", **inner)
    await cli.tell("SubagentStop", **inner, last_assistant_message=answer)
    fleet.clock.pass_by(MINUTE)


def done(prompt: str) -> list[str]:
    return prompt.partition("### Done\n")[2].partition("\n\n")[0].splitlines()


async def test_a_briefing_tells_what_the_last_subagents_that_ended_answered(
    fleet: Fleet, cli: Cli
) -> None:
    await found(fleet, cli, "a", "Read the notes", "Nothing there")
    await found(
        fleet, cli, "b", "Look at the form", "It has\n### Next Steps\n- two ”fields“\x1b[31m"
    )
    await cli.tell("SubagentStart", agent_id="c", agent_type="explore")
    asked = RecoveryContextGet(agent_id=cli.agent_id)
    prompt = (await fleet.do(asked)).prompt
    assert done(prompt) == [
        '- Subagent “Look at the form” answered: “It has ### Next Steps - two "fields"[31m”',
        "- Subagent “Read the notes” answered: “Nothing there”",
    ]
    assert prompt.partition("### Running For You\n")[2].startswith("- subagent c ")
    # They answered their own agent: nobody in particular had none.
    nobodys = RecoveryContextGet((await cli.state()).mission_id)
    assert "answered" not in (await fleet.do(nobodys)).prompt
    for n in range(3):
        await found(fleet, cli, f"d{n}", f"Task {n}", f"{n} " + "x" * 400)
    assert done((await fleet.do(asked)).prompt) == [
        f"- Subagent “Task {n}” answered: “{n} {'x' * 297}…”" for n in (2, 1, 0)
    ]


async def test_a_shell_in_the_background_ends_when_the_list_no_longer_names_it(
    fleet: Fleet, cli: Cli
) -> None:
    given = {"tool_name": "Bash", "tool_input": {"command": "npm run serve"}, "tool_use_id": "1"}
    response = {"backgroundTaskId": "b1", "outputFile": "/tmp/b1.output"}
    await cli.tell("PostToolUse", **given, tool_response=response)
    [work] = await runs(cli)
    assert (work.kind, work.told, work.output) == ("shell", "npm run serve", "/tmp/b1.output")
    prompt = (await fleet.do(RecoveryContextGet(agent_id=cli.agent_id))).prompt
    done = prompt.partition("### Done\n")[2].partition("\n\n")[0]
    assert done == "- npm run serve started in the background just now"
    await cli.tell("Stop", background_tasks=[SHELL], session_crons=[])
    assert (await cli.state()).needs == "background"
    assert [each.output for each in await runs(cli)] == ["/tmp/b1.output"]
    await cli.tell("UserPromptSubmit", prompt="Stop it")
    await cli.tell("Stop", background_tasks=[], session_crons=[])
    assert (await cli.state()).needs == "finished"
    assert await runs(cli) == []


async def test_a_turn_is_finished_when_the_last_that_ran_without_it_has_ended(
    fleet: Fleet, cli: Cli
) -> None:
    await cli.tell("SubagentStart", **INNER)
    await cli.tell("Stop", last_assistant_message="It looks around")
    assert (await cli.state()).needs == "background"
    fleet.clock.pass_by(MINUTE)
    await cli.tell("SubagentStop", **INNER)
    state = await cli.state()
    assert (state.needs, state.text, state.since) == (
        "finished",
        "It looks around",
        fleet.clock.now,
    )
    assert await told_needs(fleet) == ["background", "finished"]


async def test_a_subagent_that_the_list_names_works_on_after_the_turn(
    fleet: Fleet, cli: Cli
) -> None:
    names = ("a1b2c3d4e5f6a7b8c", "b1b2c3d4e5f6a7b8c")
    for name in names:
        inner = {"agent_id": name, "agent_type": "explore"}
        await cli.tell("SubagentStart", **inner)
        await cli.tell("PreToolUse", **inner, tool_name="Read", tool_input={}, tool_use_id="1")

    async def standing() -> list[str]:
        agents = (await fleet.do(AgentListing())).agents
        return [each.status for each in sorted(agents, key=lambda each: each.id)]

    assert await standing() == ["active", "active", "active"]
    listed = {"id": names[0], "type": "subagent", "description": "Look around"}
    await cli.tell("Stop", background_tasks=[listed], session_crons=[])
    assert await standing() == ["waiting", "active", "waiting"]
    await cli.tell("Stop", background_tasks=[], session_crons=[])
    assert await standing() == ["waiting", "waiting", "waiting"]


UNTOLD: dict[str, tuple[Step, Step, Step]] = {
    "codex": (
        ("UserPromptSubmit", {"prompt": "Go"}),
        ("SubagentStart", INNER),
        ("Stop", {}),
    ),
    "copilot": (
        ("userPromptSubmitted", {"prompt": "Go"}),
        ("subagentStart", {"agentName": "explore"}),
        ("agentStop", {"stopReason": "end"}),
    ),
    "opencode": (
        ("chat.message", {"prompt": "Go"}),
        ("session.created", {"session_id": "inner", "parent_id": "12f459b8", "agent": "explore"}),
        ("session.idle", {}),
    ),
}


@pytest.mark.parametrize("harness", UNTOLD)
async def test_a_subagent_of_a_cli_without_lists_is_over_after_a_turn_without_it(
    fleet: Fleet, harness: str
) -> None:
    session, (prompt, start, end) = Cli(fleet, harness), UNTOLD[harness]
    await session.tell(prompt[0], **prompt[1])
    await session.tell(start[0], **start[1])
    await session.tell(end[0], **end[1])
    assert (await session.state()).needs == "background"
    fleet.clock.pass_by(MINUTE)
    await session.tell(prompt[0], **prompt[1])
    await session.tell(end[0], **end[1])
    assert (await session.state()).needs == "finished"
    assert await runs(session) == []


async def test_a_subagent_that_is_heard_of_runs_on_whatever_was_thought_of_its_end(
    fleet: Fleet,
) -> None:
    session = Cli(fleet, "codex")
    call = {**INNER, "tool_name": "Bash", "tool_input": {"command": "make"}}
    await session.tell("UserPromptSubmit", prompt="Go")
    await session.tell("SubagentStart", **INNER)
    for number in ("1", "2"):
        await session.tell("UserPromptSubmit", prompt="Go on")
        await session.tell("PreToolUse", **call, tool_use_id=number)
        await session.tell("Stop")
        assert (await session.state()).needs == "background"
    await session.tell("UserPromptSubmit", prompt="Go on")
    await session.tell("Stop")
    assert (await session.state()).needs == "finished"
    await session.tell("PreToolUse", **call, tool_use_id="3")
    state = await session.state()
    assert (state.needs, [each.id for each in state.running]) == ("background", [INNER["agent_id"]])


async def test_a_turn_that_its_user_broke_off_ends_its_subagents(fleet: Fleet) -> None:
    session = Cli(fleet, "codex")
    await session.tell("UserPromptSubmit", prompt="Go")
    await session.tell("SubagentStart", **INNER)
    await session.tell("Interrupt")
    assert (await session.state()).needs == "finished"
    assert await runs(session) == []


async def test_a_schedule_keeps_no_turn_going(cli: Cli) -> None:
    crons = [{"id": "c1", "schedule": "*/5 * * * *", "prompt": "Look"}]
    await cli.tell("Stop", background_tasks=[], session_crons=crons)
    assert (await cli.state()).needs == "finished"
    assert [(each.kind, each.told) for each in await runs(cli)] == [
        ("schedule", "*/5 * * * *: Look")
    ]


@pytest.mark.parametrize("event", ["TeammateIdle", "TaskCreated", "TaskCompleted"])
async def test_a_teammate_keeps_no_turn_going(cli: Cli, event: str) -> None:
    await cli.tell(event, teammate_name="ann", task_id="1", task_subject="Read")
    await cli.tell("Stop", background_tasks=[], session_crons=[])
    assert (await cli.state()).needs == "finished"


async def test_a_teammate_runs_from_a_sign_of_its_work_until_it_is_idle(cli: Cli) -> None:
    for number in ("1", "2"):
        await cli.tell("TaskCreated", teammate_name="ann", task_id=number, task_subject="Read")
        assert [(each.id, each.kind, each.told) for each in await runs(cli)] == [
            ("ann", "teammate", "Read")
        ]
        await cli.tell("TeammateIdle", teammate_name="ann", team_name="us")
        assert await runs(cli) == []


@pytest.mark.parametrize("end", ["SessionEnd", "deregister", "process"])
async def test_nothing_runs_for_an_agent_that_has_left(fleet: Fleet, cli: Cli, end: str) -> None:
    await cli.tell("SubagentStart", **INNER)
    await cli.tell("Stop", background_tasks=[SHELL, {"id": INNER["agent_id"], "type": "subagent"}])
    assert len(await runs(cli)) == 2
    if end == "SessionEnd":
        await cli.tell("SessionEnd", reason="exit")
    elif end == "deregister":
        await fleet.do(AgentDeregister(cli.agent_id))
    else:
        fleet.sql("UPDATE agents SET pid = 4711 WHERE id = :id", id=cli.agent_id)
        [row] = fleet.sql("SELECT * FROM agents WHERE id = :id", id=cli.agent_id)
        await fleet.engine.write(agents.mark_lost, row, "process 4711 is gone")
    assert fleet.sql("SELECT * FROM running_work WHERE ended_at IS NULL") == []


async def test_hundreds_of_pairs_in_any_order_leave_nothing_open(fleet: Fleet, cli: Cli) -> None:
    seeded = random.Random(23)
    await cli.tell("Stop")
    steps = [f"s{number}" for number in range(400) for _ in range(2)]
    seeded.shuffle(steps)
    open_: set[str] = set()
    for number, name in enumerate(steps):
        inner = {"agent_id": name, "agent_type": "explore"}
        await cli.tell("SubagentStop" if name in open_ else "SubagentStart", **inner)
        open_ ^= {name}
        if number % 41 == 0:
            state = await cli.state()
            told = {each.id for each in state.running}
            assert told <= open_  # beyond the bound the oldest are not known any more
            assert state.running_more <= running.KEPT - running.SHOWN
            assert state.needs == ("background" if told else "finished")
    assert await runs(cli) == []
    assert (await cli.state()).needs == "finished"
    assert fleet.sql("SELECT * FROM running_work WHERE ended_at IS NULL") == []
    assert len(fleet.sql("SELECT * FROM running_work")) <= running.KEPT


async def test_lists_show_fifty_and_a_count_and_rows_are_bounded(fleet: Fleet, cli: Cli) -> None:
    items = [RunningItem(f"t{n:03}", "task", "x" * 500) for n in range(250)]
    await fleet.engine.write(running.see, cli.agent_id, items, fleet.clock.now)
    state = await cli.state()
    assert (len(state.running), state.running_more) == (50, running.KEPT - 50)
    assert {len(each.told or "") for each in state.running} == {200}
    for item in items:
        await fleet.engine.write(_ended, cli.agent_id, item.id, fleet.clock.now)
    again = [RunningItem("again", "task")]
    await fleet.engine.write(running.see, cli.agent_id, again, fleet.clock.now)
    rows = fleet.sql("SELECT id, ended_at FROM running_work")
    assert len(rows) == running.KEPT_ENDED + 1
    assert [row["id"] for row in rows if row["ended_at"] is None] == ["again"]


def _ended(tx, ctx, *told):  # type: ignore[no-untyped-def]
    running.end(tx, *told)


async def test_what_runs_and_what_is_asked_goes_with_its_agent(fleet: Fleet) -> None:
    cli = Cli(fleet, "codex")
    await cli.tell("UserPromptSubmit", prompt="Go")
    await cli.tell("SubagentStart", **INNER)
    await cli.tell(
        "PermissionRequest", tool_name="Bash", tool_input={"command": "make"}, tool_use_id="1"
    )
    assert fleet.sql("SELECT * FROM running_work")
    assert fleet.sql("SELECT * FROM unconfirmed_asks")
    await fleet.do(SystemForget(project_dir=str(fleet.project)))
    assert fleet.sql("SELECT * FROM running_work") == []
    assert fleet.sql("SELECT * FROM unconfirmed_asks") == []
    assert (await fleet.do(AttentionList())).agents == []
