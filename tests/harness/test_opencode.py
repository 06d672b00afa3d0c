"""What OpenCode tells through our plugin, as it was recorded, and what the plugin is told."""

import json
from typing import Any

import pytest

from fleetd.harness.detect import recognise
from fleetd.harness.opencode import adapter
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
    QuestionAsked,
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

from .recorded import names, only, recorded

SESSION = "ses_dfe88ae76ffeyjF9utykxFXhs4"
ABOVE, BELOW = "ses_dfe817cceffeL0g3xIRmx0WkdE", "ses_dfe81682affefSZBwtm5Y2KGBv"
FILE = "/path/to/repo/a.txt"
INJECTS: dict[str, Any] = {"injects": True}
SUBAGENT: dict[str, Any] = {"session_id": ABOVE, "subagent": BELOW}
PLAN = (PlanItem("one", "completed"), PlanItem("two", "in_progress"))
REFUSED = "The user rejected permission to use this specific tool call."

RECORDED: dict[str, tuple[tuple[AnyHappening, ...], dict[str, Any]]] = {
    "session.created": ((SessionStarted("startup"),), {}),
    "session.created.subagent": ((SubagentStarted("general"),), SUBAGENT),
    "chat.message": (
        (PromptSubmitted('"do the thing"'),),
        {"moment": "msg_2017752670010PqslHrWX2JgGh", **INJECTS},
    ),
    "chat.message.resumed": (
        (SessionStarted("resume"), PromptSubmitted('"and now the edit"')),
        {"moment": "msg_201777f55001NAOyMWmJnPXbAZ", **INJECTS},
    ),
    "chat.message.subagent": (
        (),
        {"moment": "msg_2017e97e8001oXeKFJp756tWJo", **INJECTS, **SUBAGENT},
    ),
    "tool.execute.before.bash.echo": (
        (ToolStarted("bash", call_id="call_1", command="echo hi"),),
        {},
    ),
    "tool.execute.after.bash.echo": (
        (ToolFinished("bash", call_id="call_1", command="echo hi", passed=True),),
        {},
    ),
    "tool.execute.before.bash.false": (
        (ToolStarted("bash", call_id="call_2", command="false"),),
        {},
    ),
    "tool.execute.after.bash.false": (
        (
            ToolFinished(
                "bash", call_id="call_2", command="false", passed=False, error="Exit code 1"
            ),
        ),
        {},
    ),
    "tool.execute.before.write": (
        (ToolStarted("write", call_id="call_3", edits=(FILE,)),),
        {"denies": True},
    ),
    "tool.execute.after.write": (
        (ToolFinished("write", call_id="call_3", edited=(FILE,), passed=True),),
        {},
    ),
    "tool.execute.before.edit": (
        (ToolStarted("edit", call_id="call_7", edits=(FILE,)),),
        {"denies": True},
    ),
    "tool.execute.after.edit": (
        (ToolFinished("edit", call_id="call_7", edited=(FILE,), passed=True),),
        {},
    ),
    "tool.execute.before.todowrite": ((ToolStarted("todowrite", call_id="call_4"),), {}),
    "tool.execute.after.todowrite": (
        (ToolFinished("todowrite", call_id="call_4", passed=True),),
        {},
    ),
    "todo.updated": ((Planned(PLAN, whole=True),), {}),
    "tool.execute.before.read": ((ToolStarted("read", call_id="call_5"),), {}),
    "tool.failed.read": (
        (ToolFinished("read", call_id="call_5", passed=False, error=REFUSED, duration_ms=12),),
        {},
    ),
    "session.compacting": ((Compacting("auto"),), {}),
    "session.compacted": ((Compacted("SUMMARY OF THINGS"),), INJECTS),
    "session.compacted.resumed": ((Compacted(),), INJECTS),
    "session.idle": ((Paused("after compaction text 1"),), {}),
    "session.idle.subagent": ((SubagentEnded("the subagent's answer"),), SUBAGENT),
    "session.closed": ((SessionEnded("OpenCode closed"),), {}),
}


def payload(event: str, **fields: Any) -> dict[str, Any]:
    return {"event": event, "session_id": "ses_1", "cwd": "/p", **fields}


def test_how_full_the_window_is_goes_with_any_event() -> None:
    window = {"tokens": 7, "size": 10}

    def told(event: str, **fields: Any) -> tuple[AnyHappening, ...]:
        return adapter.read(payload(event, window=window, **fields), None).happenings

    used = WindowUsed(7, 10)
    assert told("session.idle") == (used, Paused())
    assert told("session.compacting") == (used, Compacting())
    assert told("session.compacting", transforms=False) == (used, Compacting(), Compacted())
    # OpenCode's plugin tells of a compaction when its next window is at work already.
    assert told("session.compacted") == (Compacted(), used)


@pytest.mark.parametrize("odd", [-1, "7", None, True, 10**12, 10**400, {}])
def test_what_is_no_count_of_tokens_is_not_told(odd: Any) -> None:
    for window in (odd, {"tokens": odd, "size": 10}):
        assert adapter.read(payload("session.idle", window=window), None).happenings == (Paused(),)
    said = adapter.read(payload("session.idle", window={"tokens": 7, "size": odd}), None)
    assert said.happenings == (WindowUsed(7), Paused())


def test_every_payload_that_was_recorded_is_looked_at() -> None:
    assert sorted(RECORDED) == names("opencode")


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_payload_becomes_exactly_this_report(name: str) -> None:
    given = recorded("opencode", name)
    happenings, rest = RECORDED[name]
    assert recognise("opencode", given, {"CURSOR_VERSION": "1"}) is adapter
    assert adapter.read(given, None) == Report(
        **{
            "harness": "opencode",
            "event": given["event"],
            "session_id": SESSION,
            "happenings": happenings,
            "cwd": "/path/to/repo",
            **rest,
        }
    )


@pytest.mark.parametrize(
    ("error", "happening"),
    [
        ({"name": "APIError", "data": {"message": "overloaded"}}, Failed("overloaded")),
        ({"name": "MessageOutputLengthError", "data": {}}, Failed("MessageOutputLengthError")),
        (None, Failed("unknown")),
        (
            {"name": "MessageAbortedError", "data": {"message": "Aborted"}},
            Noted("interrupted", "Aborted"),
        ),
    ],
)
def test_an_error_is_a_failure_but_for_a_turn_that_the_user_stopped(
    error: Any, happening: AnyHappening
) -> None:
    assert only(adapter.read(payload("session.error", error=error), None)) == happening


def test_a_deleted_session_is_over() -> None:
    assert only(adapter.read(payload("session.deleted"), None)) == SessionEnded("deleted")


def test_a_patch_names_its_files() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: b/c.py\n@@\n-x\n+y\n*** End Patch"
    given = payload("tool.execute.after", tool="apply_patch", args={"patchText": patch})
    (finished,) = adapter.read(given, None).happenings
    assert isinstance(finished, ToolFinished)
    assert finished.edited == ("/p/a.py", "/p/b/c.py")


def test_without_a_way_into_the_messages_the_summary_is_told() -> None:
    report = adapter.read(payload("session.compacting", transforms=False), None)
    assert report.happenings == (Compacting(), Compacted())
    assert report.injects


def test_the_plugin_is_told_what_it_can_pass_on() -> None:
    ask = adapter.read(payload("session.compacted", asks=True), None)
    assert json.loads(adapter.reply(ask, Answer(context="Mission: x"))) == {"context": "Mission: x"}
    late = adapter.read(payload("session.compacted", asks=False), None)
    assert adapter.reply(late, Answer(context="Mission: x")) == ""
    call = {"tool": "write", "args": {"filePath": "/p/a.py"}}
    edit = adapter.read(payload("tool.execute.before", **call), None)
    assert json.loads(adapter.reply(edit, Answer(deny="held"))) == {"deny": "held"}


def test_a_payload_without_event_or_session_is_unfit() -> None:
    with pytest.raises(Unfit, match="event"):
        adapter.read({"session_id": "ses_1"}, None)
    with pytest.raises(Unfit, match="session_id"):
        adapter.read({"event": "session.idle"}, None)


def test_an_event_of_no_interest_tells_nothing() -> None:
    assert adapter.read(payload("lsp.updated"), None).happenings == ()


@pytest.mark.parametrize(
    ("event", "fields", "happening"),
    [
        (
            "permission.asked",
            {"permission": "bash", "patterns": ["git push", "git push *"]},
            PermissionRequested("bash: git push, git push *"),
        ),
        ("permission.asked", {"patterns": [7, None]}, PermissionRequested("a tool")),
        ("permission.asked", {"title": "Edit it"}, PermissionRequested("Edit it")),
        (
            "question.asked",
            {"questions": [{"question": "Which?", "header": "One"}]},
            QuestionAsked("Which?"),
        ),
        ("question.asked", {"questions": 7}, QuestionAsked()),
        ("question.asked", {"questions": [7]}, QuestionAsked()),
    ],
)
def test_what_waits_for_a_person_is_told(
    event: str, fields: dict[str, Any], happening: AnyHappening
) -> None:
    assert adapter.read(payload(event, **fields), None).happenings == (happening,)
