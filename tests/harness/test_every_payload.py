"""Every recorded payload through the real client and daemon: taken once, answered or not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from fleetctl.client import Fleet
from fleetd.protocol.requests.hook import HookStatusGet
from tests.support.hook_client import hook

from .recorded import PAYLOADS

SCHEMAS = Path(__file__).parent / "schemas"
# What Claude's settings name, whoever runs the hooks in them.
FOREIGN = ("grok", "antigravity")
FILES = sorted(PAYLOADS.glob("*/*.json"))
SENDERS = {file.parent.name for file in FILES}


def _words(file: Path) -> tuple[str, ...]:
    """Return what stands behind the client in the settings of the harness."""
    harness, event = file.parent.name, file.name.split(".")[0]
    if harness in FOREIGN:
        return ("claude",)
    return (harness, event) if harness == "copilot" else (harness,)


def _honoured(file: Path, reply: dict[str, Any]) -> bool:
    """Whether a reply is what the vendor's schema allows for the event; only Codex has schemas."""
    if file.parent.name != "codex":
        return True
    event = json.loads(file.read_text())["hook_event_name"]
    kebab = "".join(f"-{c.lower()}" if c.isupper() else c for c in event).lstrip("-")
    schema = json.loads((SCHEMAS / f"{kebab}.command.output.json").read_text())
    return bool(Draft7Validator(schema).is_valid(reply))


def test_there_are_payloads_of_every_sender() -> None:
    assert {"claude", "codex", "gemini", "cursor", "copilot", "opencode", *FOREIGN} <= SENDERS


@pytest.mark.parametrize("pretty", [None, 2])
def test_each_is_taken_once_in_silence_or_answered_as_its_harness_honours_it(
    connect: Callable[[], Fleet], pretty: int | None
) -> None:
    for file in FILES:
        text = json.dumps(json.loads(file.read_text("utf-8")), indent=pretty)
        done = hook(text, *_words(file))
        assert (done.status, done.err) == (0, b""), file
        if done.out:
            assert _honoured(file, json.loads(done.out)), (file, done.out)
    status = connect().call(HookStatusGet())
    # Gemini CLI's request to its model is answered, and not recorded.
    recorded = [file for file in FILES if file.stem != "BeforeModel"]
    assert sum(each.deliveries for each in status.harnesses) == len(recorded)
    told = {each.harness: each.unfit for each in status.harnesses}
    assert set(told) == SENDERS
    assert told == dict.fromkeys(told, 0)
