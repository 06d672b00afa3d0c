"""Spans of a mission: children lie within parents whatever the log says, and ids are derived."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fleetctl.client.models import decode
from fleetctl.export.encoding import Json, Protobuf, batches
from fleetctl.export.spans import MOST_EVENTS, REMEMBERED, MissionTrace, Span
from fleetd.protocol.records import Event, Sortie
from fleetd.protocol.timestamps import iso
from tests.unit.report.reports import AT, mission

START = 1_767_614_400_000
MISSION = "msn-1a2b3c4d"
KINDS = (
    *("command_started", "tool_started", "command_finished", "tool_finished", "tool_failed"),
    *("prompt_submitted", "agent_answered", "agent_paused", "window_compacted", "window_briefed"),
    *("briefing_missed", "error_reported", "file_modified", "fleet_checkpointed", "lock_renewed"),
    *("fleet_recovered", "somebodys_own"),
)
TIMES = st.integers(-5_000, 200_000).map(lambda ms: iso(START + ms))
ODD = st.sampled_from([None, 7, [], {}, "", "x", "PASS", "FAIL", "a\x1b[31m\nb", "é" * 40])
DATA = st.fixed_dictionaries(
    {},
    optional={
        "call_id": st.sampled_from(["c1", "c2", "c3", ""]) | ODD,
        "tool": ODD,
        "command": ODD,
        "result": ODD,
        "error": ODD,
        "prompt": ODD,
        "message": ODD,
        "task": ODD,
        "summary": ODD,
        "name": ODD,
        "reason": st.sampled_from(["off", "reply_lost"]),
        "happened_at": TIMES | ODD,
        "duration_ms": st.integers(-5, 10**9) | ODD,
    },
)
AGENTS = ("alice", "bob", None)
EVENTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(AGENTS), TIMES, DATA), max_size=40
)
SORTIES = st.lists(
    st.tuples(
        st.sampled_from(("alice", "carol", None)),
        st.none() | TIMES,
        st.none() | TIMES,
        st.sampled_from(("pending", "in_progress", "completed", "failed")),
    ),
    max_size=5,
)


def plain(record: Any) -> Any:
    return decode(msgspec.json.encode(record))


def event(seq: int, kind: str, agent_id: str | None, at: str, data: dict[str, Any]) -> Any:
    return plain(
        Event(
            seq=seq,
            type=kind,
            stream="fleet",
            timestamp=at,
            mission_id=MISSION,
            agent_id=agent_id,
            data=data,
        )
    )


def sortie(number: int, agent_id: str | None, began: Any, ended: Any, status: Any) -> Any:
    made = Sortie(
        id=f"srt-{number}",
        status=status,
        title=f"Step {number}",
        assigned_to=agent_id,
        started_at=began,
        completed_at=ended,
        mission_id=MISSION,
    )
    return plain(made)


def traced(
    told: Any, sorties: Any = (), *, with_prompts: bool = False, **of_mission: Any
) -> list[Span]:
    own = plain(mission("Add a login", **of_mission))
    made = [sortie(number, *each) for number, each in enumerate(sorties)]
    trace = MissionTrace(own, made, lambda _: None, with_prompts=with_prompts)
    spans: list[Span] = []
    for seq, each in enumerate(told, 1):
        spans += trace.add_event(event(seq, *each))
    return [*spans, *trace.finish()]


@given(EVENTS, SORTIES, st.none() | TIMES)
@settings(max_examples=300, deadline=None)
def test_children_lie_within_parents(told: Any, sorties: Any, completed_at: str | None) -> None:
    status = "completed" if completed_at else "in_progress"
    spans = traced(told, sorties, completed_at=completed_at, status=status)
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    roots = [span for span in spans if not span.parent_id]
    assert [span.name for span in roots] == ["invoke_workflow Add a login"]
    assert {span.trace_id for span in spans} == {roots[0].trace_id}
    for span in spans:
        assert 0 <= span.start_ms <= span.end_ms
        for inner in span.events:
            assert span.start_ms <= inner.at_ms <= span.end_ms
        if span.parent_id:
            parent = by_id[span.parent_id]
            assert parent.start_ms <= span.start_ms
            assert span.end_ms <= parent.end_ms


@given(EVENTS, SORTIES, st.booleans())
@settings(max_examples=100, deadline=None)
def test_twice_is_the_same_and_both_encodings_say_the_same(
    told: Any, sorties: Any, with_prompts: bool
) -> None:
    spans = traced(told, sorties, with_prompts=with_prompts)
    again = traced(told, sorties, with_prompts=with_prompts)
    for encoding in (Json(), Protobuf()):
        assert encoding.encode(spans) == encoding.encode(again)
    document = json.loads(Json().encode(spans))
    proto = ExportTraceServiceRequest.FromString(Protobuf().encode(spans))
    shown = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for one, other in zip(shown, proto.resource_spans[0].scope_spans[0].spans, strict=True):
        assert one["spanId"] == other.span_id.hex()
        assert one.get("parentSpanId", "") == other.parent_span_id.hex()
        assert one["name"] == other.name
        assert int(one["startTimeUnixNano"]) == other.start_time_unix_nano
        assert int(one["endTimeUnixNano"]) == other.end_time_unix_nano
        assert {each["key"] for each in one["attributes"]} == {
            each.key for each in other.attributes
        }
        assert one.get("status", {}).get("code", 0) == other.status.code
        assert len(one.get("events", [])) == len(other.events)


def named(spans: list[Span], name: str) -> Span:
    [found] = [span for span in spans if span.name == name]
    return found


def test_a_call_that_is_told_of_twice_is_one_span() -> None:
    told = [
        (
            "command_started",
            "alice",
            iso(START),
            {"tool": "Bash", "call_id": "c1", "command": "make"},
        ),
        ("command_finished", "alice", iso(START + 5), {"call_id": "c1", "result": "FAIL"}),
        ("tool_failed", "alice", iso(START + 9), {"call_id": "c1", "error": "no rule"}),
    ]
    span = named(traced(told), "execute_tool Bash")
    assert (span.start_ms, span.end_ms, span.error) == (START, START + 5, "no rule")
    assert span.attributes["gen_ai.tool.call.arguments"] == '{"command":"make"}'
    assert span.attributes["gen_ai.tool.call.id"] == "c1"
    assert span.attributes["error.type"] == "tool_error"


def test_what_runs_ends_with_the_last_event_and_is_marked() -> None:
    told = [
        ("tool_started", "alice", iso(START), {"tool": "Read", "call_id": "c1"}),
        ("file_modified", "bob", iso(START + 70), {}),
    ]
    sorties = [("bob", iso(START + 1), None, "in_progress")]
    spans = traced(told, sorties)
    for name in ("execute_tool Read", "sortie Step 0"):
        assert named(spans, name).end_ms == START + 70
        assert named(spans, name).attributes["fleet.running"] is True
    assert named(spans, "invoke_workflow Add a login").attributes["fleet.running"] is True
    told.append(("agent_paused", "alice", iso(START + 80), {}))
    span = named(traced(told), "execute_tool Read")
    assert (span.end_ms, span.attributes["fleet.unfinished"]) == (START + 80, True)


def test_a_compaction_and_its_briefing_are_one_span_and_the_next_is_another() -> None:
    told: list[Any] = [
        ("window_compacted", "alice", iso(START), {"summary": "SECRET"}),
        ("window_briefed", "alice", iso(START + 3), {}),
        ("tool_started", "alice", iso(START + 9), {"call_id": "c1"}),
        ("briefing_missed", "alice", iso(START + 20), {"reason": "off"}),
        ("window_compacted", "alice", iso(START + 21), {}),
    ]
    found = [span for span in traced(told) if span.name == "compaction"]
    assert [(span.start_ms - START, span.end_ms - START) for span in found] == [(0, 3), (20, 21)]
    assert [span.attributes["fleet.briefing"] for span in found] == ["given", "off"]


def test_prompts_answers_tasks_and_titles_of_sessions_are_exported_only_when_asked() -> None:
    told: list[Any] = [
        ("prompt_submitted", "alice", AT, {"prompt": "SECRET one"}),
        ("tool_started", "alice", AT, {"tool": "Task", "call_id": "c1", "task": "SECRET two"}),
        ("tool_finished", "alice", AT, {"call_id": "c1"}),
        ("agent_answered", "alice", AT, {"message": "SECRET three"}),
        ("window_compacted", "alice", AT, {"summary": "SECRET four"}),
    ]
    own = {"origin": "session", "title": "SECRET five"}

    def bodies(*, with_prompts: bool) -> str:
        trace = MissionTrace(plain(mission(**own)), [], lambda _: None, with_prompts=with_prompts)
        spans = [
            span for seq, each in enumerate(told) for span in trace.add_event(event(seq, *each))
        ]
        return Json().encode([*spans, *trace.finish()]).decode()

    assert "SECRET" not in bodies(with_prompts=False)
    text = bodies(with_prompts=True)
    assert [f"SECRET {each}" in text for each in ("one", "two", "three", "four", "five")] == [
        True
    ] * 5
    assert "gen_ai.input.messages" in text


def test_what_is_remembered_is_bounded_and_what_is_left_out_is_counted() -> None:
    told: list[Any] = [
        ("tool_started", "alice", iso(START + n), {"call_id": f"c{n}"}) for n in range(500)
    ]
    told += [("error_reported", "alice", iso(START + 900), {"name": "x"})] * 500
    own = plain(mission("Add a login"))
    trace = MissionTrace(own, [], lambda _: None)
    before = [span for seq, each in enumerate(told) for span in trace.add_event(event(seq, *each))]
    assert len(before) == 500 - REMEMBERED
    agent = named(list(trace.finish()), "invoke_agent alice")
    assert (len(agent.events), agent.dropped_events) == (MOST_EVENTS, 500 - MOST_EVENTS)


@given(st.lists(st.integers(0, 3_000), max_size=30), st.integers(1, 5), st.integers(500, 9_000))
@settings(max_examples=100, deadline=None)
def test_batches_are_bounded_and_lose_nothing(sizes: list[int], most: int, limit: int) -> None:
    spans = [
        Span(b"t" * 16, n.to_bytes(8), b"", "x", 0, 1, {"text": "y" * size})
        for n, size in enumerate(sizes)
    ]
    found = list(batches(spans, most, limit))
    assert [span for batch in found for span in batch] == spans
    for batch in found:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(span.size for span in batch) <= limit
