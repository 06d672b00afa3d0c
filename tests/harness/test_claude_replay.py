"""Claude Code's recorded payloads in the order of one session, through the real client and daemon.

The recordings come from several sessions; here they share one session, directory and transcript.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from fleetctl.client import Fleet
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentGet, AgentList
from fleetd.protocol.requests.checkpoint import CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookStatusGet
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.recovery import RecoveryList
from fleetd.protocol.requests.sortie import SortieList
from tests.support.hook_client import hook

from .recorded import recorded

SCHEMAS = Path(__file__).parent / "schemas"
SESSION = "777e68b4-1ad1-4f6c-9d81-64d0cae95a84"
AGENT = "claude-777e68b4"
HEADING = "## Recovery Context"
ASKED = "Do these steps in order with tools"
WORK = (
    "UserPromptSubmit",
    "PreToolUse.Bash",
    "PostToolUseFailure.Bash",
    "PostToolUse.Edit",
    "PostToolUse.Bash.reinterpreted_exit1",
    "TaskCompleted",
    "PostToolBatch",
)


class Session:
    """One session, and the daemon that hears of it."""

    def __init__(self, connect: Callable[[], Fleet]) -> None:
        self.client = connect()
        self.deliveries = 0

    def tell(self, name: str, *words: str, **fields: Any) -> str:
        """Run the hook for a recorded payload and return what it printed."""
        project = str(Path.cwd())
        place = {"session_id": SESSION, "cwd": project, "transcript_path": f"{project}/none.jsonl"}
        given = {**recorded("claude", name), **place, **fields}
        if "file_path" in given.get("tool_input", {}):
            given["tool_input"]["file_path"] = f"{project}/PLAN.md"
        self.deliveries += 1
        ran = hook(json.dumps(given), "claude", *words)
        assert (ran.status, ran.err) == (0, b"")
        return ran.out.decode()

    def quiet(self, *names: str, **fields: Any) -> None:
        """Tell events to which nothing may be answered."""
        for name in names:
            assert self.tell(name, **fields) == "", name

    def briefed(self, name: str, schema: str = "session-start") -> str:
        """Tell an event, hold its one answer against the schema, and return the briefing in it."""
        said = json.loads(self.tell(name))
        allowed = json.loads((SCHEMAS / f"{schema}.command.output.json").read_text("utf-8"))
        Draft7Validator(allowed).validate(said)
        output = said["hookSpecificOutput"]
        assert output["hookEventName"] == name.partition(".")[0]
        briefing: str = output["additionalContext"]
        assert briefing.count(HEADING) == 1
        assert len(briefing) <= 9_500
        return briefing

    def pause(self) -> None:
        """Tell the end of a turn, of which there is no recording."""
        self.quiet("SubagentStop", hook_event_name="Stop", agent_id=None, agent_type=None)

    def told(self, kind: str, name: str) -> list[Any]:
        """Return one field of every event of a type."""
        return [
            each.data.get(name)
            for each in self.client.call(EventList(None, kind, limit=500)).events
        ]

    @property
    def mission(self) -> Mission:
        [mission] = self.client.call(MissionList()).missions
        return mission

    def checkpoints(self) -> list[str]:
        """Return why checkpoints were taken before compactions, the oldest first."""
        page = self.client.call(CheckpointList(self.mission.id, trigger="compaction"))
        reasons = [each.trigger_details or "" for each in page.checkpoints]
        return sorted(reason for reason in reasons if reason.endswith(f"compaction of {AGENT}"))


def test_a_session_with_two_compactions_is_followed_and_briefed_once_each(
    connect: Callable[[], Fleet],
) -> None:
    session = Session(connect)
    session.quiet("SessionStart.startup", *WORK)
    mission = session.mission
    assert mission.title.startswith(ASKED)
    assert (mission.status, mission.project_dir) == ("in_progress", str(Path.cwd()))

    session.quiet("PreCompact.auto")
    assert session.checkpoints() == [f"Before the auto compaction of {AGENT}"]
    # What writes the summary ends as a subagent does, of a type that nobody has.
    session.quiet("SubagentStop", agent_type="")
    briefing = session.briefed("SessionStart.compact")
    for known in (ASKED, "\n- PLAN.md\n", "- false failed just now: “Exit code 1”\n"):
        assert known in briefing
    session.quiet("PostCompact.auto", "PostToolUse.Edit", tool_use_id="toolu_later")
    session.pause()

    session.quiet("UserPromptSubmit", "PreCompact.manual")
    assert session.checkpoints()[1:] == [f"Before the manual compaction of {AGENT}"]
    assert ASKED in session.briefed("SessionStart.compact")
    session.quiet("PostCompact.auto", "UserPromptSubmit")
    session.pause()
    assert [each.state for each in session.client.call(RecoveryList()).recoveries] == [
        "resumed",
        "resumed",
    ]
    session.quiet("SessionEnd.other")

    assert session.mission.status == "completed"
    assert len(session.told("prompt_submitted", "prompt")) == 3
    assert session.told("file_modified", "file") == [f"{Path.cwd()}/PLAN.md"] * 2
    assert session.told("command_started", "command") == ["false"]
    assert session.told("command_finished", "command") == ["false", "grep -c zzz /dev/null"]
    assert session.told("command_finished", "result") == ["FAIL", "PASS"]
    assert session.told("tool_failed", "error") == ["Exit code 1"]
    assert len(session.told("window_compacted", "summary")) == 2
    assert session.told("agent_answered", "message") == ["PONG", "PONG"]
    [step] = session.client.call(SortieList(mission.id)).sorties
    assert (step.title, step.status) == ("probe task", "completed")
    assert [each.id for each in session.client.call(AgentList()).agents] == [AGENT]
    [status] = [each for each in session.client.call(HookStatusGet()).harnesses if each.deliveries]
    assert (status.harness, status.deliveries) == ("claude", session.deliveries)
    assert status.unfit == 0


@pytest.mark.parametrize(
    ("net", "schema"),
    [("PostToolUse.Edit", "post-tool-use"), ("UserPromptSubmit", "user-prompt-submit")],
)
def test_without_a_start_after_the_compaction_the_next_that_reaches_the_model_briefs(
    connect: Callable[[], Fleet], net: str, schema: str
) -> None:
    session = Session(connect)
    session.quiet("SessionStart.startup", "UserPromptSubmit", "PostToolUseFailure.Bash")
    session.quiet("PreCompact.auto", "PostCompact.auto", "PreToolUse.Bash")
    assert "- false failed just now: “Exit code 1”\n" in session.briefed(net, schema)
    session.quiet("PostToolUse.Bash.reinterpreted_exit1", "UserPromptSubmit")


def test_a_subagents_compaction_is_not_its_parents(connect: Callable[[], Fleet]) -> None:
    session = Session(connect)
    inner = {"agent_id": "acb594f61d1631b05", "agent_type": "general-purpose"}
    session.quiet("SessionStart.startup", "UserPromptSubmit", "PreToolUse.Bash")
    session.quiet("SubagentStart")
    session.quiet("PreCompact.auto", "PostCompact.auto", **inner)
    session.quiet("PostToolUse.Bash.reinterpreted_exit1")
    [child] = [each for each in session.client.call(AgentList()).agents if each.id != AGENT]
    assert child.id.startswith(f"{AGENT}.")
    assert child.mission_id == session.mission.id
    session.quiet("SubagentStop")
    assert session.client.call(AgentGet(child.id)).status == "gone"
    assert session.client.call(AgentGet(AGENT)).mission_id == session.mission.id


def test_a_session_that_is_resumed_goes_on_with_its_mission(connect: Callable[[], Fleet]) -> None:
    session = Session(connect)
    session.quiet("SessionStart.startup", *WORK, "SessionEnd.other")
    mission = session.mission
    assert mission.status == "completed"
    session.quiet("SessionStart.resume", "UserPromptSubmit")
    assert (session.mission.id, session.mission.status) == (mission.id, "in_progress")
    session.quiet("PermissionRequest.Bash")
    assert session.told("hook_noted", "what") == ["permission_request"]


def test_two_compactions_of_one_turn_are_briefed_once_each(connect: Callable[[], Fleet]) -> None:
    session = Session(connect)
    session.quiet("SessionStart.startup", *WORK)
    for number in range(2):
        session.quiet("PreCompact.auto")
        session.briefed("SessionStart.compact")
        session.quiet("PostCompact.auto", "PreToolUse.Bash", tool_use_id=f"toolu_{number}")


def test_a_window_that_a_person_cleared_is_not_briefed(connect: Callable[[], Fleet]) -> None:
    session = Session(connect)
    session.quiet("SessionStart.startup", *WORK)
    session.quiet("SessionEnd.other", reason="clear")
    session.quiet("SessionStart.startup", source="clear")
    session.quiet("UserPromptSubmit", prompt="Something else")


def test_what_comes_twice_at_once_counts_once(connect: Callable[[], Fleet]) -> None:
    session = Session(connect)
    for name in WORK:
        session.quiet(name, name)
    assert len(session.told("prompt_submitted", "prompt")) == 1
    assert session.told("command_finished", "result") == ["FAIL", "PASS"]
    assert len(session.told("file_modified", "file")) == 1


def test_an_edit_of_what_another_agent_holds_is_refused_where_that_was_asked_for(
    connect: Callable[[], Fleet],
) -> None:
    session = Session(connect)
    file = f"{Path.cwd()}/PLAN.md"

    def edit(number: int, *words: str) -> str:
        before = {"hook_event_name": "PreToolUse", "tool_use_id": f"toolu_{number}"}
        return session.tell("PostToolUse.Edit", *words, **before)

    assert edit(1, "enforce-locks") == ""
    session.client.call(LockAcquire("rival", file))
    assert edit(2) == ""
    said = json.loads(edit(3, "enforce-locks"))
    allowed = json.loads((SCHEMAS / "pre-tool-use.command.output.json").read_text("utf-8"))
    Draft7Validator(allowed).validate(said)
    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"
    reason = said["hookSpecificOutput"]["permissionDecisionReason"]
    assert reason.startswith(f"{file} is locked by rival since")
    assert session.tell("PreToolUse.Bash", "enforce-locks") == ""
