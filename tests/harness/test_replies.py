"""What Claude's family is told is what the published schemas of that shape allow."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from fleetd.harness.claude import adapter, qwen
from fleetd.harness.report import Adapter, Answer

SCHEMAS = Path(__file__).parent / "schemas"
EVENTS = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "user-prompt-submit",
    "PreToolUse": "pre-tool-use",
    "PostToolUse": "post-tool-use",
    "SubagentStart": "subagent-start",
}
ANSWERS = [
    Answer(context='Mission: "x"\n\u2028\0\x1b[31m \U0001f600'),
    Answer(deny="src/a.py is held by claude-1 since 10:00."),
    Answer(context="x" * 9_500, deny="both"),
]


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.command.output.json").read_text())
    return found


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("family", [adapter, qwen])
def test_every_reply_fits_the_schema_of_its_event(
    event: str, answer: Answer, family: Adapter
) -> None:
    payload = {
        "session_id": "s",
        "hook_event_name": event,
        "cwd": "/p",
        "agent_id": "a",
        "tool_name": "Edit",
        "tool_input": {"file_path": "a.py"},
    }
    out = family.reply(family.read(payload, None), answer)
    if not out:
        assert (answer.context is None) != (event == "PreToolUse")
        return
    assert "\n" not in out
    Draft7Validator(schema(EVENTS[event])).validate(json.loads(out))
