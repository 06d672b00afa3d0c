"""What Copilot CLI tells with each of its events, in both spellings, and what it is told."""

import json
from typing import Any

import pytest

from fleetd.harness.copilot import adapter
from fleetd.harness.detect import recognise
from fleetd.harness.report import (
    Answer,
    AnyHappening,
    Compacted,
    Compacting,
    Failed,
    Noted,
    Paused,
    PermissionRequested,
    PlanItem,
    Planned,
    PromptSubmitted,
    Report,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    Unfit,
)

from .recorded import only, recorded

SESSION = "b0ff98c0-8e01-4b73-bf92-9649b139931b"
TRANSCRIPT = f"/home/user/.copilot/session-state/{SESSION}/events.jsonl"
RECORDED: list[tuple[str, tuple[AnyHappening, ...], dict[str, Any]]] = [
    (
        "userPromptSubmitted",
        (PromptSubmitted("hi"),),
        {"moment": "1771480081360", "injects": True},
    ),
    (
        "sessionStart",
        (SessionStarted("startup"),),
        {"moment": "1771480081383", "injects": True},
    ),
    ("agentStop", (Paused(),), {"moment": "1771480085412", "transcript_path": TRANSCRIPT}),
    (
        "preCompact",
        (Compacting("auto"), Compacted()),
        {"moment": "1771480085425", "transcript_path": TRANSCRIPT},
    ),
    ("sessionEnd", (SessionEnded("complete"),), {"moment": "1771480085425"}),
]


def payload(**fields: Any) -> dict[str, Any]:
    """Return a payload as the reference describes it; its event is a word beside it."""
    return {"sessionId": "s", "timestamp": 1, "cwd": "/p", **fields}


def told(event: str, **fields: Any) -> tuple[AnyHappening, ...]:
    return adapter.read(payload(**fields), event).happenings


@pytest.mark.parametrize(("event", "happenings", "rest"), RECORDED)
@pytest.mark.parametrize("named", [True, False])
def test_every_recorded_payload_becomes_exactly_this_report(
    event: str, happenings: tuple[AnyHappening, ...], rest: dict[str, Any], named: bool
) -> None:
    """The command line names the event; where it does not, the fields tell."""
    given = recorded("copilot", event)
    assert recognise("claude", given, {}) is adapter
    assert adapter.read(given, event if named else None) == Report(
        harness="copilot",
        event=event,
        session_id=SESSION,
        happenings=happenings,
        cwd="/path/to/repo",
        **rest,
    )


@pytest.mark.parametrize(
    ("event", "fields", "happening"),
    [
        ("sessionStart", {"source": "resume"}, SessionStarted("resume")),
        ("userPromptSubmitted", {"prompt": ""}, Noted("empty_prompt")),
        (
            "errorOccurred",
            {"error": {"message": "529", "name": "E"}, "errorContext": "model_call"},
            Failed("529"),
        ),
        (
            "errorOccurred",
            {"error": {"message": "again"}, "errorContext": "system", "recoverable": True},
            Noted("error_occurred", "again"),
        ),
        (
            "notification",
            {"notification_type": "shell_completed", "message": "Shell completed"},
            Noted("shell_completed", "Shell completed"),
        ),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_an_event_tells_one_thing(
    event: str, fields: dict[str, Any], happening: AnyHappening, named: bool
) -> None:
    assert only(adapter.read(payload(**fields), event if named else None)) == happening


def test_a_command_passed_when_its_exit_code_says_so() -> None:
    for code, passed in ((0, True), (2, False)):
        result = {
            "resultType": "success",
            "textResultForLlm": f"out\n<exited with exit code {code}>",
        }
        call = {"toolName": "bash", "toolArgs": {"command": "make"}, "toolResult": result}
        assert told("postToolUse", **call) == (
            ToolFinished(
                "bash",
                command="make",
                passed=passed,
                error=None if passed else "Exit code 2\nout",
            ),
        )


@pytest.mark.parametrize(
    ("name", "happening"),
    [
        (
            "postToolUse.bash.exit3",
            ToolFinished("bash", command="exit 3", passed=False, error="Exit code 3"),
        ),
        (
            "postToolUse.edit",
            ToolFinished("edit", edited=("/path/to/repo/a.txt",), passed=True),
        ),
        ("postToolUseFailure.edit", ToolFinished("edit", passed=False, error="No match found")),
        ("subagentStart", SubagentStarted("explore")),
        ("subagentStop", SubagentEnded("SUB ANSWER")),
    ],
)
def test_a_payload_of_version_1_tells_one_thing(name: str, happening: AnyHappening) -> None:
    given = recorded("copilot", name)
    assert recognise("claude", given, {}) is adapter
    assert only(adapter.read(given, name.split(".")[0])) == happening


def test_a_request_for_permission_is_not_certain_to_reach_anybody() -> None:
    report = adapter.read(recorded("copilot", "permissionRequest.bash"), "permissionRequest")
    [asked] = report.happenings
    assert isinstance(asked, PermissionRequested)
    assert not asked.certain
    assert (asked.message or "").startswith("bash: ")


def test_all_events_of_a_subagent_are_of_its_session_and_its_own() -> None:
    started = recorded("copilot", "subagentStart")
    for name in ("subagentStart", "subagentStop", "userPromptSubmitted.subagent"):
        report = adapter.read(recorded("copilot", name), name.split(".")[0])
        assert report.session_id == started["sessionId"], name
        assert report.subagent == started["agentId"], name


def test_what_a_subagent_is_asked_is_no_prompt_of_a_person() -> None:
    """Its turn ends with an event of its own, too."""
    for name in ("userPromptSubmitted.subagent", "agentStop.subagent"):
        assert adapter.read(recorded("copilot", name), name.split(".")[0]).happenings == ()


def test_a_failed_tool_tells_why() -> None:
    call = {"toolName": "edit", "toolArgs": {"path": "a.py"}}
    failed = (ToolFinished("edit", passed=False, error="no match"),)
    assert told("postToolUseFailure", **call, error="no match") == failed
    result = {"resultType": "failure", "textResultForLlm": "no match"}
    assert told("postToolUse", **call, toolResult=result) == failed


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("edit", {"path": "/p/a.py"}),
        ("create", '{"path": "a.py", "file_text": "x"}'),
        ("apply_patch", "*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch\n"),
    ],
)
def test_an_edit_names_its_file_whatever_the_tool(tool: str, given: Any) -> None:
    result = {"resultType": "success", "textResultForLlm": "done"}
    (done,) = told("postToolUse", toolName=tool, toolArgs=given, toolResult=result)
    assert done == ToolFinished(tool, edited=("/p/a.py",), passed=True)
    report = adapter.read(payload(toolName=tool, toolArgs=given), "preToolUse")
    assert only(report) == ToolStarted(tool, edits=("/p/a.py",))
    said = json.loads(adapter.reply(report, Answer(deny="held by another")))
    assert said == {"permissionDecision": "deny", "permissionDecisionReason": "held by another"}


def test_a_checklist_is_the_plan() -> None:
    given = {"todos": "# Plan\n- [x] one\n- [-] two\n- [ ] three\n"}
    happenings = told("postToolUse", toolName="update_todo", toolArgs=given)
    items = (
        PlanItem("one", "completed"),
        PlanItem("two", "in_progress"),
        PlanItem("three", "pending"),
    )
    assert happenings[1:] == (Planned(items, whole=True),)


def test_a_subagent_goes_by_its_name_where_there_is_no_id() -> None:
    begun = adapter.read(payload(transcriptPath="/t", agentName="explore"), "subagentStart")
    fields = {"agentName": "explore", "response": "Found", "stopReason": "end_turn"}
    ended = adapter.read(payload(**fields), None)
    assert begun.subagent == ended.subagent == "explore"
    assert only(begun) == SubagentStarted("explore")
    assert only(ended) == SubagentEnded("Found")


def test_under_claudes_names_it_writes_claudes_fields() -> None:
    common = {"session_id": "s", "timestamp": "2026-02-19T05:48:01.360Z", "cwd": "/p"}
    call = {
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make"},
        "tool_result": {
            "result_type": "success",
            "text_result_for_llm": "<exited with exit code 0>",
        },
    }
    given = {**common, **call}
    assert recognise("claude", given, {}) is adapter
    report = adapter.read(given, None)
    assert (report.event, report.session_id, report.moment) == ("postToolUse", "s", "1771480081360")
    assert only(report) == ToolFinished("Bash", command="make", passed=True)
    for name, event in (("Stop", "agentStop"), ("UserPromptSubmit", "userPromptSubmitted")):
        assert adapter.read({**common, "hook_event_name": name}, None).event == event


def test_a_briefing_is_told_where_it_reaches_the_model() -> None:
    for event in ("sessionStart", "userPromptSubmitted", "postToolUse"):
        said = adapter.reply(adapter.read(payload(), event), Answer(context="Mission: x"))
        assert json.loads(said) == {"additionalContext": "Mission: x"}
    resumed = adapter.read(payload(source="resume"), "sessionStart")
    assert adapter.reply(resumed, Answer(context="x")) == ""
    silent = ("preCompact", "agentStop", "notification", "subagentStart")
    for event in silent:
        assert adapter.reply(adapter.read(payload(), event), Answer(context="x")) == ""


def test_a_briefing_is_cut_to_what_copilot_takes_whole() -> None:
    report = adapter.read(payload(), "postToolUse")
    said = json.loads(adapter.reply(report, Answer(context="é" * 9_500)))
    assert said["additionalContext"] == "é" * 5_000


def test_a_payload_without_session_or_shape_is_unfit() -> None:
    with pytest.raises(Unfit, match="sessionId"):
        adapter.read({"prompt": "hi"}, "userPromptSubmitted")
    with pytest.raises(Unfit, match="no known form"):
        adapter.read(payload(), None)


def test_an_event_of_no_interest_tells_nothing() -> None:
    assert told("preToolResult", toolName="bash") == ()
    assert told("userPromptTransformed", prompt="x") == ()
