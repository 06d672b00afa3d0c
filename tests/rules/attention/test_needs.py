"""What an agent needs of a person, from the payloads of each CLI to the row of its agent."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.domain.agents import agent_loss, agents
from fleetd.domain.core.tx import WatchProcess
from fleetd.domain.liveness.needs import CONFIRMED_AFTER_MS, one_line
from fleetd.engine.jobs import timers
from fleetd.engine.jobs.liveness import scan
from fleetd.protocol.requests.agent import AgentGet, AgentHeartbeat
from fleetd.protocol.requests.attention import AttentionList
from fleetd.protocol.requests.checkpoint import CheckpointGet
from fleetd.protocol.timestamps import iso
from tests.support.fleet import MINUTE, SECOND, Clock, Fleet, opened
from tests.support.hook_payloads import Cli, told_needs

Step = tuple[str, dict[str, Any]]
QUESTION = {"questions": [{"question": "Which port?", "options": []}]}
TEN = 1_795_441_470
BASH: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "1"}
SHELL = {"toolName": "bash", "toolArgs": json.dumps({"command": "make"})}
ASK = {"tool_name": "AskUserQuestion", "tool_input": QUESTION, "tool_use_id": "2"}
PLAN = {"tool_name": "ExitPlanMode", "tool_input": {"plan": "# Do it\nnow"}, "tool_use_id": "3"}
PROMPTS: dict[str, Step] = {
    "claude": ("UserPromptSubmit", {"prompt": "Go"}),
    "codex": ("UserPromptSubmit", {"prompt": "Go"}),
    "qwen": ("UserPromptSubmit", {"prompt": "Go"}),
    "kimi": ("UserPromptSubmit", {"prompt": "Go"}),
    "droid": ("UserPromptSubmit", {"prompt": "Go"}),
    "gemini": ("BeforeAgent", {"prompt": "Go"}),
    "copilot": ("userPromptSubmitted", {"prompt": "Go"}),
    "opencode": ("chat.message", {"prompt": "Go"}),
    "cursor": ("beforeSubmitPrompt", {"prompt": "Go"}),
}


def _permission(kind: str, **details: str) -> dict[str, Any]:
    """Return what Gemini CLI tells with each confirmation that it asks for."""
    return {
        "notification_type": "ToolPermission",
        "message": "Tool requires confirmation",
        "details": {"type": kind, **details},
    }


# A CLI, what it tells, what its agent needs then, in words, and what it tells next.
NEEDS: list[tuple[str, list[Step], str, str | None, Step]] = [
    (
        "claude",
        [("PreToolUse", BASH), ("PermissionRequest", BASH)],
        "permission",
        "Bash: make",
        ("PostToolUse", BASH | {"tool_response": {}}),
    ),
    (
        "claude",
        [("Notification", {"notification_type": "permission_prompt", "message": "May I?"})],
        "permission",
        "May I?",
        ("PostToolUseFailure", BASH | {"error": "denied"}),
    ),
    (
        "claude",
        [("PreToolUse", ASK)],
        "question",
        "Which port?",
        ("PostToolUse", ASK | {"tool_response": {}}),
    ),
    (
        "claude",  # it asks for permission to ask, too
        [
            ("PreToolUse", ASK),
            ("PermissionRequest", ASK),
            ("Notification", {"notification_type": "permission_prompt", "message": "May I?"}),
            ("Notification", {"notification_type": "agent_needs_input", "message": "Claude asks"}),
        ],
        "question",
        "Which port?",
        ("PostToolUse", ASK | {"tool_response": {}}),
    ),
    (
        "claude",
        [("PreToolUse", PLAN), ("PermissionRequest", PLAN)],
        "plan_approval",
        "now",
        ("PostToolUse", PLAN | {"tool_response": {}}),
    ),
    (
        "claude",
        [("Elicitation", {"message": "Your name?"})],
        "question",
        "Your name?",
        ("PostToolUse", BASH | {"tool_response": {}}),
    ),
    (
        "claude",
        [("Elicitation", {"message": "Your name?"})],
        "question",
        "Your name?",
        ("ElicitationResult", {"action": "accept", "content": {"name": "Ann"}}),
    ),
    (
        "claude",
        [("Notification", {"notification_type": "elicitation_dialog", "message": "Name?"})],
        "question",
        "Name?",
        PROMPTS["claude"],
    ),
    (
        "claude",
        [("Stop", {"last_assistant_message": "Done.\nAll of it."})],
        "finished",
        "Done.",
        PROMPTS["claude"],
    ),
    (
        "claude",
        [("Stop", {"background_tasks": [{"id": "b1", "type": "shell", "command": "serve"}]})],
        "background",
        None,
        PROMPTS["claude"],
    ),
    (
        "claude",
        [("StopFailure", {"error": "rate_limit", "error_details": "You hit the limit"})],
        "limit",
        "You hit the limit",
        PROMPTS["claude"],
    ),
    (
        "claude",
        [("StopFailure", {"error": "server_error"})],
        "failed",
        "server_error",
        PROMPTS["claude"],
    ),
    ("codex", [("Stop", {"last_assistant_message": "Done"})], "finished", None, PROMPTS["codex"]),
    (
        "codex",
        [("PreToolUse", ASK | {"tool_name": "request_user_input"})],
        "question",
        "Which port?",
        ("PostToolUse", ASK | {"tool_name": "request_user_input", "tool_response": "80"}),
    ),
    (
        "gemini",
        [("Notification", {"notification_type": "ToolPermission", "message": "Edit a.py"})],
        "permission",
        "Edit a.py",
        ("AfterTool", {"tool_name": "read_file", "tool_input": {}, "tool_response": {}}),
    ),
    (
        "gemini",
        [("BeforeTool", {"tool_name": "ask_user", "tool_input": QUESTION})],
        "question",
        "Which port?",
        ("AfterTool", {"tool_name": "ask_user", "tool_input": QUESTION, "tool_response": {}}),
    ),
    (
        "gemini",  # it asks for permission to ask, too
        [
            ("BeforeTool", {"tool_name": "ask_user", "tool_input": QUESTION}),
            ("Notification", _permission("ask_user", title="Ask user")),
        ],
        "question",
        "Which port?",
        ("AfterTool", {"tool_name": "ask_user", "tool_input": QUESTION, "tool_response": {}}),
    ),
    (
        "gemini",
        [
            ("BeforeTool", {"tool_name": "exit_plan_mode", "tool_input": {"plan_path": "p.md"}}),
            ("Notification", _permission("exit_plan_mode", title="Approve the plan")),
        ],
        "plan_approval",
        "p.md",
        ("AfterTool", {"tool_name": "exit_plan_mode", "tool_input": {}, "tool_response": {}}),
    ),
    (
        "gemini",
        [
            ("BeforeTool", {"tool_name": "run_shell_command", "tool_input": {"command": "make"}}),
            ("Notification", _permission("exec", title="Confirm", command="make")),
        ],
        "permission",
        "make",
        ("AfterTool", {"tool_name": "run_shell_command", "tool_input": {}, "tool_response": {}}),
    ),
    (
        "gemini",
        [("AfterAgent", {"prompt_response": "Done"})],
        "finished",
        "Done",
        PROMPTS["gemini"],
    ),
    (
        "copilot",
        [("notification", {"notification_type": "permission_prompt", "message": "make"})],
        "permission",
        "make",
        ("postToolUse", SHELL | {"toolResult": {"resultType": "success"}}),
    ),
    (
        "copilot",
        [("notification", {"notification_type": "elicitation_dialog", "message": "Port?"})],
        "question",
        "Port?",
        PROMPTS["copilot"],
    ),
    ("copilot", [("agentStop", {"stopReason": "end"})], "finished", None, PROMPTS["copilot"]),
    (
        "copilot",
        [("errorOccurred", {"error": {"message": "500"}, "errorContext": "model_call"})],
        "failed",
        "500",
        PROMPTS["copilot"],
    ),
    (
        "opencode",
        [("tool.execute.before", {"tool": "question", "args": QUESTION, "call_id": "1"})],
        "question",
        "Which port?",
        ("tool.execute.after", {"tool": "question", "args": QUESTION, "call_id": "1"}),
    ),
    (
        "opencode",
        [("session.idle", {"last_message": "Done"})],
        "finished",
        "Done",
        PROMPTS["opencode"],
    ),
    (
        "opencode",
        [("session.error", {"error": {"name": "APIError", "data": {"message": "500"}}})],
        "failed",
        "500",
        PROMPTS["opencode"],
    ),
    ("cursor", [("stop", {"status": "completed"})], "finished", None, PROMPTS["cursor"]),
    (
        "cursor",
        [("stop", {"status": "error", "error": "no answer"})],
        "failed",
        "no answer",
        PROMPTS["cursor"],
    ),
    *(
        (name, [("PreToolUse", ASK)], "question", "Which port?", ("PostToolUse", ASK))
        for name in ("qwen", "kimi", "droid")
    ),
    *(
        (name, [("Stop", {})], "finished", None, PROMPTS[name])
        for name in ("qwen", "kimi", "droid")
    ),
]


async def prompted(fleet: Fleet, harness: str = "claude", session: str = "12f459b8") -> Cli:
    """Return a session that a person has just asked for something."""
    cli = Cli(fleet, harness, session)
    event, fields = PROMPTS[harness]
    await cli.tell(event, **fields)
    assert await cli.needs() is None
    return cli


@pytest.mark.parametrize(("harness", "told", "need", "text", "then"), NEEDS)
async def test_what_each_cli_tells_sets_a_need_and_what_follows_ends_it(
    fleet: Fleet, harness: str, told: list[Step], need: str, text: str | None, then: Step
) -> None:
    cli = await prompted(fleet, harness)
    for event, fields in told:
        await cli.tell(event, **fields)
    assert await cli.needs() == need
    state = await cli.state()
    assert (state.needs, state.since <= fleet.clock.now) == (need, True)
    if text is not None:
        assert state.text == text
    event, fields = then
    await cli.tell(event, **fields)
    assert await cli.needs() is None
    assert (await cli.state()).needs == "none"
    assert await told_needs(fleet) == [need, "none"]


async def test_a_limit_has_the_time_that_its_cli_told_and_no_other(fleet: Fleet) -> None:
    cli = await prompted(fleet)
    await cli.tell("StopFailure", error=f"Claude AI usage limit reached|{TEN}")
    state = await cli.state()
    assert (state.needs, state.reset_at) == ("limit", iso(TEN * SECOND))
    await cli.tell("UserPromptSubmit", prompt="Go on")
    await cli.tell("StopFailure", error="rate_limit", error_details="resets some day")
    state = await cli.state()
    assert (state.needs, state.reset_at) == ("limit", None)


@pytest.mark.parametrize(
    "reminder",
    [
        {"notification_type": "idle_prompt", "message": "Claude is waiting for your input"},
        {"message": "Claude is waiting for your input"},
        {"notification_type": "agent_needs_input", "message": "Claude needs your input"},
        {"notification_type": "elicitation_dialog", "message": "Claude needs your input"},
        {"notification_type": "permission_prompt", "message": "Claude needs your permission"},
    ],
)
async def test_a_reminder_a_minute_after_the_end_leaves_an_agent_finished(
    fleet: Fleet, reminder: dict[str, str]
) -> None:
    cli = await prompted(fleet)
    await cli.tell("Stop", last_assistant_message="Done")
    since = (await cli.state()).since
    fleet.clock.pass_by(MINUTE)
    await cli.tell("Notification", **reminder)
    state = await cli.state()
    assert (state.needs, state.text, state.since) == ("finished", "Done", since)
    assert await told_needs(fleet) == ["finished"]


BROKEN: dict[str, tuple[Step, Step]] = {
    "opencode": (
        ("session.error", {"error": {"name": "APIError", "data": {"message": "500"}}}),
        ("session.idle", {"last_message": "Let me"}),
    ),
    "copilot": (
        ("errorOccurred", {"error": {"message": "500"}, "errorContext": "model_call"}),
        ("agentStop", {"stopReason": "end"}),
    ),
    "claude": (
        ("StopFailure", {"error": "500"}),
        ("Notification", {"notification_type": "idle_prompt", "message": "Claude waits"}),
    ),
}


@pytest.mark.parametrize("harness", BROKEN)
async def test_the_end_of_a_turn_that_was_broken_off_is_no_news(fleet: Fleet, harness: str) -> None:
    cli = await prompted(fleet, harness)
    (broken, fields), (end, ended) = BROKEN[harness]
    await cli.tell(broken, **fields)
    since = fleet.clock.now
    fleet.clock.pass_by(SECOND)
    await cli.tell(end, **ended)
    state = await cli.state()
    assert (state.needs, state.text, state.since) == ("failed", "500", since)
    assert await told_needs(fleet) == ["failed"]
    if harness != "claude":  # a turn that goes on, and ends
        event, fields = PROMPTS[harness]
        await cli.tell(event, **fields)
        await cli.tell(end, **ended)
        assert await cli.needs() == "finished"


@pytest.mark.parametrize(
    ("event", "asked", "need"),
    [
        ("PermissionRequest", BASH, "permission"),
        ("PreToolUse", ASK, "question"),
        ("PreToolUse", PLAN, "plan_approval"),
    ],
)
async def test_what_a_user_refused_with_a_key_is_asked_no_more_when_the_cli_idles(
    fleet: Fleet, event: str, asked: dict[str, Any], need: str
) -> None:
    """No hook tells of the key; this notification comes only while nothing is asked."""
    cli = await prompted(fleet)
    await cli.tell(event, **asked)
    assert await cli.needs() == need
    fleet.clock.pass_by(MINUTE)
    await cli.tell("Notification", notification_type="idle_prompt", message="Claude waits")
    assert await cli.needs() == "finished"


async def test_what_a_user_refused_a_subagent_with_a_key_is_asked_no_more_when_the_cli_idles(
    fleet: Fleet,
) -> None:
    cli = await with_subagent(fleet)
    await cli.tell("Stop", last_assistant_message="It looks around")
    await cli.tell("PermissionRequest", **INNER, **BASH)
    assert (await cli.state()).needs == "permission"
    await cli.tell("Notification", notification_type="idle_prompt", message="Claude waits")
    assert (await cli.state()).needs == "background"


async def test_a_question_of_which_only_a_notification_tells_does_not_bring_a_session_back(
    fleet: Fleet,
) -> None:
    cli = await prompted(fleet)
    await cli.tell("SessionEnd", reason="exit")
    await cli.tell("Notification", notification_type="agent_needs_input", message="You there?")
    assert (await fleet.do(AgentGet(cli.agent_id))).status == "gone"
    assert (await fleet.do(AttentionList())).agents == []


async def test_the_end_of_a_session_ends_its_need_once(fleet: Fleet) -> None:
    cli = await prompted(fleet)
    await cli.tell("Stop", last_assistant_message="Done")
    await cli.tell("SessionEnd", reason="exit")
    assert (await fleet.do(AgentGet(cli.agent_id))).needs is None
    assert await told_needs(fleet) == ["finished", "none"]


async def test_the_same_need_told_twice_is_one_with_its_first_time(fleet: Fleet) -> None:
    cli = await prompted(fleet)
    await cli.tell("PermissionRequest", **BASH)
    since = (await cli.state()).since
    fleet.clock.pass_by(MINUTE)
    await cli.tell("PermissionRequest", **BASH)
    await cli.tell("Notification", notification_type="permission_prompt", message="May I?")
    state = await cli.state()
    assert (state.since, state.text) == (since, "Bash: make")
    assert await told_needs(fleet) == ["permission"]


@pytest.mark.parametrize("asked", [BASH, ASK, PLAN])
async def test_a_request_told_after_its_answer_asks_for_nothing(
    fleet: Fleet, asked: dict[str, Any]
) -> None:
    """Claude Code runs this hook while it asks: who answers at once is faster."""
    cli = await prompted(fleet)
    for number in ("1", "2"):
        await cli.tell("PreToolUse", **asked | {"tool_use_id": number})
        await cli.tell("PostToolUse", **asked | {"tool_use_id": number})
    without_id = {name: asked[name] for name in ("tool_name", "tool_input")}
    await cli.tell("PermissionRequest", **without_id)
    assert await cli.needs() is None
    await cli.tell("PreToolUse", **asked | {"tool_use_id": "4"})
    await cli.tell("PermissionRequest", **without_id)
    assert await cli.needs() is not None


async def test_a_request_counts_where_no_beginning_of_its_call_is_told(fleet: Fleet) -> None:
    cli = await prompted(fleet, "droid")
    await cli.tell("PostToolUse", **BASH)
    await cli.tell("PermissionRequest", **BASH)
    assert await cli.needs() == "permission"


# --- requests that a CLI may grant by itself -----------------------------------------------------


ASKS: dict[str, tuple[Step, Step]] = {
    "codex": (("PermissionRequest", BASH), ("PostToolUse", BASH | {"tool_response": "ok"})),
    "copilot": (
        ("permissionRequest", {"toolName": "bash", "toolInput": {"command": "make"}}),
        ("postToolUse", SHELL | {"toolResult": {"resultType": "success"}}),
    ),
}


@pytest.fixture
async def virtual(fleet: Fleet, nursery: trio.Nursery) -> Any:
    """A fleet whose requests for permission are waited for, in virtual time."""
    fleet.clock.follow_trio()
    nursery.start_soon(timers.confirm_asks, fleet.engine)
    yield fleet
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("harness", ASKS)
async def test_a_request_that_no_result_follows_counts_after_five_seconds(
    virtual: Fleet, autojump_clock: trio.testing.MockClock, harness: str
) -> None:
    cli = await prompted(virtual, harness)
    (event, fields), (then, result) = ASKS[harness]
    since = iso(virtual.clock() + 1)
    await cli.tell(event, **fields)
    await trio.sleep(4.9)
    assert await cli.needs() is None
    await trio.sleep(0.2)
    assert await cli.needs() == "permission"
    state = await cli.state()
    assert (state.since, str(state.text).lower()) == (since, "bash: make")
    await cli.tell(then, **result)
    assert await cli.needs() is None
    assert await told_needs(virtual) == ["permission", "none"]


@pytest.mark.parametrize("harness", ASKS)
async def test_a_request_that_a_result_follows_was_granted_by_the_cli_itself(
    virtual: Fleet, autojump_clock: trio.testing.MockClock, harness: str
) -> None:
    cli = await prompted(virtual, harness)
    (event, fields), (then, result) = ASKS[harness]
    await cli.tell(event, **fields)
    await trio.sleep(4.5)
    await cli.tell(then, **result)
    await trio.sleep(10)
    assert await cli.needs() is None
    assert await told_needs(virtual) == []
    assert virtual.sql("SELECT * FROM unconfirmed_asks") == []


async def test_a_request_counts_although_another_call_begins_beside_it(
    virtual: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    cli = await prompted(virtual, "codex")
    await cli.tell("PreToolUse", **BASH)
    await cli.tell("PermissionRequest", **BASH)
    other = BASH | {"tool_use_id": "2"}
    await cli.tell("PreToolUse", **other)
    await trio.sleep(6)
    assert await cli.needs() == "permission"
    await cli.tell("PostToolUse", **other)
    assert await cli.needs() is None


@pytest.mark.parametrize("granted", [False, True])
async def test_a_daemon_that_starts_within_the_five_seconds_waits_for_the_rest(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, *, granted: bool
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        cli = await prompted(fleet, "codex")
        await cli.tell("PermissionRequest", **BASH)
    clock.pass_by(2 * SECOND)
    async with opened(tmp_path, clock=clock) as fleet, trio.open_nursery() as nursery:
        clock.follow_trio()
        nursery.start_soon(timers.confirm_asks, fleet.engine)
        cli.fleet = fleet
        await trio.sleep(2.9)
        assert await cli.needs() is None
        if granted:
            await cli.tell("PostToolUse", **BASH, tool_response="ok")
        await trio.sleep(0.2)
        assert await cli.needs() == (None if granted else "permission")
        nursery.cancel_scope.cancel()


async def test_a_request_long_due_counts_when_the_daemon_starts(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        cli = await prompted(fleet, "codex")
        await cli.tell("PermissionRequest", **BASH)
    clock.reboot()
    async with opened(tmp_path, clock=clock) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(timers.confirm_asks, fleet.engine)
        cli.fleet = fleet
        await trio.sleep(0.1)
        assert await cli.needs() == "permission"
        nursery.cancel_scope.cancel()


async def test_a_clock_that_is_set_back_keeps_no_request_waiting(
    virtual: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    cli = await prompted(virtual, "codex")
    await cli.tell("PermissionRequest", **BASH)
    await trio.sleep(1)
    virtual.clock.step(-60 * MINUTE)
    await trio.sleep(CONFIRMED_AFTER_MS / 1000)
    assert await cli.needs() == "permission"


async def test_a_notification_to_the_user_lets_a_request_count_at_once(fleet: Fleet) -> None:
    cli = await prompted(fleet, "copilot")
    await cli.tell("permissionRequest", toolName="bash", toolInput={"command": "make"})
    assert await cli.needs() is None
    await cli.tell("notification", notification_type="permission_prompt", message="Allow?")
    state = await cli.state()
    assert (state.needs, state.text) == ("permission", "bash: make")
    assert fleet.sql("SELECT * FROM unconfirmed_asks") == []


# --- subagents -----------------------------------------------------------------------------------


INNER = {"agent_id": "acb594f61d1631b05", "agent_type": "explore"}


async def with_subagent(fleet: Fleet) -> Cli:
    """Return a session that waits for a subagent at work."""
    cli = await prompted(fleet)
    await cli.tell("PreToolUse", tool_name="Task", tool_input={}, tool_use_id="0")
    await cli.tell("SubagentStart", **INNER)
    return cli


async def test_what_a_subagent_waits_for_is_listed_of_its_sessions_agent(fleet: Fleet) -> None:
    cli = await with_subagent(fleet)
    await cli.tell("PermissionRequest", **INNER, **BASH)
    since = fleet.clock.now
    await cli.tell("Notification", notification_type="permission_prompt", message="May I?")
    assert await cli.needs() is None  # its own row is at work
    [state] = (await fleet.do(AttentionList(waiting=True))).agents
    assert (state.agent_id, state.needs, state.text) == (cli.agent_id, "permission", "Bash: make")
    assert state.since == since
    told = (await fleet.events(kind="agent_needs"))[-1]
    assert told.agent_id != cli.agent_id
    # Who asks for the subagent gets the same.
    assert (await fleet.do(AttentionList(agent_id=told.agent_id))).agents == [state]
    await cli.tell("PostToolUse", **INNER, **BASH)
    assert (await cli.state()).needs == "none"


async def test_a_permission_of_which_only_a_reminder_told_ends_when_the_subagent_goes_on(
    fleet: Fleet,
) -> None:
    cli = await with_subagent(fleet)
    await cli.tell("Notification", notification_type="permission_prompt", message="May I?")
    assert await cli.needs() == "permission"
    await cli.tell("PostToolUse", **INNER, **BASH)
    assert await cli.needs() is None
    # Not one that the session's own agent asked for.
    await cli.tell("PermissionRequest", **BASH | {"tool_use_id": "9"})
    await cli.tell("PostToolUse", **INNER, **BASH | {"tool_use_id": "8"})
    assert await cli.needs() == "permission"


async def test_the_end_of_the_turn_brings_no_lost_subagent_back(fleet: Fleet) -> None:
    cli = await with_subagent(fleet)
    [inner] = [row["id"] for row in fleet.sql("SELECT id FROM agents") if "." in row["id"]]
    fleet.sql("UPDATE agents SET status = 'lost', needs = 'lost' WHERE id = :id", id=inner)
    await cli.tell("Stop")
    assert (await fleet.do(AgentGet(inner))).status == "lost"


# --- the rest of a life --------------------------------------------------------------------------


async def test_a_heartbeat_of_an_agent_that_was_lost_ends_its_need(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    fleet.clock.pass_by(10 * MINUTE)
    for _ in range(2):
        await scan(fleet.engine)
    [state] = (await fleet.do(AttentionList(waiting=True))).agents
    assert (state.agent_id, state.needs) == ("spec-1", "lost")
    assert state.text == "no heartbeat for 10m 0s"
    await fleet.do(AgentHeartbeat("spec-1"))
    assert (await fleet.do(AttentionList(waiting=True))).agents == []
    assert (await fleet.do(AgentGet("spec-1"))).needs is None
    assert await told_needs(fleet) == ["lost", "none"]


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (("Stop", {}), "gone"),
        (("StopFailure", {"error": "overloaded"}), "lost"),
        (("StopFailure", {"error": "rate_limit"}), "lost"),
        (("PreToolUse", BASH), "lost"),
        (("PermissionRequest", BASH), "lost"),
        (("PreToolUse", ASK), "lost"),
        (("PreToolUse", PLAN), "lost"),
    ],
)
async def test_a_process_that_ends_after_the_turn_leaves_and_one_in_its_middle_is_lost(
    fleet: Fleet, told: Step, status: str
) -> None:
    cli = await prompted(fleet)
    event, fields = told
    await cli.tell(event, **fields)
    fleet.sql("UPDATE agents SET pid = 4711, pid_started = 'then'")
    ended = WatchProcess(cli.agent_id, 4711, "then")
    assert await fleet.engine.write(agent_loss.process_ended, ended)
    agent = await fleet.do(AgentGet(cli.agent_id))
    assert (agent.status, agent.needs) == (status, "lost" if status == "lost" else None)
    assert (await told_needs(fleet))[-1] == ("lost" if status == "lost" else "none")
    [mission] = fleet.sql("SELECT status FROM missions")
    assert mission["status"] == ("in_progress" if status == "lost" else "completed")


@pytest.mark.parametrize(("told", "need"), [("Stop", "finished"), ("PostToolUse", None)])
async def test_an_agent_found_at_work_again_is_as_it_was(
    fleet: Fleet, told: str, need: str | None
) -> None:
    cli = await prompted(fleet)
    await cli.tell(told, **BASH)
    fleet.sql("UPDATE agents SET pid = 4711, pid_started = 'then'")
    row = fleet.sql("SELECT * FROM agents")[0]
    await fleet.engine.write(agents.mark_lost, row, "its machine is gone")
    assert await cli.needs() == "lost"
    process = WatchProcess(cli.agent_id, 4711, "then")
    assert await fleet.engine.write(agent_loss.rejoin, process)
    assert await cli.needs() == need


async def test_who_was_taken_over_from_needs_nobody_until_that_is_undone(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1", "spec-2")
    await fleet.work(mission, 0, "spec-1")
    await fleet.checkpoint(mission)
    fleet.clock.pass_by(10 * MINUTE)
    taken = await fleet.restore(mission_id=mission.id, agent_id="spec-2", take_over_from="spec-1")
    assert [each.agent_id for each in (await fleet.do(AttentionList())).agents] == ["spec-2"]
    assert (await fleet.do(AgentGet("spec-1"))).needs is None
    undo = await fleet.do(CheckpointGet(taken.undo_checkpoint_id))
    await fleet.restore(undo, mission_id=mission.id)
    lost = await fleet.do(AgentGet("spec-1"))
    assert (lost.status, lost.needs) == ("lost", "lost")
    assert lost.needs_text == "its work came back from spec-2"
    told = await fleet.events(kind="agent_needs")
    assert [(each.agent_id, each.data["needs"]) for each in told] == [
        ("spec-1", "lost"),
        ("spec-1", "none"),
        ("spec-1", "lost"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, None),
        ("\n \t\n", None),
        ("\n  First \nSecond", "First"),
        ("\x1b[31mred\x07\x9b2J", "[31mred2J"),
        ("a\u202eb\u2066c\ufeff", "abc"),
        ("half \ud83d", "half"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_a_text_is_one_line_that_no_terminal_obeys(text: str | None, line: str | None) -> None:
    assert one_line(text) == line
