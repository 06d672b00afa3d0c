"""Whatever a vendor changes, a payload gives a report or is unfit: no error, no flood.

``FLEET_PROPERTY_EXAMPLES=5000`` runs a longer campaign, each time with another seed.
"""

import contextlib
import copy
import json
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.harness.detect import ADAPTERS, recognise
from fleetd.harness.payload import PROMPT_CHARS
from fleetd.harness.report import Adapter, Answer, Report, Unfit

from .recorded import PAYLOADS, names, recorded, texts_of

CAMPAIGN = int(os.environ.get("FLEET_PROPERTY_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=CAMPAIGN or 150,
    derandomize=not CAMPAIGN,
    database=None,
    deadline=None,
    print_blob=True,
)
SAMPLES = [
    recorded(folder.name, name)
    for folder in sorted(PAYLOADS.glob("*/"))
    for name in names(folder.name)
]
SAMPLES += [
    {
        "session_id": "s",
        "hook_event_name": "PostToolUse",
        "cwd": "/p",
        "tool_name": name,
        "tool_input": {"taskId": "1", "status": "completed", "subject": "x", "todos": todos},
        "tool_response": {
            "task": {"id": "1"},
            "exit_code": 1,
            "bashEditDiff": {"changedFiles": []},
        },
    }
    for name in ("TodoWrite", "TaskCreate", "TaskUpdate", "Bash")
    for todos in ([{"content": "x", "status": "pending"}], "1. [pending] x")
]
HUGE = "x" * 300_000
# Made anew each time, for what is put into a payload may be mutilated next.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", " ", "\0", "\ud83d", "../..", "/", "-", "\x01\x02", "<analysis>"]),
    st.builds(lambda: HUGE),
    st.lists(st.one_of(st.none(), st.text(max_size=5), st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.builds(lambda: [[[[[]]]]]),
    st.builds(lambda: [{"content": "x" * 600, "status": {}} for _ in range(2_000)]),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in a payload as its container and key."""
    found: list[tuple[Any, Any]] = []
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in entries:
        found.append((value, key))
        if isinstance(each, dict | list):
            found += places(each)
    return found


@st.composite
def mutilated(draw: st.DrawFn) -> dict[str, Any]:
    payload = copy.deepcopy(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(0, 4))):
        every = places(payload)
        if not every:
            break
        container, key = draw(st.sampled_from(every))
        match draw(st.sampled_from(["drop", "retype", "nest", "wrap", "add"])):
            case "drop":
                del container[key]
            case "retype":
                container[key] = draw(ODD)
            case "nest":
                container[key] = {"value": container[key], "type": "x"}
            case "wrap":
                container[key] = [container[key]]
            case _ if isinstance(container, dict):
                name = draw(st.sampled_from(["agent_id", "source", "error", "todos", "prompt"]))
                container[name] = draw(ODD)
            case _:
                container.append(draw(ODD))
    return payload


def understood(adapter: Adapter, payload: dict[str, Any], event: str | None) -> Report | None:
    """Return a report, None for what the adapter calls unfit."""
    try:
        return adapter.read(payload, event)
    except Unfit as reason:
        refused = str(reason)
    assert len(refused) < 500
    return None


def look_at(adapter: Adapter, report: Report) -> None:
    """Hold a report, and the reply to it, against what every one must keep to."""
    assert report.session_id.strip()
    told = texts_of(report)
    assert len(told) < 5_000
    assert all(len(text) <= PROMPT_CHARS for text in told)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    out = adapter.reply(report, Answer(context="Mission: x", deny="held by another"))
    assert bool(out) <= (report.injects or report.denies)
    assert not out or isinstance(json.loads(out), dict)


@SETTINGS
@given(
    payload=mutilated(),
    argument=st.sampled_from([*ADAPTERS, "house-agent", "", "Ä"]),
    event=st.one_of(st.sampled_from([None, "SessionStart", "stop", ""]), st.builds(lambda: HUGE)),
    env=st.dictionaries(st.sampled_from(["GROK_HOOK_EVENT", "CURSOR_VERSION"]), st.text()),
)
def test_any_payload_gives_a_report_or_is_unfit_whoever_reads_it(
    payload: dict[str, Any], argument: str, event: str | None, env: dict[str, str]
) -> None:
    readers = list(ADAPTERS.values())
    with contextlib.suppress(Unfit):
        readers.append(recognise(argument, payload, env))
    for adapter in readers:
        report = understood(adapter, payload, event)
        if report is not None:
            look_at(adapter, report)


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_no_adapter_minds_an_empty_payload_or_tail(name: str) -> None:
    with pytest.raises(Unfit):
        ADAPTERS[name].read({}, None)
    assert ADAPTERS[name].look_back("") == ()
