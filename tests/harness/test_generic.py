"""Harnesses that nobody asked for are recorded all the same, and told nothing they did not ask."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fleetd.harness.claude import HANDLERS
from fleetd.harness.detect import recognise
from fleetd.harness.report import (
    Answer,
    AnyHappening,
    Compacting,
    Failed,
    Paused,
    PromptSubmitted,
    Report,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    Unfit,
)

from .recorded import only, recorded

EVERYTHING = Answer(context="Mission: x", deny="held by another")
GROK = "/private/tmp/claude-501/-Users-user-repo/751f5abb-d71f-48af-8071-4b93bb4737e5/scratchpad"
AGY: dict[str, Any] = {"conversationId": "c-1", "workspacePaths": ["/p", "/q"]}


def read(argument: str, payload: dict[str, Any], event: str | None = None) -> Report:
    return recognise(argument, payload, {}).read(payload, event)


def reply(argument: str, payload: dict[str, Any]) -> str:
    adapter = recognise(argument, payload, {})
    return adapter.reply(adapter.read(payload, None), EVERYTHING)


def test_grok_that_runs_claudes_hooks_is_grok() -> None:
    assert read("claude", recorded("grok", "session_start")) == Report(
        harness="grok",
        event="session_start",
        session_id="01a03a9f-0f3b-78d2-bad3-cf2ad4e0ff2e",
        happenings=(SessionStarted("startup"),),
        cwd=f"{GROK}/grok-live",
        moment="2026-08-25T20:31:38.607470+00:00",
    )


def grok(event: str, **fields: Any) -> Report:
    return read("claude", {"hookEventName": event, "sessionId": "s-1", "cwd": "/p", **fields})


@pytest.mark.parametrize(
    ("event", "fields", "told"),
    [
        (
            "user_prompt_submit",
            {"prompt": "<user_query>\nFix it\n</user_query>"},
            PromptSubmitted("Fix it"),
        ),
        (
            "pre_tool_use",
            {"toolName": "search_replace", "toolInput": {"file_path": "a.py"}, "toolUseId": "1"},
            ToolStarted("search_replace", call_id="1", edits=("/p/a.py",)),
        ),
        (
            "post_tool_use",
            {"toolName": "write", "toolInput": {"file_path": "a.py"}, "toolResult": {"type": "x"}},
            ToolFinished("write", edited=("/p/a.py",), passed=None),
        ),
        (
            "post_tool_use",
            {
                "toolName": "run_terminal_command",
                "toolInput": {"command": "make"},
                "toolResult": {"exit_code": 2},
            },
            ToolFinished("run_terminal_command", command="make", passed=False, error="Exit code 2"),
        ),
        (
            "post_tool_use",
            {
                "toolName": "run_terminal_command",
                "toolInput": {"command": "make"},
                "isBackgrounded": True,
            },
            ToolFinished("run_terminal_command", command="make", background=True),
        ),
        ("pre_compact", {"trigger": "manual"}, Compacting("manual")),
        ("stop", {"lastAssistantMessage": "Done."}, Paused("Done.")),
        ("stop_failure", {"error": "rate_limit"}, Failed("rate_limit", limited=True)),
        ("session_end", {"reason": "exit"}, SessionEnded("exit")),
    ],
)
def test_groks_events_are_claudes_in_other_letters(
    event: str, fields: dict[str, Any], told: AnyHappening
) -> None:
    report = grok(event, **fields)
    assert only(report) == told
    assert report.event == event
    assert (report.injects, report.denies) == (False, False)


def test_grok_is_told_nothing_even_in_claudes_own_words() -> None:
    both = {"hook_event_name": "SessionStart", "hookEventName": "session_start", "session_id": "s"}
    assert read("claude", both).harness == "grok"
    assert reply("claude", both) == ""


def test_antigravity_is_known_by_its_fields_for_it_names_no_event() -> None:
    place = {
        "harness": "antigravity",
        "session_id": "ec33ebf9-0cba-4100-8142-c61503f6c587",
        "cwd": "/workspace/project",
        "transcript_path": "/workspace/project/.gemini/jetski/transcript.jsonl",
    }
    failure = ToolFinished("unknown", call_id="5", passed=False, error="exit status 1")
    assert read("claude", recorded("antigravity", "PostToolUse")) == Report(
        event="PostToolUse", happenings=(failure,), **place
    )
    assert read("claude", recorded("antigravity", "PreInvocation")) == Report(
        event="PreInvocation", happenings=(), injects=True, **place
    )


def test_the_first_request_of_a_turn_of_antigravity_is_its_prompt_and_takes_text() -> None:
    first = {**AGY, "invocationNum": 0, "initialNumSteps": 3}
    report = read("antigravity", first, "PreInvocation")
    assert report.happenings == (PromptSubmitted(""),)
    assert json.loads(reply("antigravity", first)) == {
        "injectSteps": [{"ephemeralMessage": "Mission: x"}]
    }
    adapter = recognise("antigravity", first, {})
    assert adapter.reply(report, Answer()) == ""
    # The word in the settings says more than the fields.
    assert read("antigravity", first, "PostInvocation").happenings == ()
    assert not read("antigravity", first, "PostInvocation").injects


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {
                "stepIdx": 19,
                "toolCall": {"name": "run_command", "args": {"CommandLine": "npm test"}},
            },
            ToolStarted("run_command", call_id="19", command="npm test"),
        ),
        (
            {
                "stepIdx": 4,
                "toolCall": {"name": "write_to_file", "args": {"TargetFile": '"a.py"'}},
            },
            ToolStarted("write_to_file", call_id="4", edits=("/p/a.py",)),
        ),
        ({"stepIdx": 4, "error": ""}, ToolFinished("unknown", call_id="4", passed=True)),
        ({"terminationReason": "model_stop", "error": ""}, Paused()),
        ({"terminationReason": "error", "error": "quota"}, Failed("quota", limited=True)),
    ],
)
def test_what_antigravity_does_is_recorded(fields: dict[str, Any], told: AnyHappening) -> None:
    report = read("antigravity", {**AGY, **fields})
    assert only(report) == told
    assert (report.injects, report.denies) == (False, False)
    assert reply("claude", {**AGY, **fields}) == ""


def test_antigravity_without_any_field_of_its_events_is_unfit() -> None:
    assert read("antigravity", AGY, "Stop").happenings == (Paused(),)
    with pytest.raises(Unfit):
        read("antigravity", AGY)


@pytest.mark.parametrize(
    "payload",
    [
        {"event": "prompt_submit", "session_id": "s-1", "cwd": "/p", "prompt": "Go"},
        {"event": "promptSubmit", "sessionID": "s-1", "workingDirectory": "/p", "message": "Go"},
        {"event_name": "user-prompt-submit", "thread_id": "s-1", "cwd": "/p", "user_prompt": "Go"},
        {
            "hook_event_name": "UserPromptSubmitted",
            "session_id": "s-1",
            "cwd": "/p",
            "prompt": "Go",
        },
    ],
)
def test_any_harness_that_names_event_and_session_is_understood(payload: dict[str, Any]) -> None:
    report = read("house-agent", payload)
    assert (report.harness, report.session_id, report.cwd) == ("house-agent", "s-1", "/p")
    assert only(report) == PromptSubmitted("Go")
    assert not report.injects
    assert reply("house-agent", payload) == ""


def test_the_settings_file_may_name_the_event() -> None:
    report = read("house-agent", {"session_id": "s-1"}, "session_start")
    assert report.event == "session_start"
    assert only(report) == SessionStarted("startup")


def test_who_speaks_as_claude_in_every_respect_is_answered_as_claude() -> None:
    payload = {"hook_event_name": "SessionStart", "session_id": "s-1", "source": "compact"}
    assert read("house-agent", payload).harness == "house-agent"
    assert json.loads(reply("house-agent", payload)) == {
        "hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "Mission: x"}
    }


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"event": "half_time", "session_id": "s"}, "half_time"),
        ({"session_id": "s"}, "no event"),
        ({"event": "stop"}, "session_id"),
        ({}, "no event"),
    ],
)
def test_what_fits_no_shape_says_why(payload: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        read("house-agent", payload)


def _documented() -> list[tuple[str, str]]:
    """Return the names of events in the table of the page, each with the one that it stands for."""
    page = (Path(__file__).parents[2] / "docs" / "agent-clis.md").read_text()
    table = page.partition("| event | also called |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    names = [(re.findall(r"`(\w+)`", first), re.findall(r"`(\w+)`", also)) for first, also in rows]
    return [(each, first[0] if also else each) for first, also in names for each in first + also]


@pytest.mark.parametrize(("name", "stands_for"), _documented())
def test_each_event_that_the_page_names_is_known(name: str, stands_for: str) -> None:
    told = {"session_id": "s-1", "cwd": "/p", "prompt": "Go", "tool": "Bash", "agent_id": "a1"}
    told |= {"tool_args": {"command": "make"}, "tool_result": {}, "error": "no"}
    found = read("mybot", {"event": name} | told)
    assert found.happenings == read("mybot", {"event": stands_for} | told).happenings
    assert name == "cwd_changed" or name.startswith("task_") or found.happenings


def test_the_page_names_each_event_that_a_sender_can_use() -> None:
    named = {"".join(map(str.capitalize, each.split("_"))) for each, _ in _documented()}
    assert set(HANDLERS) - {"PermissionDenied", "TeammateIdle"} <= named
