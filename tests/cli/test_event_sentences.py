"""Every event has a sentence that a person can read."""

import msgspec
import pytest
from msgspec import inspect

from fleetctl.output import console
from fleetctl.output.events import sentence, tone
from fleetd.protocol.event_types import EVENT_TYPES
from fleetd.protocol.events import PAYLOADS, REPORTED_ACTIVITY, payload_data
from fleetd.protocol.records import Event

VALUES = {"title": "Login", "to": ["a", "b"], "file": "/p/src/a.py", "percent": 40}


def event(kind: str, agent: str | None = "spec-1", /, **data: object) -> Event:
    return Event(
        seq=1,
        type=kind,
        stream="fleet",
        timestamp="2026-01-05T12:00:00.000Z",
        mission_id="msn-1",
        agent_id=agent,
        data=data,
    )


def example(field: inspect.Field) -> object:
    """Return a value that a field can hold."""
    if field.encode_name in VALUES:
        return VALUES[field.encode_name]
    kind = field.type
    if isinstance(kind, inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    if isinstance(kind, inspect.IntType):
        return 3
    if isinstance(kind, inspect.BoolType):
        return True
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.ListType):
        return ["sqlite"] if field.encode_name == "storage_locations" else ["one"]
    return f"<{field.encode_name}>"


def whole(kind: str) -> Event:
    """Return an event of a type with all its fields."""
    payload = PAYLOADS[kind]
    info = inspect.type_info(payload)
    assert isinstance(info, inspect.StructType)
    fields = {each.encode_name: example(each) for each in info.fields}
    return event(kind, **payload_data(msgspec.convert(fields, payload)))


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
def test_every_type_the_daemon_writes_has_a_sentence_of_its_own(kind):
    told = sentence(whole(kind))

    assert told[0].isupper() or told.startswith(("spec-1", '"Login"', "<", "3 "))
    assert "?" not in told
    assert "{" not in told
    assert kind.replace("_", " ") not in told.lower() or kind == "mission_updated"


@pytest.mark.parametrize("kind", sorted({*PAYLOADS, *REPORTED_ACTIVITY}))
def test_an_event_that_lacks_its_fields_or_has_odd_ones_is_told_all_the_same(kind):
    for data in ({}, {name: {"odd": [1]} for name in (*VALUES, "reason", "notes", "errors")}):
        for agent in ("spec-1", None):
            assert sentence(event(kind, agent, **data)).strip()


@pytest.mark.parametrize("kind", sorted(REPORTED_ACTIVITY))
def test_what_harnesses_report_has_a_sentence(kind):
    told = sentence(event(kind, name="Bash"))

    assert "spec-1" in told
    assert kind.replace("_", " ") not in told


CLOSED = "Closed with its session (logout), 2 of 4 sorties open; resumes with it"


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (event("sortie_completed", title="Login"), 'spec-1 completed "Login"'),
        (
            event("sortie_progressed", title="Login", percent=40, notes="Half\nway"),
            'spec-1 is at 40% of "Login": Half way',
        ),
        (
            event("lock_acquired", held_by="a", file="/p/x.py", purpose="edit"),
            "a locked x.py",
        ),
        (event("message_sent", to=["a", "b"], subject="Hi"), "spec-1 wrote to a, b: Hi"),
        (event("mission_created", None, title="Login"), 'The operator created the mission "Login"'),
        (
            event("context_compacted", None, inactivity_duration_ms=310_000),
            "The mission fell silent: nothing was done for 5m 10s",
        ),
        (
            event("mission_cancelled", None, reason="enough", closed_reason="person"),
            "The mission was called off: enough",
        ),
        (
            event("mission_cancelled", None, reason=CLOSED, closed_reason="session"),
            "The mission was closed" + CLOSED.removeprefix("Closed"),
        ),
        (  # as fleetd wrote it before it said why
            event("mission_cancelled", None, reason=CLOSED),
            "The mission was closed" + CLOSED.removeprefix("Closed"),
        ),
        (
            event("mission_cancelled", None, reason="", closed_reason="session"),
            "The mission was closed with its session",
        ),
        (
            event("mission_cancelled", closed_reason="merged", reason="", merged_into="msn-1"),
            "The mission was merged into msn-1",
        ),
        (
            event("mission_completed", closed_reason="merged", merged_into="msn-1"),
            "The mission is completed, and merged into msn-1",
        ),
        (
            event("mission_cancelled", closed_reason="merged", reason="It was handed over"),
            "The mission was merged into another mission",
        ),
        (
            event("hook_noted", what="permission_request", message="Bash: make"),
            "spec-1 asks for a permission: Bash: make",
        ),
        (event("agent_needs", needs="question", text="Why?"), "spec-1 asks a question: Why?"),
        (event("agent_needs", needs="plan_approval"), "spec-1 wants its plan approved"),
        (event("agent_needs", needs="none"), "spec-1 waits no longer"),
        (event("hook_noted", what="teammate_idle"), "spec-1 heard from its harness: teammate_idle"),
        (event("deploy_begun"), "spec-1: deploy begun"),
        (event("deploy_begun", None), "Deploy begun"),
        (event("command_started"), "spec-1 runs a command"),
    ],
)
def test_sentences_read_as_people_say_them(happened, told):
    assert sentence(happened, inside="/p") == told


def test_long_words_are_shortened_and_braces_are_nothing_special():
    told = sentence(event("agent_answered", message="{who} " + "x" * 400))

    assert told.startswith("spec-1 said: {who} xxx")
    assert len(told) < 330
    assert console.clean(told) == told


def test_the_table_has_the_types_that_there_are():
    assert EVENT_TYPES.keys() == {*PAYLOADS, *REPORTED_ACTIVITY}


def test_tones_say_what_an_event_means():
    assert (tone("sortie_completed"), tone("agent_lost"), tone("lock_renewed")) == (
        "green",
        "red",
        None,
    )
