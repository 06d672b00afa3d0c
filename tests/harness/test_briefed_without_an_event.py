"""Cursor and Copilot, whose compactions nothing follows, through the real client and daemon.

The recorded payloads come in the order of a session; the briefing comes with the first tool after
the compaction, once.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookStatusGet
from tests.support.hook_client import hook
from tests.support.processes import Daemon

from .recorded import recorded

SESSION = "b0ff98c0-8e01-4b73-bf92-9649b139931b"
CHANNEL = {"cursor": "additional_context", "copilot": "additionalContext"}
CALLS: dict[str, dict[str, Any]] = {
    "cursor": {
        "hook_event_name": "postToolUse",
        "tool_name": "Shell",
        "tool_input": {"command": "make"},
        "tool_output": json.dumps({"output": "", "exitCode": 0}),
    },
    "copilot": {
        "toolName": "bash",
        "toolArgs": {"command": "make"},
        "toolResult": {
            "resultType": "success",
            "textResultForLlm": "<exited with exit code 0>",
        },
    },
}


class Session:
    """One session of a harness; counts its tool calls, so that no two are alike."""

    def __init__(self, harness: str) -> None:
        self.harness = harness
        self.calls = 0

    def tell(self, event: str, given: dict[str, Any]) -> str:
        """Run the hook for a payload and return what it printed."""
        place = str(Path.cwd())
        given = {**given, "cwd": place, "workspace_roots": [place]}
        words = (self.harness, event) if self.harness == "copilot" else (self.harness,)
        ran = hook(json.dumps(given, indent=1), *words)
        assert (ran.status, ran.err) == (0, b"")
        return ran.out.decode()

    def play(self, name: str) -> str:
        """Tell a recorded payload."""
        return self.tell(name.split(".")[0], recorded(self.harness, name))

    def prompt(self) -> str:
        if self.harness == "copilot":
            return self.play("userPromptSubmitted")
        given = recorded("cursor", "sessionStart")
        event = "beforeSubmitPrompt"
        return self.tell(event, {**given, "hook_event_name": event, "prompt": "hi"})

    def tool(self) -> str:
        self.calls += 1
        base = recorded(self.harness, "sessionStart")
        apart = {"timestamp": 1771480090000 + self.calls, "tool_use_id": f"call_{self.calls}"}
        return self.tell("postToolUse", {**base, **CALLS[self.harness], **apart})

    def compact(self) -> str:
        given = recorded(self.harness, "preCompact")
        return self.tell("preCompact", {**given, "timestamp": 1771480090000 + self.calls})


@pytest.mark.parametrize("harness", ["cursor", "copilot"])
def test_each_compaction_is_briefed_once_with_the_next_tool(
    daemon: Daemon, connect: Callable[[], Fleet], harness: str
) -> None:
    session = Session(harness)
    assert session.play("sessionStart") == ""
    assert session.prompt() == ""
    assert session.tool() == ""
    for _ in range(2):
        assert session.compact() == ""
        [(channel, briefing)] = json.loads(session.tool()).items()
        assert channel == CHANNEL[harness]
        assert "- make passed just now\n" in briefing
        assert session.tool() == ""
    client = connect()
    [status] = [each for each in client.call(HookStatusGet()).harnesses if each.deliveries]
    assert (status.harness, status.deliveries, status.unfit) == (harness, 9, 0)
    kinds = [each.type for each in client.call(EventList(limit=1_000)).events]
    assert kinds.count("window_compacted") == 2
    assert kinds.count("command_finished") == 5


@pytest.mark.parametrize("harness", ["cursor", "copilot"])
def test_without_a_tool_the_next_prompt_that_can_brings_the_briefing(
    daemon: Daemon, harness: str
) -> None:
    session = Session(harness)
    session.prompt()
    session.tool()
    session.compact()
    briefed = session.prompt()
    # Copilot drops what is said to a prompt, so there it waits for the tool after it.
    assert bool(briefed) == (harness == "cursor")
    assert bool(session.tool()) == (harness == "copilot")


@pytest.mark.parametrize("harness", ["cursor", "copilot"])
def test_every_recorded_payload_passes_also_when_claudes_settings_sent_it(
    daemon: Daemon, connect: Callable[[], Fleet], harness: str
) -> None:
    folder = Path(__file__).parent / "payloads" / harness
    files = sorted(folder.glob("*.json"))
    for file in files:
        assert hook(file.read_bytes(), "claude").silent
    [status] = [each for each in connect().call(HookStatusGet()).harnesses if each.deliveries]
    assert (status.harness, status.deliveries, status.unfit) == (harness, len(files), 0)
