"""The true sender is told from what arrives, whatever the settings file said."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetctl import hook_client
from fleetd.harness.detect import ADAPTERS, ENVIRONMENT, recognise
from fleetd.harness.report import Unfit

from .recorded import PAYLOADS, names, recorded

RECORDED = [
    (folder.name, name) for folder in sorted(PAYLOADS.glob("*/")) for name in names(folder.name)
]
CLAUDES = {"session_id": "s-1", "hook_event_name": "SessionStart", "cwd": "/p"}


def sender(argument: str, payload: Mapping[str, Any], env: Mapping[str, str] | None = None) -> str:
    return recognise(argument, dict(payload), env or {}).name


@pytest.mark.parametrize(("harness", "name"), RECORDED)
def test_every_recorded_payload_is_its_senders_even_when_claudes_settings_ran_it(
    harness: str, name: str
) -> None:
    # OpenCode runs no settings but its own: what it sends is of our making, and says so.
    argument = "opencode" if harness == "opencode" else "claude"
    assert sender(argument, recorded(harness, name)) == harness


@pytest.mark.parametrize("name", names("claude"))
@pytest.mark.parametrize("variable", ENVIRONMENT)
def test_a_session_of_claudes_that_another_agent_started_is_claudes(
    name: str, variable: str
) -> None:
    assert sender("claude", recorded("claude", name), {variable: "1"}) == "claude"


@pytest.mark.parametrize(
    ("mark", "harness"),
    [
        ({"cursor_version": "2026.02.13"}, "cursor"),
        ({"conversation_id": "c", "generation_id": "g"}, "cursor"),
        ({"hook_event_name": "beforeSubmitPrompt"}, "cursor"),
        ({"transcript_path": "/home/u/.cursor/projects/p/agent-transcripts/s.jsonl"}, "cursor"),
        ({"conversationId": "c", "workspacePaths": ["/p"]}, "antigravity"),
        ({"hookEventName": "post_tool_use", "sessionId": "s"}, "grok"),
        ({"hookEventName": "stop"}, "grok"),
        ({"transcript_path": "/home/u/.grok/sessions/x/s/updates.jsonl"}, "grok"),
        ({"transcript_path": "/home/u/.copilot/session-state/s/events.jsonl"}, "copilot"),
        ({"client_type": "kimi_code_cli"}, "kimi"),
        ({"transcript_path": "/home/u/.kimi-code/sessions/s.jsonl"}, "kimi"),
        ({"hook_event_name": "BeforeAgent"}, "gemini"),
        ({"hook_event_name": "AfterTool"}, "gemini"),
        ({"hook_event_name": "PreCompress"}, "gemini"),
        ({"transcript_path": "/home/u/.gemini/tmp/p/chats/session-1.jsonl"}, "gemini"),
        ({"turn_id": "t"}, "codex"),
        ({"transcript_path": "/home/u/.codex/sessions/2026/11/21/rollout-1.jsonl"}, "codex"),
        ({"transcript_path": "/elsewhere/sessions/2026/11/21/rollout-1.jsonl"}, "codex"),
        ({"previous_session_id": "s-0"}, "droid"),
        ({"transcript_path": "/home/u/.factory/sessions/-p/s-1.jsonl"}, "droid"),
        ({"transcript_path": "/home/u/.qwen/projects/-p/chats/s-1.jsonl"}, "qwen"),
        ({"transcript_path": "/home/u/.claude/projects/-p/s-1.jsonl"}, "claude"),
        ({"transcript_path": "/elsewhere/projects/-p/s-1.jsonl"}, "claude"),
    ],
)
def test_each_mark_in_a_payload_names_its_harness(mark: dict[str, Any], harness: str) -> None:
    assert sender("else", CLAUDES | mark) == harness


def test_camel_case_without_an_event_is_copilots() -> None:
    assert sender("claude", {"sessionId": "s", "timestamp": 1, "cwd": "/p"}) == "copilot"


@pytest.mark.parametrize(("variable", "harness"), ENVIRONMENT.items())
def test_a_payload_without_marks_is_told_by_the_environment(variable: str, harness: str) -> None:
    assert sender("claude", CLAUDES, {variable: "1"}) == harness
    assert sender("claude", CLAUDES, {variable: ""}) == "claude"


def test_the_client_passes_on_every_variable_that_tells_a_sender() -> None:
    passed_on = ast.parse(Path(hook_client.__file__).read_text("utf-8"))
    texts = [node.value for node in ast.walk(passed_on) if isinstance(node, ast.Constant)]
    words = {word for text in texts if isinstance(text, str) for word in text.split()}
    assert {*ENVIRONMENT, "FLEET_AGENT_ID", "FLEET_MISSION_ID"} <= words


def test_what_everybody_sets_says_nothing() -> None:
    env = {"CLAUDE_PROJECT_DIR": "/p", "CLAUDECODE": "1", "FLEET_AGENT_ID": "a"}
    assert sender("gemini", CLAUDES, env) == "gemini"


def test_qwen_sets_the_variables_of_gemini_too() -> None:
    assert sender("claude", CLAUDES, {"GEMINI_SESSION_ID": "1", "QWEN_PROJECT_DIR": "/p"}) == "qwen"


def test_without_any_mark_the_settings_file_is_believed() -> None:
    for name in ADAPTERS:
        assert sender(name, CLAUDES) == name
        assert ADAPTERS[name].name == name
    assert sender("house-agent", CLAUDES) == "house-agent"


def test_our_own_plugin_is_run_by_opencode_only() -> None:
    assert sender("opencode", {"conversation_id": "c", "generation_id": "g"}) == "opencode"


@pytest.mark.parametrize("argument", ["", "-h", "Claude Code", "a" * 33, "../x"])
def test_a_sender_without_a_usable_name_is_unfit(argument: str) -> None:
    with pytest.raises(Unfit):
        recognise(argument, dict(CLAUDES), {})


@pytest.mark.parametrize("value", [None, 1, [], {}, True])
def test_marks_of_the_wrong_type_are_no_marks(value: object) -> None:
    payload = CLAUDES | {"transcript_path": value, "client_type": value, "hookEventName": value}
    assert sender("claude", payload) == "claude"
