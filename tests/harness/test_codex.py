"""What Codex tells with each of its events, and what it is told in return."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from fleetd.harness.codex import adapter
from fleetd.harness.detect import recognise
from fleetd.harness.report import (
    Answer,
    AnyHappening,
    Compacted,
    Compacting,
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

from .recorded import PAYLOADS, names, only, recorded

SCHEMAS = Path(__file__).parent / "schemas"
SESSION = "01a1ffbd-d728-7b30-be88-127b989058dc"
ROLLOUT = f"/home/user/.codex/sessions/2026/11/21/rollout-2026-11-21T20-13-13-{SESSION}.jsonl"
PROBE = "/private/tmp/leopold-hookprobe.gjQnXe/codex-home/sessions/2026/09/02"
PATCHED = ("/home/user/proj/a.txt", "/home/user/proj/b.txt")
HERE: dict[str, Any] = {
    "session_id": SESSION,
    "cwd": "/home/user/proj",
    "transcript_path": ROLLOUT,
}
INTERRUPTED: dict[str, Any] = {
    "session_id": "01a064f2-7877-7f72-8286-b141dc83d8b0",
    "cwd": "/tmp/leopold-hookprobe.gjQnXe/codex-project",
    "transcript_path": f"{PROBE}/rollout-2026-09-02T22-46-47-01a064f2-7877-7f72-8286-b141dc83d8b0"
    ".jsonl",
}
PARENT: dict[str, Any] = {
    "session_id": "01a064ef-43f8-7a31-a2c4-e372c36fb4bd",
    "cwd": "/tmp/leopold-hookprobe.gjQnXe/codex-project",
    "transcript_path": f"{PROBE}/rollout-2026-09-02T22-43-17-01a064ef-43f8-7a31-a2c4-e372c36fb4bd"
    ".jsonl",
}
ENDS: dict[str, Any] = {**HERE, "looks_back": True}
TELLS: dict[str, Any] = {**HERE, "injects": True}
FAILED = "Exit code: 1\nWall time: 0 seconds\n"

# The payload, what it tells, and what else the report says.
TOLD: list[tuple[str, AnyHappening, dict[str, Any]]] = [
    ("SessionStart.startup", SessionStarted("startup"), TELLS),
    ("UserPromptSubmit", PromptSubmitted("edit a.txt"), TELLS),
    ("PreToolUse.Bash", ToolStarted("Bash", call_id="call_1", command="echo hi"), TELLS),
    # A result says nothing of how a command went: only the rollout does.
    ("PostToolUse.Bash", ToolFinished("Bash", call_id="call_1", command="echo hi"), TELLS),
    (
        "PreToolUse.apply_patch",
        ToolStarted("apply_patch", call_id="call_2", edits=PATCHED),
        {**TELLS, "denies": True},
    ),
    (
        "PostToolUse.apply_patch",
        ToolFinished("apply_patch", call_id="call_2", edited=PATCHED, passed=True),
        TELLS,
    ),
    ("PreToolUse.Bash.false", ToolStarted("Bash", call_id="call_3", command="false"), TELLS),
    ("PostToolUse.Bash.false", ToolFinished("Bash", call_id="call_3", command="false"), TELLS),
    ("PreCompact.auto", Compacting("auto"), ENDS),
    ("PostCompact.auto", Compacted(), HERE),
    ("SessionStart.compact", SessionStarted("compact"), TELLS),
    ("Stop", Paused("DONE"), ENDS),
    ("SessionEnd", SessionEnded("other"), ENDS),
    ("Interrupt", Paused(interrupted=True), {**INTERRUPTED, "looks_back": True}),
    (
        "SubagentStop",
        SubagentEnded("PONG"),
        {
            **PARENT,
            "subagent": "01a064ef-556c-7670-a0f2-9f6a2fe2c42a",
            "subagent_transcript_path": (
                f"{PROBE}/rollout-2026-09-02T22-43-21-01a064ef-556c-7670-a0f2-9f6a2fe2c42a.jsonl"
            ),
        },
    ),
]
IN_ORDER = [told[0] for told in TOLD[:13]]
PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@
-x
+y
*** Delete File: /p/old.py
*** Add File: new.py
+*** Update File: not-a-header.py
*** End Patch"""
PATCH_FILES = ("/p/src/a.py", "/p/src/b.py", "/p/old.py", "/p/new.py")
EVERYTHING = Answer(context="Mission: x", deny="held by another")


def payload(event: str, **fields: Any) -> dict[str, Any]:
    """Return a payload with what is common to all events of a turn."""
    return {
        "session_id": "s",
        "turn_id": "t",
        "transcript_path": None,
        "cwd": "/p",
        "hook_event_name": event,
        "model": "gpt-5.5",
        **fields,
    }


def said(event: str, **fields: Any) -> Report:
    return adapter.read(payload(event, **fields), None)


def edit(event: str, command: str, tool: str = "apply_patch", **fields: Any) -> Report:
    return said(event, tool_name=tool, tool_input={"command": command}, **fields)


@pytest.mark.parametrize(("name", "happening", "more"), TOLD)
def test_a_recorded_payload_gives_this_report(
    name: str, happening: AnyHappening, more: dict[str, Any]
) -> None:
    given = recorded("codex", name)
    assert recognise("claude", given, {}) is adapter
    event = name.split(".")[0]
    assert adapter.read(given, None) == Report(
        harness="codex", event=event, happenings=(happening,), **more
    )


def test_no_recorded_payload_is_left_out() -> None:
    assert names("codex") == sorted(told[0] for told in TOLD)


def test_a_recorded_run_is_one_session_with_one_compaction_in_its_turn() -> None:
    lines = (PAYLOADS / "codex" / "_sequence.jsonl").read_text("utf-8").splitlines()
    reports = [adapter.read(json.loads(json.loads(line)["raw"]), None) for line in lines]
    assert reports == [adapter.read(recorded("codex", name), None) for name in IN_ORDER]
    assert {report.session_id for report in reports} == {SESSION}
    after = reports.index(said_by("PreCompact.auto")) + 1
    assert [report.injects for report in reports[after : after + 2]] == [False, True]


def said_by(name: str) -> Report:
    return adapter.read(recorded("codex", name), None)


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
def test_a_patch_names_every_file_that_it_changes(event: str) -> None:
    told = only(edit(event, PATCH))
    assert isinstance(told, ToolStarted | ToolFinished)
    assert told.command is None
    assert (told.edits if isinstance(told, ToolStarted) else told.edited) == PATCH_FILES


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (f"apply_patch <<'EOF'\n{PATCH}\nEOF\n", PATCH_FILES),
        (f"applypatch <<EOF\n{PATCH}\nEOF", PATCH_FILES),
        (
            f"cd sub && apply_patch <<'EOF'\n{PATCH}\nEOF",
            ("/p/sub/src/a.py", "/p/sub/src/b.py", "/p/old.py", "/p/sub/new.py"),
        ),
        (f"cat <<'EOF'\n{PATCH}\nEOF", ()),
        (f"echo '{PATCH}'", ()),
    ],
)
def test_a_patch_in_a_shell_command_edits_as_well(line: str, files: tuple[str, ...]) -> None:
    report = edit("PreToolUse", line, tool="Bash")
    told = only(report)
    assert isinstance(told, ToolStarted)
    assert told.edits == files
    assert report.denies == bool(files)
    assert told.command is not None
    assert told.command.startswith(line[:20])


def test_a_patch_without_a_place_to_be_changes_only_what_it_names_in_full() -> None:
    told = only(edit("PreToolUse", PATCH, cwd=None))
    assert told == ToolStarted("apply_patch", edits=("/p/old.py",))


@pytest.mark.parametrize(
    ("response", "passed", "error"),
    [
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.", True, None),
        (f"{FAILED}Output:\nNo such file\n", False, "Exit code 1\nNo such file"),
        (f"{FAILED}Output:\n", False, "Exit code 1"),
        (FAILED, False, "Exit code 1"),
        ("Exit code: 1\nas a program wrote it", None, None),
        ("see above: Exit code: 0\nWall time: 1 seconds\n", None, None),
        ("", None, None),
        (None, None, None),
        ({"output": "x"}, None, None),
    ],
)
def test_an_outcome_is_known_where_the_response_begins_with_it(
    response: Any, passed: bool | None, error: str | None
) -> None:
    told = only(edit("PostToolUse", PATCH, tool_response=response))
    assert isinstance(told, ToolFinished)
    assert told.edited == (() if passed is False else PATCH_FILES)
    assert (told.passed, told.error) == (passed, error)


def test_a_plan_that_fires_a_hook_is_the_plan() -> None:
    steps = [{"step": "Read", "status": "completed"}, {"step": "Write", "status": "in_progress"}]
    given = {"explanation": "go", "plan": steps}
    told = said("PostToolUse", tool_name="update_plan", tool_input=given).happenings
    items = (PlanItem("Read", "completed"), PlanItem("Write", "in_progress"))
    assert told == (ToolFinished("update_plan"), Planned(items, whole=True))
    assert only(said("PreToolUse", tool_name="update_plan", tool_input=given)) == ToolStarted(
        "update_plan"
    )


def test_other_tools_edit_nothing_and_run_no_command() -> None:
    given = {"command": PATCH, "path": "/p/a.py"}
    report = said("PreToolUse", tool_name="mcp__files__write", tool_input=given, tool_use_id="c")
    assert only(report) == ToolStarted("mcp__files__write", call_id="c")
    assert not report.denies


def test_a_turn_that_the_user_stops_is_over_and_worth_a_look_back() -> None:
    report = said("Interrupt")
    assert only(report) == Paused(interrupted=True)
    assert report.looks_back
    assert adapter.reply(report, EVERYTHING) == ""


def test_a_subagents_turn_is_no_reason_to_read_its_rollout() -> None:
    inner = {"agent_id": "a", "agent_type": "worker"}
    assert only(said("SubagentStart", **inner)) == SubagentStarted("worker")
    report = said("PreCompact", trigger="auto", **inner)
    assert (report.subagent, report.looks_back) == ("a", False)


def test_a_permission_request_says_for_what_and_what_is_new_tells_nothing() -> None:
    asked = edit("PermissionRequest", "make", tool="Bash")
    # Codex asks its hooks also where it decides by itself.
    assert only(asked) == PermissionRequested("Bash: make", certain=False)
    assert said("WhateverComesNext").happenings == ()


@pytest.mark.parametrize("missing", ["session_id", "hook_event_name"])
def test_only_the_session_and_the_event_are_needed(missing: str) -> None:
    given = {"session_id": "s", "hook_event_name": "Stop"}
    assert only(adapter.read(given, None)) == Paused()
    del given[missing]
    with pytest.raises(Unfit, match=missing):
        adapter.read(given, None)


def schema(event: str) -> Draft7Validator:
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in event)
    file = SCHEMAS / f"{words.removeprefix('-')}.command.output.json"
    return Draft7Validator(json.loads(file.read_text("utf-8")))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(context='Mission: "x"\n\u2028\0\x1b[31m \U0001f600'),
        Answer(context="x" * 9_500),
        Answer(deny="src/a.py is held by claude-1."),
        EVERYTHING,
    ],
)
@pytest.mark.parametrize("name", names("codex"))
def test_every_reply_is_allowed_by_the_schema_that_codex_checks(name: str, answer: Answer) -> None:
    report = said_by(name)
    out = adapter.reply(report, answer)
    told = (report.injects and answer.context) or (report.denies and answer.deny)
    assert bool(out) == bool(told)
    if out:
        assert "\n" not in out
        given = json.loads(out)
        schema(report.event).validate(given)
        assert set(given) == {"hookSpecificOutput"}
        assert given["hookSpecificOutput"].get("additionalContext") == answer.context
        decision = given["hookSpecificOutput"].get("permissionDecision")
        assert decision == ("deny" if answer.deny and report.denies else None)


def test_one_key_too_many_would_not_pass_the_schema() -> None:
    given = json.loads(adapter.reply(said_by("SessionStart.compact"), EVERYTHING))
    given["hookSpecificOutput"]["more"] = 1
    assert not schema("SessionStart").is_valid(given)


@pytest.mark.parametrize(
    "event",
    [
        *("PreCompact", "PostCompact", "Stop", "Interrupt", "SessionEnd", "PermissionRequest"),
        *("SubagentStart", "SubagentStop", "WhateverComesNext"),
    ],
)
def test_everywhere_else_is_silence(event: str) -> None:
    report = edit(event, PATCH, agent_id="a", agent_type="worker")
    assert (report.injects, report.denies) == (False, False)
    assert adapter.reply(report, EVERYTHING) == ""


def test_nothing_to_say_is_silence_too() -> None:
    for name in ("SessionStart.startup", "PreToolUse.apply_patch", "PostToolUse.Bash"):
        assert adapter.reply(said_by(name), Answer()) == ""
        assert adapter.reply(said_by(name), Answer(context="", deny=" ")) == ""
