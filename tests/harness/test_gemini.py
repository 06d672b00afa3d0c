"""What Gemini CLI tells with each of its events, and what it is told in return."""

import json
from typing import Any

import pytest

from fleetd.harness.detect import recognise
from fleetd.harness.gemini import adapter
from fleetd.harness.payload import COMMAND_CHARS, ERROR_CHARS, MESSAGE_CHARS, PROMPT_CHARS
from fleetd.harness.report import (
    Answer,
    AnyHappening,
    Compacting,
    Noted,
    Paused,
    PermissionRequested,
    PlanItem,
    Planned,
    PlanProposed,
    PromptSubmitted,
    QuestionAsked,
    Report,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    Unfit,
)

from .recorded import names, only, recorded, texts_of

# The two runs that were recorded.
FIRST, SECOND = "/home/user/gm/proj", "/home/user/project"
SHELL = "run_shell_command"
# What is left of a long line below "Exit code 3" and "…".
ROOM = "x" * (ERROR_CHARS - 14)
TODOS = (PlanItem("one", "completed"), PlanItem("two", "in_progress"))
NO_MATCH = (
    "Could not find an exact match for 'old_string' in 'hello.py'. If previous edits modified the"
    " file or you are modifying lines outside your recent read window, please use ReadFile to"
    " inspect the target lines before retrying with an exact 'old_string'."
)
RECORDED: dict[str, tuple[AnyHappening, ...]] = {
    "SessionStart": (SessionStarted("startup"),),
    "BeforeModel": (),
    "BeforeAgent": (PromptSubmitted("Create hello.txt"),),
    "BeforeAgent.files": (PromptSubmitted("Look at @notes.txt please"),),
    "PreCompress": (Compacting("auto", certain=False),),
    "BeforeTool.write_file": (ToolStarted("write_file", edits=(f"{FIRST}/hello.txt",)),),
    "AfterTool.write_file": (
        ToolFinished("write_file", edited=(f"{FIRST}/hello.txt",), passed=True),
    ),
    "BeforeTool.replace": (ToolStarted("replace", edits=(f"{SECOND}/hello.py",)),),
    "AfterTool.replace": (ToolFinished("replace", edited=(f"{SECOND}/hello.py",), passed=True),),
    "AfterTool.replace.failed": (ToolFinished("replace", passed=False, error=NO_MATCH),),
    "AfterTool.read_file.failed": (
        ToolFinished("read_file", passed=False, error=f"File not found: {SECOND}/nothere.py"),
    ),
    "BeforeTool.run_shell_command": (ToolStarted(SHELL, command="false"),),
    "AfterTool.run_shell_command": (
        ToolFinished(SHELL, command="false", passed=False, error="Exit code 1"),
    ),
    "AfterTool.run_shell_command.4": (
        ToolFinished(
            SHELL,
            command="echo out; echo 'Exit Code: 3'; exit 4",
            passed=False,
            error="Exit code 4\nout\nExit Code: 3",
        ),
    ),
    "AfterTool.run_shell_command.killed": (
        ToolFinished(SHELL, command="kill -9 $$", passed=False, error="Signal 9"),
    ),
    "AfterTool.run_shell_command.background": (
        ToolFinished(SHELL, command="sleep 3", background=True),
    ),
    "AfterTool.write_todos": (
        ToolFinished("write_todos", passed=True),
        Planned(TODOS, whole=True),
    ),
    "AfterAgent": (Paused("done"),),
    "SessionEnd": (SessionEnded("exit"),),
}


def payload(event: str, **fields: Any) -> dict[str, Any]:
    """Return a payload as the reference describes it."""
    return {
        "session_id": "s",
        "transcript_path": "/h/.gemini/tmp/p/chats/session.jsonl",
        "cwd": "/p",
        "hook_event_name": event,
        "timestamp": "2026-11-21T20:14:22.000Z",
        **fields,
    }


def read(event: str, **fields: Any) -> Report:
    return adapter.read(payload(event, **fields), None)


def ran(said: Any, **response: Any) -> ToolFinished:
    """Return how a command ended, as the model was told about it."""
    given = {"tool_name": "run_shell_command", "tool_input": {"command": "make"}}
    finished = only(read("AfterTool", **given, tool_response={"llmContent": said, **response}))
    assert isinstance(finished, ToolFinished)
    assert (finished.tool, finished.command) == ("run_shell_command", "make")
    return finished


@pytest.mark.parametrize("name", names("gemini"))
def test_every_recorded_payload_becomes_exactly_this_report(name: str) -> None:
    given = recorded("gemini", name)
    event = name.partition(".")[0]
    for argument in ("gemini", "claude"):
        assert recognise(argument, given, {"CLAUDE_PROJECT_DIR": FIRST}) is adapter
    assert given["cwd"] in (FIRST, SECOND)
    assert given["transcript_path"].endswith(f"{given['session_id'][:8]}.jsonl")
    assert adapter.read(given, None) == Report(
        harness="gemini",
        event=event,
        session_id=given["session_id"],
        happenings=RECORDED[name],
        cwd=given["cwd"],
        transcript_path=given["transcript_path"],
        moment=given["timestamp"],
        injects=event in ("SessionStart", "BeforeAgent", "AfterTool"),
        denies=name in ("BeforeTool.write_file", "BeforeTool.replace"),
        seeks_compaction=event in ("BeforeAgent", "BeforeTool", "AfterTool", "BeforeModel"),
        request_opening="<session_context>\nSetup\n" if event == "BeforeModel" else None,
    )


@pytest.mark.parametrize(
    ("event", "fields", "happening"),
    [
        ("SessionStart", {"source": "resume"}, SessionStarted("resume")),
        ("SessionStart", {"source": "clear"}, SessionStarted("clear")),
        ("SessionStart", {"source": 7}, SessionStarted("startup")),
        ("BeforeAgent", {"prompt": " Fix it\n"}, PromptSubmitted("Fix it")),
        ("BeforeAgent", {"prompt": " "}, Noted("empty_prompt")),
        ("BeforeAgent", {}, Noted("empty_prompt")),
        ("AfterAgent", {"prompt_response": "[no response text]"}, Paused()),
        ("AfterAgent", {}, Paused()),
        ("PreCompress", {"trigger": "manual"}, Compacting("manual", certain=False)),
        ("PreCompress", {}, Compacting("auto", certain=False)),
        ("SessionEnd", {"reason": "clear"}, SessionEnded("clear")),
        (
            "Notification",
            {"notification_type": "ToolPermission", "message": "May it?", "details": {}},
            PermissionRequested("May it?"),
        ),
        *(
            (
                "Notification",
                {"notification_type": "ToolPermission", "message": "It asks", "details": details},
                PermissionRequested(about),
            )
            for details, about in (
                ({"type": "exec", "command": "make", "rootCommand": "make"}, "make"),
                ({"type": "edit", "fileName": "a.py", "filePath": "/p/a.py"}, "/p/a.py"),
                ({"type": "mcp", "serverName": "s", "toolName": "look"}, "look"),
                ({"type": "info", "prompt": "https://a.example"}, "https://a.example"),
                ({"type": "new", "command": 7}, "It asks"),
            )
        ),
        (
            "Notification",
            {"notification_type": "ToolPermission", "details": {"type": "ask_user"}},
            QuestionAsked(reminder=True),
        ),
        (
            "Notification",
            {"notification_type": "ToolPermission", "details": {"type": "exit_plan_mode"}},
            PlanProposed(reminder=True),
        ),
        ("BeforeTool", {}, ToolStarted("unknown")),
        ("AfterTool", {}, ToolFinished("unknown", passed=True)),
    ],
)
def test_an_event_tells_one_thing(
    event: str, fields: dict[str, Any], happening: AnyHappening
) -> None:
    assert only(read(event, **fields)) == happening


def test_what_was_put_into_a_prompt_is_not_the_users() -> None:
    ours = "<hook_context>Mission: a &lt;b&gt;\nNext: c</hook_context>\n\n"
    files = "\n--- Content from referenced files ---\nContent from @a.py:\nimport os\n"
    for before, after in ((ours, ""), (ours * 2, ""), ("", files), (ours, files)):
        assert only(read("BeforeAgent", prompt=f"{before}Fix @a.py{after}")) == PromptSubmitted(
            "Fix @a.py"
        )
    assert only(read("BeforeAgent", prompt=ours)) == Noted("empty_prompt")
    for kept in ("What is <hook_context>x</hook_context>?", "<hook_context>never closed"):
        assert only(read("BeforeAgent", prompt=kept)) == PromptSubmitted(kept)


@pytest.mark.parametrize(
    ("said", "passed", "error"),
    [
        ("Output: ok\nProcess Group PGID: 7", True, None),
        ("<untrusted_context>\nOutput: (empty)\n</untrusted_context>", True, None),
        ("Output: x\nExit Code: 0\nSignal: (none)\nProcess Group PGID: 7", True, None),
        ("Output: x\nExit Code: 2\nBackground PIDs: 8, 9\nProcess Group PGID: 7", False, "2\nx"),
        ("<untrusted_context>\nOutput: x\nExit Code: -1\n</untrusted_context>", False, "-1\nx"),
        ("Output: x\nExit Code: 1\n\n[System] Tool input parameters (a) were", False, "1\nx"),
        ("Output: the last one said\nExit Code: 1\nand went on\nProcess Group PGID: 7", True, None),
        ([{"text": "Output: x\nExit Code: 5"}], False, "5\nx"),
        ({"text": "Output: x\nExit Code: 6"}, False, "6\nx"),
        ("Output: (empty)\nExit Code: 1\nProcess Group PGID: 7", False, "1"),
        ("Output: (empty) list\nExit Code: 1\nProcess Group PGID: 7", False, "1\n(empty) list"),
        ("Command: echo Output: a\nOutput: b\nOutput: c\nExit Code: 1", False, "1\nb\nOutput: c"),
        (f"Output: {'x' * 100_000}\nExit Code: 3\nProcess Group PGID: 7", False, f"3\n…\n{ROOM}"),
        ("Everything was built, with two warnings.", None, None),
        ("Command moved to background (PID: 7). Output hidden.", None, None),
        (None, None, None),
    ],
)
def test_a_command_passed_unless_its_exit_code_is_told(
    said: Any, passed: bool | None, error: str | None
) -> None:
    finished = ran(said)
    assert finished.passed is passed
    assert finished.error == (error and f"Exit code {error}")
    assert finished.background is (isinstance(said, str) and "to background" in said)


def test_a_command_that_was_ended_did_not_pass() -> None:
    killed = ran("Output: x\nSignal: 9\nProcess Group PGID: 7")
    assert (killed.passed, killed.error) == (False, "Signal 9\nx")
    for how in ("by user before it could complete.", "because it exceeded the timeout of 5.0"):
        automatically = "automatically " if "timeout" in how else ""
        stopped = ran(f"<untrusted_context>\nCommand was {automatically}cancelled {how}")
        assert (stopped.passed, stopped.error) == (False, "interrupted before it ended")


def test_a_failed_tool_tells_why_and_changed_nothing() -> None:
    call = {"tool_name": "replace", "tool_input": {"file_path": "a.py"}}
    wrong = {"message": "0 occurrences found", "type": "edit_no_occurrence_found"}
    for error, said, why in (
        (wrong, "Failed to edit.", "0 occurrences found"),
        ({"type": "unknown"}, "Failed to edit.", "Failed to edit."),
        (True, None, "it failed without a reason"),
    ):
        response = {"llmContent": said, "returnDisplay": "no", "error": error}
        failed = only(read("AfterTool", **call, tool_response=response))
        assert failed == ToolFinished("replace", passed=False, error=why)
    assert ran("Output: x", error=wrong).passed is False


@pytest.mark.parametrize("tool", ["write_file", "replace"])
def test_an_edit_names_the_file_as_the_tool_resolved_it(tool: str) -> None:
    call = {"tool_name": tool, "tool_input": {"file_path": "a.py"}}
    display = {"filePath": "/elsewhere/a.py", "fileDiff": ""}
    for shown, file in ((display, "/elsewhere/a.py"), ("done", "/p/a.py"), ({}, "/p/a.py")):
        response = {"llmContent": "Done.", "returnDisplay": shown}
        assert only(read("AfterTool", **call, tool_response=response)) == ToolFinished(
            tool, edited=(file,), passed=True
        )


def test_a_tool_that_shows_a_file_without_changing_it_edits_nothing() -> None:
    response = {"llmContent": "text", "returnDisplay": {"filePath": "/p/a.py"}}
    call = {"tool_name": "read_file", "tool_input": {"file_path": "/p/a.py"}}
    finished = only(read("AfterTool", **call, tool_response=response))
    assert finished == ToolFinished("read_file", passed=True, read="/p/a.py")


def test_a_list_of_to_dos_is_the_whole_plan() -> None:
    todos = [
        {"description": "one", "status": "completed"},
        {"description": "two", "status": "in_progress"},
        {"description": "three", "status": "blocked"},
        {"description": "four", "status": "cancelled"},
    ]
    call = {"tool_name": "write_todos", "tool_input": {"todos": todos}}
    response = {"llmContent": "Successfully updated.", "returnDisplay": {"todos": todos}}
    finished, plan = read("AfterTool", **call, tool_response=response).happenings
    assert finished == ToolFinished("write_todos", passed=True)
    items = (
        PlanItem("one", "completed"),
        PlanItem("two", "in_progress"),
        PlanItem("three", "pending"),
        PlanItem("four", "dropped"),
    )
    assert plan == Planned(items, whole=True)
    refused = {"llmContent": "Invalid", "error": {"message": "Only one task"}}
    assert len(read("AfterTool", **call, tool_response=refused).happenings) == 1


def test_an_event_of_no_interest_tells_nothing() -> None:
    for event in ("BeforeModel", "AfterModel", "BeforeToolSelection", "NewOne"):
        assert read(event).happenings == ()


def test_a_payload_without_event_or_session_is_unfit() -> None:
    for missing in ("hook_event_name", "session_id"):
        given = payload("AfterAgent")
        del given[missing]
        with pytest.raises(Unfit, match=missing):
            adapter.read(given, None)
    del given["hook_event_name"]
    with pytest.raises(Unfit, match="session_id"):
        adapter.read(given, "AfterAgent")


@pytest.mark.parametrize("odd", [None, 7, "x", [], [7], {}, {"text": 7}, True, "\ud800\0"])
@pytest.mark.parametrize("event", ["BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"])
def test_fields_of_any_other_type_count_as_absent(event: str, odd: Any) -> None:
    for field in ("prompt", "tool_name", "tool_input", "tool_response", "cwd", "timestamp"):
        assert read(event, **{field: odd}).session_id == "s"
    inner = {"llmContent": odd, "returnDisplay": odd, "error": odd}
    for tool in ("run_shell_command", "write_file", "write_todos", "read_file"):
        given = {"command": odd, "file_path": odd, "todos": odd}
        read(event, tool_name=tool, tool_input=given, tool_response=inner)


def test_long_texts_are_cut() -> None:
    long = "x" * 1_000_000
    shell = {"tool_name": "run_shell_command", "tool_input": {"command": long}}
    error = {"llmContent": long, "error": {"message": long}}
    for report, most in (
        (read("BeforeAgent", prompt=long), PROMPT_CHARS),
        (read("BeforeAgent", prompt=f"<hook_context>{long}</hook_context>{long}"), PROMPT_CHARS),
        (read("AfterAgent", prompt_response=long), MESSAGE_CHARS),
        (read("BeforeTool", **shell), COMMAND_CHARS),
        (read("AfterTool", **shell, tool_response=error), ERROR_CHARS),
        (read("Notification", message=long, notification_type=long), MESSAGE_CHARS),
    ):
        assert max(len(each) for each in texts_of(report)) == most


def test_a_briefing_is_told_where_it_reaches_the_model() -> None:
    for event in ("SessionStart", "BeforeAgent", "AfterTool"):
        said = adapter.reply(read(event), Answer(context="Mission: <x>"))
        output = {"hookEventName": event, "additionalContext": "Mission: <x>"}
        assert json.loads(said) == {"hookSpecificOutput": output}
        assert adapter.reply(read(event), Answer()) == ""
    for event in ("BeforeTool", "AfterAgent", "PreCompress", "Notification", "SessionEnd"):
        assert adapter.reply(read(event), Answer(context="x", deny="y")) == ""
    # Only a message to the user would be taken from there.
    assert adapter.reply(read("SessionStart", source="clear"), Answer(context="x")) == ""


@pytest.mark.parametrize("tool", ["write_file", "replace"])
def test_an_edit_can_be_refused_before_it_is_made(tool: str) -> None:
    report = read("BeforeTool", tool_name=tool, tool_input={"file_path": "a.py"})
    assert only(report) == ToolStarted(tool, edits=("/p/a.py",))
    said = adapter.reply(report, Answer(deny="held by another"))
    assert json.loads(said) == {"decision": "deny", "reason": "held by another"}
    assert adapter.reply(report, Answer()) == ""
    shell = {"tool_name": "run_shell_command", "tool_input": {"command": "ls"}}
    assert not read("BeforeTool", **shell).denies


def test_no_transcript_is_read_for_what_happened() -> None:
    assert not any(read(event).looks_back for event in ("AfterAgent", "PreCompress", "SessionEnd"))
    assert adapter.look_back('{"type":"gemini"}\n') == ()
