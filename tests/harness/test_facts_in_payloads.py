"""Facts that become notes: what each harness says of a refusal, and Git of a revert."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleetd.harness import codex_rollout
from fleetd.harness.claude import adapter as claude
from fleetd.harness.codex import adapter as codex
from fleetd.harness.copilot import adapter as copilot
from fleetd.harness.cursor import adapter as cursor
from fleetd.harness.gemini import adapter as gemini
from fleetd.harness.opencode import adapter as opencode
from fleetd.harness.report import Adapter, CommitReverted, Happenings, Refused, ToolFinished
from tests.support.git import git

COMMAND = "git revert --no-edit HEAD"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What Git prints of a revert, and of the revert of that."""
    there = tmp_path_factory.mktemp("reverted")
    git(there, "init", "--quiet", "--initial-branch=main")
    for text in ("a\n", "b\n"):
        Path(there, "a").write_text(text)
        git(there, "add", ".")
        git(there, "commit", "--quiet", f'--message=Write "{text.strip()}" [x]')
    return {name: git(there, "revert", "--no-edit", "HEAD") for name in ("reverted", "again")}


def claudes(command: str, out: str) -> dict[str, Any]:
    return {
        "session_id": "s-1",
        "cwd": "/p",
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_response": {"stdout": out, "stderr": "", "interrupted": False},
        "tool_use_id": "t-1",
    }


def geminis(command: str, out: str) -> dict[str, Any]:
    said = f"<untrusted_context>\nOutput: {out}\nProcess Group PGID: 7\n</untrusted_context>"
    response = {"llmContent": said, "returnDisplay": out}
    named = {"hook_event_name": "AfterTool", "tool_name": "run_shell_command"}
    return claudes(command, out) | named | {"tool_response": response}


def opencodes(command: str, out: str) -> dict[str, Any]:
    return {
        "event": "tool.execute.after",
        "session_id": "s-1",
        "cwd": "/p",
        "tool": "bash",
        "call_id": "c-1",
        "args": {"command": command},
        "metadata": {"output": out, "exit": 0},
    }


def copilots(command: str, out: str) -> dict[str, Any]:
    said = f"{out}\n<exited with exit code 0>"
    return {
        "sessionId": "s-1",
        "cwd": "/p",
        "toolName": "bash",
        "toolArgs": {"command": command},
        "toolResult": {"resultType": "success", "textResultForLlm": said},
    }


def cursors(command: str, out: str) -> dict[str, Any]:
    return {
        "hook_event_name": "postToolUse",
        "conversation_id": "s-1",
        "cwd": "/p",
        "tool_name": "Shell",
        "tool_input": {"command": command},
        "tool_use_id": "t-1",
        "tool_output": json.dumps({"output": out, "exitCode": 0}),
    }


SHELLS = {
    "claude": (claude, claudes),
    "codex": (codex, lambda command, out: claudes(command, "") | {"tool_response": out}),
    "gemini": (gemini, geminis),
    "opencode": (opencode, opencodes),
    "copilot": (copilot, copilots),
    "cursor": (cursor, cursors),
}


def told(adapter: Adapter, payload: dict[str, Any], word: str | None = None) -> Happenings:
    return adapter.read(payload, word).happenings


def reverts(happenings: Happenings) -> list[CommitReverted]:
    return [each for each in happenings if isinstance(each, CommitReverted)]


def refusals(happenings: Happenings) -> list[Refused]:
    return [each for each in happenings if isinstance(each, Refused)]


@pytest.mark.parametrize("name", SHELLS)
def test_gits_own_line_tells_of_a_revert_and_of_its_end(name: str, printed: dict[str, str]) -> None:
    adapter, payload = SHELLS[name]
    subject = 'Write "b" [x]'
    assert reverts(told(adapter, payload(COMMAND, printed["reverted"]))) == [
        CommitReverted(subject)
    ]
    assert reverts(told(adapter, payload(COMMAND, printed["again"]))) == [
        CommitReverted(subject, again=True)
    ]
    newer = printed["reverted"].replace("Revert", "Reapply")
    assert reverts(told(adapter, payload(COMMAND, newer))) == [CommitReverted(subject, again=True)]
    for other in ("git log", "cat notes"):
        assert reverts(told(adapter, payload(other, printed["reverted"]))) == []
    for out in ("", "Auto-merging a\nCONFLICT (content)", 'Revert "x"', '[x] Revert "y"'):
        assert reverts(told(adapter, payload(COMMAND, out))) == []


def test_of_many_reverts_some_are_told() -> None:
    lines = "\n".join(f'[main 1a2b3c{n:02}] Revert "N{n}"' for n in range(40))
    assert len(reverts(told(claude, claudes(COMMAND, lines)))) == 20


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("The user rejected permission to use this specific tool call.", None),
        (
            (
                "The user rejected permission to use this specific tool call with the following"
                " feedback: Use make"
            ),
            "Use make",
        ),
        (
            (
                "The user has specified a rule which prevents you from using this specific tool"
                " call. Here are the relevant rules"
            ),
            None,
        ),
    ],
)
def test_opencode_tells_that_a_call_was_refused(error: str, reason: str | None) -> None:
    payload = opencodes("npm test", "") | {"event": "tool.failed", "error": error}
    ended, refused = told(opencode, payload)
    assert isinstance(ended, ToolFinished)
    assert ended.passed is False
    assert refused == Refused("permission", "bash: npm test", reason)
    other = payload | {"error": "ENOENT: the user rejected"}
    assert refusals(told(opencode, other)) == []


@pytest.mark.parametrize(("kind", "number"), [("denied", 1), ("rejected", 1), ("failure", 0)])
def test_copilot_tells_that_a_call_was_refused(kind: str, number: int) -> None:
    payload = copilots("make push", "No")
    payload["toolResult"]["resultType"] = kind
    expected = [Refused("permission", "bash: make push")] * number
    assert refusals(told(copilot, payload)) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            (
                "Plan rejected. User feedback: No new\ndependency\n\nThe plan is stored at: /p/x.md"
                "\nRevise the plan based on the feedback."
            ),
            [Refused("plan", "login.md", "No new\ndependency")],
        ),
        (
            "Plan rejected. No feedback provided.\n\nThe plan is stored at: /p/x.md\nAsk the user",
            [Refused("plan", "login.md")],
        ),
        ("Plan approved. Plan rejected. No feedback provided.", []),
    ],
)
def test_gemini_tells_that_a_plan_was_rejected(content: str, expected: list[Refused]) -> None:
    payload = geminis("", "") | {
        "tool_name": "exit_plan_mode",
        "tool_input": {"plan_filename": "login.md"},
        "tool_response": {"llmContent": content, "returnDisplay": "x"},
    }
    assert refusals(told(gemini, payload)) == expected
    assert refusals(told(gemini, payload | {"tool_name": "read_file"})) == []


def rollout(*payloads: dict[str, Any]) -> str:
    return "\n".join(json.dumps({"type": "response_item", "payload": each}) for each in payloads)


@pytest.mark.parametrize(
    ("arguments", "said", "about"),
    [
        ('{"cmd": "make push"}', "exec command rejected by user", "exec command: make push"),
        ('{"command": ["make", "x"]}', "exec command rejected by user", "exec command: make x"),
        ("not json", "exec command rejected by user", "exec command"),
        ("*** Begin Patch", "patch rejected by user", "patch"),
        ('{"cmd": "ls"}', "it says: exec command rejected by user", None),
    ],
)
def test_codexs_rollout_tells_what_the_user_refused(
    arguments: str, said: str, about: str | None
) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "exec_command"}
    output = {"type": "function_call_output", "call_id": "c", "output": said}
    lines = rollout(call | {"arguments": arguments}, output)
    found = refusals(codex_rollout.happenings_in(lines))
    assert found == ([Refused("permission", about, maybe_repeated=True)] if about else [])
    later = rollout(call | {"arguments": arguments}, output, {"type": "task_started"})
    assert refusals(codex_rollout.happenings_in(later)) == []
