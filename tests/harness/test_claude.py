"""What Claude Code tells with each of its events, and what it is told in return."""

import json
from typing import Any

import pytest

from fleetd.harness.claude import adapter, droid, kimi, qwen
from fleetd.harness.payload import ERROR_CHARS
from fleetd.harness.report import (
    Answer,
    AnyHappening,
    Compacted,
    Compacting,
    DirectoryChanged,
    Failed,
    Noted,
    Paused,
    PermissionRequested,
    PlanItem,
    PlanLink,
    Planned,
    PlanProposed,
    PromptSubmitted,
    QuestionAsked,
    Refused,
    Report,
    RunningItem,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    Unfit,
    WindowUsed,
    WorkEnded,
    WorkRuns,
)

from .recorded import names, only, recorded

STEPS = (
    "Do these steps in order with tools, one tool call per step, never two in parallel: 1) Bash:"
    " true  2) Bash: false  3) Bash: grep -c zzz /dev/null  4) Edit tool: in .leopold/PLAN.md"
    " replace 'item one' with 'item one (edited)'  5) Edit tool: in PLAN.md (project root) replace"
    " 'root item' with 'root item (edited)'  6) Bash: sleep 6  7) Bash: cat .leopold/PLAN.md  8)"
    " Bash: cd sub && pwd. Then reply with the single word DONE."
)
PROJECT = "/private/tmp/leopold-hookprobe.gjQnXe/claude-project"
TRANSCRIPTS = "/Users/user/.claude/projects/-private-tmp-leopold-hookprobe-gjQnXe-claude-project"
WORK = "777e68b4-1ad1-4f6c-9d81-64d0cae95a84"
SQUEEZED = "8696992c-e252-4b26-aa6e-0f09b973a8fc"
RESUMED = "ea4f4119-202c-4931-9721-72c83db1f7af"
PARENT = "049615d1-d898-4fdb-ac17-53e8749b4b97"
INJECTS: dict[str, Any] = {"injects": True}

# The payload, its session, what it tells, and what else the report says.
TOLD: list[tuple[str, str, tuple[AnyHappening, ...], dict[str, Any]]] = [
    ("SessionStart.startup", WORK, (SessionStarted("startup"),), INJECTS),
    ("SessionStart.resume", RESUMED, (SessionStarted("resume"), WindowUsed(42_637)), INJECTS),
    ("SessionStart.compact", SQUEEZED, (SessionStarted("compact"),), INJECTS),
    ("UserPromptSubmit", WORK, (PromptSubmitted(STEPS),), INJECTS),
    (
        "PreToolUse.Bash",
        WORK,
        (ToolStarted("Bash", call_id="toolu_01QTAduNmuev93E45QX6sgsE", command="false"),),
        {},
    ),
    (
        "PostToolUse.Bash.reinterpreted_exit1",
        WORK,
        (
            ToolFinished(
                "Bash",
                call_id="toolu_01BkUCMD3BxMCBKacum25xQg",
                command="grep -c zzz /dev/null",
                passed=True,
                duration_ms=17,
            ),
        ),
        INJECTS,
    ),
    (
        "PostToolUse.Edit",
        WORK,
        (
            ToolFinished(
                "Edit",
                call_id="toolu_01F3Ro7STSqrLt9kMqMwtkZK",
                edited=(f"{PROJECT}/.leopold/PLAN.md",),
                passed=True,
                duration_ms=3,
            ),
        ),
        INJECTS,
    ),
    (
        "PostToolUseFailure.Bash",
        WORK,
        (
            ToolFinished(
                "Bash",
                call_id="toolu_01QTAduNmuev93E45QX6sgsE",
                command="false",
                passed=False,
                error="Exit code 1",
                duration_ms=11,
            ),
        ),
        INJECTS,
    ),
    ("PostToolBatch", WORK, (), {}),
    ("PreCompact.auto", SQUEEZED, (Compacting("auto"),), {}),
    ("PreCompact.manual", RESUMED, (Compacting("manual"),), {}),
    # The source cut the summary within its analysis: nothing is left.
    ("PostCompact.auto", SQUEEZED, (Compacted(None),), {}),
    (
        "PermissionRequest.Bash",
        "12f459b8-ddba-474a-8dbb-05427ec73267",
        (PermissionRequested("Bash: touch probe-allow.txt && echo PROBE_ALLOWED", beside=True),),
        {},
    ),
    (
        "SubagentStart",
        PARENT,
        (SubagentStarted("general-purpose"),),
        {"subagent": "acb594f61d1631b05", **INJECTS},
    ),
    (
        "SubagentStop",
        PARENT,
        (SubagentEnded("PONG"),),
        {
            "subagent": "acb594f61d1631b05",
            "subagent_transcript_path": (
                f"{TRANSCRIPTS}/{PARENT}/subagents/agent-acb594f61d1631b05.jsonl"
            ),
        },
    ),
    (
        "TaskCompleted",
        "24a348d1-5aa2-479f-aefe-51d20940d6cf",
        (Planned((PlanItem("probe task", "completed", "1"),), whole=False, shared=True),),
        {},
    ),
    ("SessionEnd.other", WORK, (SessionEnded("other"),), {"cwd": f"{PROJECT}/sub"}),
]
SESSION_LIMIT = "You've hit your session limit · resets 9pm"
SILENT = [
    *("PreToolUse", "PostToolBatch", "PreCompact", "PostCompact", "Stop", "SubagentStop"),
    *("StopFailure", "Interrupt", "TaskCreated", "TaskCompleted", "Notification", "TeammateIdle"),
    *("PermissionRequest", "PermissionDenied", "SessionEnd", "ConfigChange", "MessageDisplay"),
    *("UserPromptExpansion", "WorktreeCreate", "Elicitation", "WhateverComesNext"),
]
EVERYTHING = Answer(context="Mission: x", deny="held by another")


def said(event: str, **fields: Any) -> Report:
    payload = {"session_id": "s-1", "cwd": "/p", "hook_event_name": event, **fields}
    return adapter.read(payload, None)


def tool(name: str, given: Any = None, result: Any = None, **fields: Any) -> Report:
    return said("PostToolUse", tool_name=name, tool_input=given, tool_response=result, **fields)


@pytest.mark.parametrize(("name", "session", "happenings", "more"), TOLD)
def test_a_recorded_payload_gives_this_report(
    name: str, session: str, happenings: tuple[AnyHappening, ...], more: dict[str, Any]
) -> None:
    expected = {
        "harness": "claude",
        "event": name.split(".")[0],
        "session_id": session,
        "happenings": happenings,
        "cwd": PROJECT,
        "transcript_path": f"{TRANSCRIPTS}/{session}.jsonl",
    }
    assert adapter.read(recorded("claude", name), None) == Report(**{**expected, **more})


def test_what_a_resumed_session_holds_is_told_with_its_start() -> None:
    def used(**fields: Any) -> tuple[AnyHappening, ...]:
        return said("SessionStart", source="resume", **fields).happenings[1:]

    assert used(context_tokens=7, model="claude-opus-4-6") == (WindowUsed(7),)
    assert used(context_tokens=7, model="claude-opus-4-6[1m]") == (WindowUsed(7, 1_000_000),)
    for odd in (-1, "7", None, True, 10**12, 10**400, {}):
        assert used(context_tokens=odd) == ()


def test_no_recorded_payload_is_left_out() -> None:
    assert names("claude") == sorted([*(told[0] for told in TOLD), "PreCompact.auto.2025"])


def test_a_payload_of_2025_gives_the_same_report() -> None:
    given = recorded("claude", "PreCompact.auto.2025")
    assert adapter.read(given, None) == Report(
        harness="claude",
        event="PreCompact",
        session_id=given["session_id"],
        happenings=(Compacting("auto"),),
        cwd="/Users/user/GDrive/Projects/attio-mcp-server",
        transcript_path=given["transcript_path"],
    )


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("fork", "startup"),
        ("clear", "clear"),
        ("next", "startup"),
        (None, "startup"),
        (3, "startup"),
    ],
)
def test_a_session_that_starts_in_another_way_starts_anew(source: Any, meant: Any) -> None:
    assert only(said("SessionStart", source=source)) == SessionStarted(meant)


@pytest.mark.parametrize("source", [None, "user", "sdk"])
def test_what_a_person_wrote_is_a_prompt(source: str | None) -> None:
    report = said("UserPromptSubmit", prompt=" Fix <b>it</b>,\n\tplease ", source=source)
    assert only(report) == PromptSubmitted("Fix <b>it</b>,\n\tplease")


@pytest.mark.parametrize("source", ["system", "loop_wakeup", "schedule_wakeup", "poll_event"])
def test_what_a_machine_put_in_is_none(source: str) -> None:
    report = said("UserPromptSubmit", prompt="Agent b is done", source=source)
    assert only(report) == Noted("machine_prompt", "Agent b is done")
    assert report.injects


def test_what_stands_before_a_prompt_is_taken_out() -> None:
    before = "<system-reminder>\nToday is\n</system-reminder>\n<system-reminder>b</system-reminder>"
    report = said("UserPromptSubmit", prompt=f"{before}\n Go on <system-reminder>x")
    assert only(report) == PromptSubmitted("Go on <system-reminder>x")
    alone = "<task-notification>shell 3 ended</task-notification>"
    assert only(said("UserPromptSubmit", prompt=alone)) == Noted("machine_prompt", alone)
    unclosed = "<system-reminder> is a word of yours?"
    assert only(said("UserPromptSubmit", prompt=unclosed)) == PromptSubmitted(unclosed)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("Edit", "file_path"),
        ("MultiEdit", "file_path"),
        ("Write", "file_path"),
        ("NotebookEdit", "notebook_path"),
    ],
)
def test_editing_tools_name_their_file_before_and_after(name: str, field: str) -> None:
    given = {field: "src/../src/a.py", "content": "x" * 500_000}
    before = said("PreToolUse", tool_name=name, tool_input=given, tool_use_id="t-1")
    assert only(before) == ToolStarted(name, call_id="t-1", edits=("/p/src/a.py",))
    assert before.denies
    after = only(tool(name, given, {"filePath": "/p/src/a.py"}))
    assert after == ToolFinished(name, edited=("/p/src/a.py",), passed=True)


def test_a_file_that_only_the_result_names_is_found() -> None:
    after = only(tool("Write", {}, {"filePath": "/p/b.py"}))
    assert after == ToolFinished("Write", edited=("/p/b.py",), passed=True)


@pytest.mark.parametrize("name", ["Read", "mcp__files__write", "mcp__shell__bash", "Task"])
def test_other_tools_edit_nothing_and_run_no_command(name: str) -> None:
    given = {"file_path": "/p/a.py", "command": "rm -rf /"}
    read = "/p/a.py" if name == "Read" else None
    assert only(tool(name, given)) == ToolFinished(name, passed=True, read=read)
    before = said("PreToolUse", tool_name=name, tool_input=given)
    assert only(before) == ToolStarted(name)
    assert not before.denies


@pytest.mark.parametrize(
    ("name", "given", "file"),
    [
        ("Read", {"file_path": "/p/a.py", "offset": 3}, "/p/a.py"),
        ("ReadFile", {"path": "b.py"}, "/p/b.py"),
        ("read_file", {"absolute_path": "/p/../p/c.py"}, "/p/c.py"),
        ("view", {"path": "/p/d.py"}, "/p/d.py"),
        ("NotebookRead", {"notebook_path": "/p/e.ipynb"}, "/p/e.ipynb"),
        ("Read", {"file_path": 5}, None),
        ("Read", {}, None),
        ("Grep", {"path": "/p"}, None),
        ("Edit", {"file_path": "/p/a.py"}, None),
    ],
)
def test_a_tool_that_reads_a_file_tells_which(
    name: str, given: dict[str, Any], file: str | None
) -> None:
    told = only(tool(name, given, cwd="/p"))
    assert isinstance(told, ToolFinished)
    assert told.read == file


@pytest.mark.parametrize(
    ("result", "passed", "error"),
    [
        ({"stdout": "", "interrupted": False}, True, None),
        ({"interrupted": True}, False, "interrupted before it ended"),
        ({"backgroundTaskId": "b1"}, None, None),
        ({"exit_code": 0}, True, None),
        ({"exit_code": 2}, False, "Exit code 2"),
        ({"exit_code": 2, "stdout": "", "stderr": "no rule\n"}, False, "Exit code 2\nno rule"),
        ({"exit_code": 2, "stdout": "x\n", "stderr": "y\n"}, False, "Exit code 2\nx\ny"),
        ({"exit_code": 1, "returnCodeInterpretation": "No matches found"}, True, None),
        ("(Bash completed with no output)", True, None),
        (None, True, None),
    ],
)
def test_how_a_command_went_is_told_by_its_result(
    result: Any, passed: bool | None, error: str | None
) -> None:
    told, *_ = tool("Bash", {"command": "make"}, result).happenings
    runs_on = passed is None
    wanted = ToolFinished("Bash", command="make", passed=passed, error=error, background=runs_on)
    assert told == wanted


def test_what_goes_to_the_background_runs_on() -> None:
    result = {"backgroundTaskId": "b1", "outputFile": "/tmp/b1.out"}
    _, runs = tool("Bash", {"command": "npm run dev"}, result).happenings
    assert runs == WorkRuns((RunningItem("b1", "shell", "npm run dev", "/tmp/b1.out"),))


def test_a_subagent_that_runs_on_is_known_by_what_it_was_told_and_its_output() -> None:
    result = {"isAsync": True, "agentId": "a1", "outputFile": "/tmp/a1.output"}
    given = {"description": "Read the notes", "prompt": "Read the notes, please"}
    _, runs = tool("Agent", given, result).happenings
    told = RunningItem("a1", "subagent", "Read the notes", "/tmp/a1.output")
    assert runs == WorkRuns((told,))
    assert len(tool("Agent", given, result | {"isAsync": False}).happenings) == 1


def test_the_end_of_a_turn_names_all_that_runs() -> None:
    tasks = [
        {"id": "b1", "type": "shell", "status": "running", "description": "Dev server"},
        {"id": "a1", "type": "subagent", "status": "running", "description": "Look"},
        {"id": "m1", "type": "monitor", "status": "running", "description": "Logs"},
        {"type": "shell"},
        "junk",
    ]
    crons = [{"id": "c1", "schedule": "0 9 * * *", "recurring": True, "prompt": "Check"}]
    runs, paused = said("Stop", background_tasks=tasks, session_crons=crons).happenings
    assert runs == WorkRuns(
        (
            RunningItem("b1", "shell", "Dev server"),
            RunningItem("a1", "subagent", "Look"),
            RunningItem("m1", "task", "Logs"),
            RunningItem("c1", "schedule", "0 9 * * *: Check"),
        ),
        whole=("shell", "subagent", "task", "schedule"),
    )
    assert paused == Paused()
    nothing, _ = said("Stop", background_tasks=[], session_crons=[]).happenings
    assert nothing == WorkRuns((), whole=("shell", "subagent", "task", "schedule"))


@pytest.mark.parametrize(
    ("name", "given", "waits"),
    [
        (
            "AskUserQuestion",
            {"questions": [{"question": "Which limit?", "header": "Limit"}]},
            QuestionAsked("Which limit?"),
        ),
        ("AskUserQuestion", {"questions": "junk"}, QuestionAsked(None)),
        ("ExitPlanMode", {"plan": "# Plan"}, PlanProposed("# Plan")),
    ],
)
def test_a_tool_that_waits_for_the_user_says_so(
    name: str, given: dict[str, Any], waits: AnyHappening
) -> None:
    started, asked = said("PreToolUse", tool_name=name, tool_input=given).happenings
    assert started == ToolStarted(name)
    assert asked == waits


def test_a_command_of_which_claude_saw_the_changes_edits_files() -> None:
    seen = {"changedFiles": ["/p/a.py", 3, "b.py", "/p/a.py"], "files": []}
    told = only(tool("Bash", {"command": "sed -i s/a/b/ *.py"}, {"bashEditDiff": seen}))
    assert isinstance(told, ToolFinished)
    assert told.edited == ("/p/a.py", "/p/b.py")
    shared = {"bashEditDiff": {**seen, "shared": True}}
    assert only(tool("Bash", {"command": "make"}, shared)) == ToolFinished(
        "Bash", command="make", passed=True
    )


def test_a_tool_that_the_user_stopped_says_so() -> None:
    report = said(
        "PostToolUseFailure", tool_name="Bash", tool_input={"command": "sleep 9"},
        error="Request interrupted", is_interrupt=True,
    )  # fmt: skip
    assert only(report) == ToolFinished(
        "Bash", command="sleep 9", passed=False, error="stopped by the user: Request interrupted"
    )


def test_of_a_long_command_that_the_user_stopped_the_end_is_told() -> None:
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "is_interrupt": True}
    printed = "".join(f"line {n:04}\n" for n in range(1_000))
    told = only(said("PostToolUseFailure", **call, error=f"Exit code 130\n{printed}"))
    assert isinstance(told, ToolFinished)
    assert told.error is not None
    assert told.error.startswith("stopped by the user: Exit code 130\n…\nline 0")
    assert told.error.endswith("line 0998\nline 0999")
    assert len(told.error) <= ERROR_CHARS


def test_a_failure_without_a_reason_is_a_failure() -> None:
    told = only(said("PostToolUseFailure", tool_name="Write", tool_input={"file_path": "/p/a"}))
    assert told == ToolFinished("Write", passed=False, error="it failed without a reason")


def test_a_tool_without_a_name_is_still_a_call() -> None:
    assert only(said("PostToolUse")) == ToolFinished("unknown", passed=True)


def test_todo_lists_are_whole_plans() -> None:
    todos = [
        {"content": "Read", "status": "completed", "activeForm": "Reading"},
        {"content": "Write", "status": "in_progress", "activeForm": "Writing"},
        {"content": "Test", "status": "pending", "activeForm": "Testing"},
        {"content": "", "status": "pending"},
        "Rest",
    ]
    finished, plan = tool("TodoWrite", {"todos": todos}, {"newTodos": todos}).happenings
    assert finished == ToolFinished("TodoWrite", passed=True)
    items = (
        PlanItem("Read", "completed"),
        PlanItem("Write", "in_progress"),
        PlanItem("Test", "pending"),
    )
    assert plan == Planned(items, whole=True)


def test_an_emptied_todo_list_is_an_empty_plan() -> None:
    assert tool("TodoWrite", {"todos": []}).happenings[1:] == (Planned((), whole=True),)
    assert tool("TodoWrite", {"todos": None}).happenings[1:] == ()


@pytest.mark.parametrize(
    ("name", "given", "result", "item"),
    [
        (
            "TaskCreate",
            {"subject": "Parse", "description": "long"},
            {"task": {"id": "7", "subject": "Parse"}},
            PlanItem("Parse", "pending", "7"),
        ),
        (
            "TaskCreate",
            {"subject": "Parse"},
            {"task": {"id": 7}},
            PlanItem("Parse", "pending", "7"),
        ),
        ("TaskCreate", {"subject": "Parse"}, "Task #7 created", PlanItem("Parse", "pending")),
        (
            "TaskUpdate",
            {"taskId": "7", "status": "in_progress"},
            {"success": True, "statusChange": {"from": "pending", "to": "in_progress"}},
            PlanItem("", "in_progress", "7"),
        ),
        (
            "TaskUpdate",
            {"taskId": "7", "status": "completed", "subject": "Parse it"},
            {"success": True},
            PlanItem("Parse it", "completed", "7"),
        ),
        ("TaskUpdate", {"taskId": "7", "status": "deleted"}, {}, PlanItem("", "dropped", "7")),
    ],
)
def test_task_tools_change_one_item(name: str, given: Any, result: Any, item: PlanItem) -> None:
    told = Planned((item,), whole=False, shared=True)
    assert tool(name, given, result).happenings[1:] == (told,)


@pytest.mark.parametrize(
    ("name", "given", "links"),
    [
        (
            "TaskUpdate",
            {"taskId": "7", "addBlockedBy": ["1", 2], "addBlocks": ["9"]},
            (PlanLink("7", "1"), PlanLink("7", "2"), PlanLink("9", "7")),
        ),
        ("TaskUpdate", {"taskId": "7", "blockedBy": ["1"]}, (PlanLink("7", "1"),)),
        (
            "TaskUpdate",
            {"taskId": "7", "removeBlockedBy": ["1"]},
            (PlanLink("7", "1", ends=True),),
        ),
        (
            "TaskUpdate",
            {"taskId": "7", "addBlockedBy": ["7", None, {}, "", "3"]},
            (PlanLink("7", "3"),),
        ),
        ("TaskCreate", {"subject": "Parse", "blocks": ["1"]}, (PlanLink("1", "5"),)),
    ],
)
def test_task_tools_tell_which_task_waits_for_which(name: str, given: Any, links: Any) -> None:
    plan = tool(name, given, {"task": {"id": "5"}}).happenings[1]
    assert isinstance(plan, Planned)
    assert (plan.links, plan.shared, plan.whole) == (links, True, False)
    assert bool(plan.items) == (name == "TaskCreate")


def test_a_task_update_may_change_the_status_and_what_it_waits_for() -> None:
    given = {"taskId": "7", "status": "in_progress", "addBlockedBy": ["1"]}
    item = PlanItem("", "in_progress", "7")
    told = Planned((item,), whole=False, shared=True, links=(PlanLink("7", "1"),))
    assert tool("TaskUpdate", given, {"success": True}).happenings[1:] == (told,)


@pytest.mark.parametrize(
    ("name", "given", "result"),
    [
        ("TaskUpdate", {"taskId": "7", "addBlockedBy": "1"}, {}),
        ("TaskUpdate", {"taskId": "7", "addBlockedBy": ["1"]}, {"success": False}),
        ("TaskUpdate", {"taskId": "7", "owner": "b"}, {"success": True}),
        ("TaskUpdate", {"taskId": "7", "status": "completed"}, {"success": False}),
        ("TaskUpdate", {"status": "completed"}, {}),
        ("TaskCreate", {}, {"task": {"id": "7"}}),
        ("TaskList", {}, {"tasks": []}),
    ],
)
def test_a_task_tool_that_changed_nothing_tells_no_plan(name: str, given: Any, result: Any) -> None:
    assert tool(name, given, result).happenings[1:] == ()


def test_the_events_about_tasks_say_what_the_tools_say() -> None:
    created = only(said("TaskCreated", task_id="7", task_subject="Parse"))
    assert (created,) == tool("TaskCreate", {"subject": "Parse"}, {"task": {"id": "7"}}).happenings[
        1:
    ]
    assert said("TaskCreated").happenings == ()


def test_the_fork_that_writes_the_summary_is_no_subagent() -> None:
    report = said("SubagentStop", agent_id="a1", agent_type="", last_assistant_message="<summary>")
    assert report.happenings == ()
    assert report.subagent is None


def test_a_subagent_without_an_id_is_nobody() -> None:
    assert said("SubagentStop", last_assistant_message="PONG").happenings == ()
    assert said("SubagentStart", agent_type="Explore").happenings == ()


def test_what_a_subagent_does_is_its_own() -> None:
    report = said("PostToolUse", tool_name="Read", agent_id="a1", agent_type="Explore")
    assert report.subagent == "a1"
    assert said("PreCompact", agent_id="a1", agent_type="Explore").subagent == "a1"
    assert said("PostToolUse", tool_name="Read", agent_type="reviewer").subagent is None


def test_of_a_summary_the_analysis_is_left_out() -> None:
    raw = "<analysis>\nfirst\n</analysis>\n\n<summary>\n1. Intent\n</summary>"
    assert only(said("PostCompact", compact_summary=raw)) == Compacted("1. Intent")
    assert only(said("PostCompact", compact_summary="Plain")) == Compacted("Plain")
    assert only(said("PostCompact", compact_summary=None)) == Compacted(None)


def test_the_end_of_a_turn_keeps_the_answer() -> None:
    assert only(said("Stop", last_assistant_message="DONE")) == Paused("DONE")
    assert only(said("Stop", stop_hook_active=True)) == Paused(None)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"error": "invalid_request", "error_details": "too long"},
            Failed("invalid_request: too long", shown_message="too long"),
        ),
        ({"error": "overloaded"}, Failed("overloaded")),
        (
            {"error": "rate_limit", "last_assistant_message": SESSION_LIMIT},
            Failed(f"rate_limit: {SESSION_LIMIT}", limited=True, shown_message=SESSION_LIMIT),
        ),
        (
            {"error": "rate_limit", "error_details": "429", "last_assistant_message": "Wait"},
            Failed("rate_limit: 429", limited=True, shown_message="Wait"),
        ),
        ({}, Failed("unknown")),
    ],
)
def test_a_turn_that_broke_off_says_why(fields: dict[str, str], told: Failed) -> None:
    assert only(said("StopFailure", **fields)) == told


@pytest.mark.parametrize(
    ("tool", "given", "told"),
    [
        ("WebFetch", {"url": "https://example.org/a", "prompt": "Read"}, "https://example.org/a"),
        ("WebSearch", {"query": "trio cancel scopes"}, "trio cancel scopes"),
        ("Read", {"file_path": "/work/project/src/a.py"}, "src/a.py"),
        ("Write", {"file_path": "/work/project/b.py", "content": "x"}, "b.py"),
        ("Edit", {"file_path": "/etc/hosts", "old_string": "a"}, "/etc/hosts"),
        ("NotebookEdit", {"notebook_path": "/work/project/n.ipynb"}, "n.ipynb"),
        ("Grep", {"pattern": "TODO", "path": "/work/project/src"}, "TODO"),
        ("Task", {"description": "Look for bugs", "prompt": "Look"}, "Look for bugs"),
        ("Bash", {"command": "make", "description": "Build"}, "make"),
    ],
)
def test_a_request_for_permission_says_what_the_call_is_about(
    tool: str, given: dict[str, str], told: str
) -> None:
    fields = {"cwd": "/work/project", "tool_name": tool, "tool_input": given}
    asked = only(said("PermissionRequest", **fields))
    assert asked == PermissionRequested(f"{tool}: {told}", beside=True)


def test_a_request_of_nobody_known_has_no_text() -> None:
    assert only(said("PermissionRequest")) == PermissionRequested(None, beside=True)


def test_a_plan_begins_with_what_it_says() -> None:
    given = {"plan": "# Plan\n\n## Steps\n\nAdd a form.\n# More"}
    _, told = said("PreToolUse", tool_name="ExitPlanMode", tool_input=given).happenings
    assert told == PlanProposed("Add a form.\n# More")


def test_a_limit_says_when_it_ends_if_claude_does() -> None:
    assert only(said("StopFailure", error="rate_limit")) == Failed("rate_limit", limited=True)
    details = "Claude usage limit reached|1767614400"
    told = only(said("StopFailure", error="rate_limit", error_details=details))
    assert isinstance(told, Failed)
    assert (told.limited, told.reset_at) == (True, "2026-01-05T12:00:00.000Z")
    assert told.message == "rate_limit: Claude usage limit reached"


def test_who_waits_for_the_user_pauses_and_other_notifications_are_noted() -> None:
    waiting = "Claude is waiting for your input"
    reminded = Paused(reminder=True)
    assert only(said("Notification", notification_type="idle_prompt", message=waiting)) == reminded
    assert only(said("Notification", message=waiting)) == reminded
    asked = said("Notification", notification_type="elicitation_dialog", message="Which?")
    assert only(asked) == QuestionAsked("Which?", reminder=True)
    asks = "Claude needs your permission to use Bash"
    prompt = PermissionRequested(asks, reminder=True)
    assert only(said("Notification", notification_type="permission_prompt", message=asks)) == prompt
    assert only(said("Notification", message=asks)) == prompt
    assert only(said("Notification")) == Noted("notification")
    idle, seen = said("TeammateIdle", teammate_name="b").happenings
    assert idle == Noted("teammate_idle", "b")
    assert seen == WorkEnded("b")
    noted, refused = said(
        "PermissionDenied", tool_name="Bash", tool_input={"command": "make push"}, reason="no"
    ).happenings
    assert noted == Noted("permission_denied", "Bash: no")
    assert refused == Refused("permission", "Bash: make push", "no")


@pytest.mark.parametrize("event", ["ConfigChange", "WorktreeCreate", "WhateverComesNext"])
def test_events_that_tell_nothing_are_no_error(event: str) -> None:
    assert said(event).happenings == ()


@pytest.mark.parametrize("missing", ["session_id", "hook_event_name"])
def test_only_the_session_and_the_event_are_needed(missing: str) -> None:
    payload = {"session_id": "s-1", "hook_event_name": "Stop"}
    assert only(adapter.read(payload, None)) == Paused()
    del payload[missing]
    with pytest.raises(Unfit, match=missing):
        adapter.read(payload, None)


def test_a_directory_that_is_not_absolute_is_none() -> None:
    report = said("PostToolUse", cwd="p", tool_name="Edit", tool_input={"file_path": "a.py"})
    assert report.cwd is None
    assert only(report) == ToolFinished("Edit", passed=True)


@pytest.mark.parametrize(
    "event",
    ["SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "SubagentStart"],
)
def test_context_goes_where_it_reaches_the_model(event: str) -> None:
    report = said(event, agent_id="a1")
    assert json.loads(adapter.reply(report, Answer(context='Grüße\n"x"'))) == {
        "hookSpecificOutput": {"hookEventName": event, "additionalContext": 'Grüße\n"x"'}
    }
    assert adapter.reply(report, Answer()) == ""
    assert adapter.reply(report, Answer(deny="no")) == ""


@pytest.mark.parametrize("event", SILENT)
def test_everywhere_else_is_silence(event: str) -> None:
    report = said(event, tool_name="Read", agent_id="a1", agent_type="x", prompt="p")
    assert not report.injects
    assert not report.denies
    assert adapter.reply(report, EVERYTHING) == ""


def test_an_edit_can_be_denied_before_it_is_made_only() -> None:
    given = {"tool_name": "Edit", "tool_input": {"file_path": "/p/a.py"}}
    before = said("PreToolUse", **given)
    assert json.loads(adapter.reply(before, EVERYTHING)) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "held by another",
        }
    }
    assert adapter.reply(before, Answer(context="Mission: x")) == ""
    assert "permission" not in adapter.reply(said("PostToolUse", **given), EVERYTHING)


def test_qwen_speaks_as_claude_does_in_words_of_its_own_for_tools() -> None:
    fields = {"session_id": "s", "hook_event_name": "PostToolUse", "cwd": "/p"}
    shell = {"tool_name": "run_shell_command", "tool_input": {"command": "make"}}
    assert only(qwen.read(fields | shell, None)) == ToolFinished(
        "run_shell_command", command="make", passed=True
    )
    write = {"tool_name": "write_file", "tool_input": {"file_path": "a.py"}}
    assert only(qwen.read(fields | write, None)) == ToolFinished(
        "write_file", edited=("/p/a.py",), passed=True
    )
    todos = [{"id": "2", "content": "Parse", "status": "pending"}]
    listed = {"tool_name": "todo_write", "tool_input": {"todos": todos}}
    plan = Planned((PlanItem("Parse", "pending", "2"),), whole=True)
    assert qwen.read(fields | listed, None).happenings[1:] == (plan,)


def test_droids_compaction_is_a_new_session_that_names_the_old_one() -> None:
    report = droid.read(
        {
            "session_id": "new",
            "previous_session_id": "old",
            "hook_event_name": "SessionStart",
            "source": "compact",
        },
        None,
    )
    assert (report.harness, report.session_id, report.previous_session_id) == (
        "droid",
        "new",
        "old",
    )
    assert only(report) == SessionStarted("compact")


def test_droid_has_no_event_for_failures_so_nobody_knows_how_a_command_went() -> None:
    fields = {"session_id": "s", "hook_event_name": "PostToolUse", "cwd": "/p"}
    shell = {"tool_name": "Execute", "tool_input": {"command": "make"}}
    assert only(droid.read(fields | shell, None)) == ToolFinished("Execute", command="make")


def test_droids_plan_is_a_text() -> None:
    fields = {"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "TodoWrite"}
    listed = "1. [completed] Read\n2. [in_progress] Write the parser\nand more\n3. [odd] Test"
    plan = droid.read({**fields, "tool_input": {"todos": listed}}, None).happenings[1:]
    items = (
        PlanItem("Read", "completed"),
        PlanItem("Write the parser", "in_progress"),
        PlanItem("Test", "pending"),
    )
    assert plan == (Planned(items, whole=True),)


def test_kimi_reads_a_message_with_the_prompt_only() -> None:
    fields = {"session_id": "s", "client_type": "kimi_code_cli"}
    parts = [{"type": "text", "text": "Fix"}, {"type": "image"}, {"type": "text", "text": "it"}]
    prompt = kimi.read({**fields, "hook_event_name": "UserPromptSubmit", "prompt": parts}, None)
    assert only(prompt) == PromptSubmitted("Fix\nit")
    assert json.loads(kimi.reply(prompt, Answer(context="Mission: x"))) == {
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "message": "Mission: x"}
    }
    start = kimi.read({**fields, "hook_event_name": "SessionStart", "source": "resume"}, None)
    assert kimi.reply(start, EVERYTHING) == ""


def test_a_change_of_directory_is_told_with_the_new_one() -> None:
    moved = adapter.read(
        {
            "session_id": "s",
            "hook_event_name": "CwdChanged",
            "cwd": "/old",
            "old_cwd": "/old",
            "new_cwd": "/new",
        },
        None,
    )
    assert (moved.happenings, moved.cwd, moved.injects) == ((DirectoryChanged(),), "/new", False)
    for odd in (None, 7, "", {}):
        told = {"session_id": "s", "hook_event_name": "CwdChanged", "cwd": "/p", "new_cwd": odd}
        assert adapter.read(told, None).cwd == "/p"
