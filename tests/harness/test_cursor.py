"""What Cursor tells with each of its events, and what it is told in return."""

import json
from typing import Any

import pytest

from fleetd.harness.cursor import adapter
from fleetd.harness.detect import recognise
from fleetd.harness.report import (
    Answer,
    AnyHappening,
    Compacted,
    Compacting,
    Failed,
    Noted,
    Paused,
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
    WindowUsed,
)

from .recorded import only, recorded

CONVERSATION = "5b0d6c1e-8a4f-4f1e-9d8e-2b7f1c3a9e10"
WRITTEN = ToolFinished(
    "Write",
    call_id="call_xxx",
    edited=("/path/to/repo/hello.txt",),
    passed=True,
    duration_ms=37,
)


def payload(event: str, **fields: Any) -> dict[str, Any]:
    """Return a payload as the reference describes it."""
    return {
        "conversation_id": "c",
        "generation_id": "g",
        "hook_event_name": event,
        "cursor_version": "2.4.0",
        "workspace_roots": ["/p", "/q"],
        "transcript_path": None,
        **fields,
    }


def told(event: str, **fields: Any) -> tuple[AnyHappening, ...]:
    return adapter.read(payload(event, **fields), None).happenings


@pytest.mark.parametrize(
    ("name", "happenings", "injects"),
    [
        ("sessionStart", (SessionStarted("startup"),), True),
        ("postToolUse.Write", (WRITTEN,), True),
        ("preCompact", (WindowUsed(120_000, 128_000), Compacting("auto"), Compacted()), False),
    ],
)
def test_every_recorded_payload_becomes_exactly_this_report(
    name: str, happenings: tuple[AnyHappening, ...], injects: bool
) -> None:
    given = recorded("cursor", name)
    assert recognise("claude", given, {}) is adapter
    assert adapter.read(given, None) == Report(
        harness="cursor",
        event=name.split(".")[0],
        session_id=CONVERSATION,
        happenings=happenings,
        cwd="/path/to/repo",
        injects=injects,
        version=given["cursor_version"],
    )


@pytest.mark.parametrize(
    ("event", "fields", "happening"),
    [
        ("beforeSubmitPrompt", {"prompt": "Fix it", "attachments": []}, PromptSubmitted("Fix it")),
        ("beforeSubmitPrompt", {"prompt": " "}, Noted("empty_prompt")),
        ("stop", {"status": "completed", "loop_count": 0}, Paused()),
        ("stop", {"status": "aborted"}, Paused()),
        ("stop", {"status": "error"}, Failed("the turn failed")),
        ("stop", {"status": "error", "error_message": "529"}, Failed("529")),
        ("sessionEnd", {"reason": "window_close"}, SessionEnded("window_close")),
        ("beforeShellExecution", {"command": "make"}, ToolStarted("Shell", command="make")),
        (
            "afterShellExecution",
            {"command": "make", "output": "x", "duration": 12.4},
            ToolFinished("Shell", command="make", duration_ms=12),
        ),
        (
            "afterFileEdit",
            {"file_path": "/p/a.py", "edits": [{"old_string": "a", "new_string": "b"}]},
            ToolFinished("Edit", edited=("/p/a.py",), passed=True),
        ),
    ],
)
def test_an_event_tells_one_thing(
    event: str, fields: dict[str, Any], happening: AnyHappening
) -> None:
    assert told(event, **fields) == (happening,)


@pytest.mark.parametrize("odd", [-1, "7", None, True, 10**12, 10**400, {}])
def test_how_full_the_window_is_comes_before_the_compaction(odd: Any) -> None:
    compacted = (Compacting("auto"), Compacted())
    assert told("preCompact", context_tokens=odd, context_window_size=9) == compacted
    told_of = told("preCompact", context_tokens=7, context_window_size=odd)
    assert told_of == (WindowUsed(7), *compacted)


def test_a_command_passed_when_its_exit_code_says_so() -> None:
    call = {"tool_name": "Shell", "tool_input": {"command": "npm test"}, "tool_use_id": "t"}
    for code, passed in ((0, True), (3, False)):
        output = json.dumps({"output": "1 failed\n", "exitCode": code})
        (finished,) = told("postToolUse", **call, tool_output=output, duration=48_213)
        assert finished == ToolFinished(
            "Shell",
            call_id="t",
            command="npm test",
            passed=passed,
            error=None if passed else "Exit code 3\n1 failed",
            duration_ms=48_213,
        )


def test_a_failed_tool_tells_why() -> None:
    call = {"tool_name": "Shell", "tool_input": {"command": "false"}, "tool_use_id": "t"}
    (failed,) = told("postToolUseFailure", **call, error_message="Command failed", duration=5)
    assert failed == ToolFinished(
        "Shell",
        call_id="t",
        command="false",
        passed=False,
        error="Command failed",
        duration_ms=5,
    )


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("StrReplace", {"path": "a.py", "old_string": "x", "new_string": "y"}),
        ("Delete", {"target_file": "/p/a.py"}),
        ("ApplyPatch", "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"),
        ("ApplyPatch", {"patch": "*** Begin Patch\n*** Delete File: /p/a.py\n*** End Patch"}),
    ],
)
def test_an_edit_names_its_file_whatever_the_tool(tool: str, given: Any) -> None:
    (finished,) = told("postToolUse", tool_name=tool, tool_input=given, tool_output="{}")
    assert isinstance(finished, ToolFinished)
    assert finished.edited == ("/p/a.py",)


def test_a_list_of_to_dos_is_the_plan() -> None:
    todos = [{"id": "1", "content": "one", "status": "completed"}]
    items = (PlanItem("one", "completed", id="1"),)
    for merge in (False, True):
        given = {"todos": todos, "merge": merge}
        happenings = told("postToolUse", tool_name="TodoWrite", tool_input=given)
        assert happenings[1:] == (Planned(items, whole=not merge),)


def test_a_subagent_is_known_by_its_own_id_in_its_parents_conversation() -> None:
    about = {"subagent_id": "s1", "subagent_type": "explore", "parent_conversation_id": "above"}
    begun = adapter.read(payload("subagentStart", **about), None)
    ended = adapter.read(payload("subagentStop", **about, summary="Found it"), None)
    assert {(each.session_id, each.subagent) for each in (begun, ended)} == {("above", "s1")}
    assert only(begun) == SubagentStarted("explore")
    assert only(ended) == SubagentEnded("Found it")


def test_its_directory_is_the_first_root_unless_it_names_one() -> None:
    assert adapter.read(payload("stop"), None).cwd == "/p"
    assert adapter.read(payload("stop", cwd="/p/sub"), None).cwd == "/p/sub"
    assert adapter.read(payload("stop", workspace_roots=[]), None).cwd is None


def test_claudes_settings_are_run_under_claudes_names() -> None:
    given = payload("UserPromptSubmit", prompt="Fix it")
    report = recognise("claude", given, {}).read(given, None)
    assert (report.harness, report.event) == ("cursor", "beforeSubmitPrompt")
    assert only(report) == PromptSubmitted("Fix it")


def test_an_event_of_no_interest_tells_nothing() -> None:
    assert told("afterAgentThought", text="hm") == ()
    assert told("workspaceOpen") == ()


def test_a_payload_without_event_or_conversation_is_unfit() -> None:
    for missing in ("hook_event_name", "conversation_id"):
        given = payload("stop")
        del given[missing]
        with pytest.raises(Unfit, match=missing):
            adapter.read(given, None)


def test_a_briefing_is_told_where_it_reaches_the_model() -> None:
    for event in ("sessionStart", "beforeSubmitPrompt", "postToolUse"):
        report = adapter.read(payload(event), None)
        said = adapter.reply(report, Answer(context="Mission: x"))
        assert json.loads(said) == {"additional_context": "Mission: x"}
    for event in ("preCompact", "stop", "sessionEnd", "postToolUseFailure", "afterFileEdit"):
        assert adapter.reply(adapter.read(payload(event), None), Answer(context="x")) == ""


def test_a_briefing_that_would_be_dropped_whole_is_cut() -> None:
    report = adapter.read(payload("postToolUse"), None)
    said = json.loads(adapter.reply(report, Answer(context="a" + "\U0001f600" * 9_000)))
    kept = said["additional_context"]
    assert kept == "a" + "\U0001f600" * 4_999
    assert len(kept.encode("utf-16-le")) // 2 <= 10_000


def test_an_edit_can_be_refused_before_it_is_made() -> None:
    given = {"tool_name": "Write", "tool_input": {"file_path": "a.py"}}
    report = adapter.read(payload("preToolUse", **given), None)
    assert only(report) == ToolStarted("Write", edits=("/p/a.py",))
    said = json.loads(adapter.reply(report, Answer(deny="held by another")))
    assert said == {
        "permission": "deny",
        "user_message": "held by another",
        "agent_message": "held by another",
    }
    assert adapter.reply(report, Answer()) == ""
    shell = {"tool_name": "Shell", "tool_input": {"command": "ls"}}
    assert not adapter.read(payload("preToolUse", **shell), None).denies
