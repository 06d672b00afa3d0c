"""What transcripts tell of tokens: each request once, however its lines come."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from fleetd.harness.usage import claude, codex, gemini, opencode
from fleetd.harness.usage.record import Read, UsageRecord, lines_of
from tests.support.fleet import HOUR, NOON, SECOND
from tests.support.transcripts import claude_line, codex_count, codex_line, text_of

from .recorded import PAYLOADS

META = codex_line("session_meta", 0, {"id": "s-1"})
CONTEXT = codex_line("turn_context", 0, {"model": "gpt-5.5"})


def told(read: Read, *lines: dict[str, Any]) -> list[UsageRecord]:
    portion = read({}, lines_of(text_of(*lines))[0])
    assert portion.broken == 0
    return portion.records


def figures(record: UsageRecord) -> tuple[int, ...]:
    """Return input, output, cache read, cache write, kept for an hour, reasoning."""
    return (
        *(record.input, record.output, record.cache_read),
        *(record.cache_write, record.cache_write_1h, record.reasoning),
    )


def test_a_message_of_claude_code_tells_all_its_tokens() -> None:
    [record] = told(claude.read, claude_line(1, output_tokens_details={"thinking_tokens": 4}))
    assert figures(record) == (101, 10, 1_000, 50, 20, 4)
    assert (record.at, record.model) == ("2026-01-05T12:00:01.000Z", "claude-sonnet-4-5")


def test_lines_of_one_message_have_one_key_and_others_have_others() -> None:
    first, again, other = told(
        claude.read, claude_line(1, output_tokens=1), claude_line(1), claude_line(2)
    )
    assert first.key == again.key != other.key


def test_what_no_model_answered_is_not_counted() -> None:
    silent = claude_line(1, input_tokens=0, output_tokens=0, cache_read_input_tokens=0)
    silent["message"]["usage"]["cache_creation_input_tokens"] = 0
    synthetic = claude_line(2)
    synthetic["message"]["model"] = "<synthetic>"
    # The answer of a subagent repeats what it took.
    result = {"type": "user", "toolUseResult": {"usage": {"input_tokens": 5}}, "message": {}}
    assert told(claude.read, silent, synthetic, result) == []


def test_a_repeated_count_of_codex_is_no_request() -> None:
    one, two = (
        codex_count(1, [100, 40, 10], [100, 40, 10]),
        codex_count(2, [250, 90, 30], [150, 50, 20]),
    )
    records = told(codex.read, META, CONTEXT, one, one, two, two)
    assert [figures(each) for each in records] == [(60, 10, 40, 0, 0, 5), (100, 20, 50, 0, 0, 10)]
    assert {each.model for each in records} == {"gpt-5.5"}


def test_the_total_of_codex_tells_a_request_where_nothing_else_does() -> None:
    lines = [codex_count(n, [100 * n, 0, 10 * n], None) for n in (1, 2, 3)]
    assert [figures(each)[:2] for each in told(codex.read, META, *lines)] == [(100, 10)] * 3


def test_a_fork_of_codex_goes_on_with_its_parents_total() -> None:
    """Codex 0.169 writes no copies, and begins with the total of the parent."""
    meta = codex_line(
        "session_meta", 100, {"id": "s-2", "forked_from_id": "s-1", "history_base": {}}
    )
    [record] = told(codex.read, meta, codex_count(101, [300, 0, 30], [100, 0, 10]))
    assert figures(record)[:2] == (100, 10)


@pytest.mark.parametrize("copied_at", [1, 100])
def test_copies_in_a_fork_of_codex_are_not_counted(copied_at: int) -> None:
    """Older versions copied the parent's lines, with their times or with new ones."""
    meta = codex_line("session_meta", 100, {"id": "s-2", "forked_from_id": "s-1"})
    copies = [codex_line("session_meta", copied_at, {"id": "s-1"})]
    copies += [codex_count(copied_at, [100 * n, 0, 10 * n], [100, 0, 10]) for n in (1, 2)]
    own = codex_count(105, [300, 0, 30], [100, 0, 10])
    portion = codex.read({}, lines_of(text_of(meta, *copies, own))[0])
    assert [each.at for each in portion.records] == ["2026-01-05T12:01:45.000Z"]
    assert portion.repeated == 2


def test_a_total_that_begins_anew_counts_again() -> None:
    one = codex_count(1, [100, 0, 10], [100, 0, 10])
    two = codex_count(2, [200, 0, 20], [100, 0, 10])
    records = told(codex.read, META, one, two, one, two)
    assert len({each.key for each in records}) == len(records) == 4


def test_the_counts_of_a_recorded_rollout() -> None:
    data = (PAYLOADS / "codex" / "_rollout.counts.jsonl").read_bytes()
    portion = codex.read({}, lines_of(data)[0])
    assert [each.input for each in portion.records] == [5_000, 250_000, 500, 1_000]
    assert (portion.repeated, portion.broken) == (2, 0)


def test_a_message_of_gemini_that_is_written_again_has_one_key() -> None:
    tokens = {"input": 100, "output": 10, "cached": 40, "thoughts": 5, "tool": 3, "total": 118}
    message = {
        "id": "m-1",
        "timestamp": "2026-01-05T12:00:00.000Z",
        "type": "gemini",
        "model": "gemini-2.5-pro",
        "tokens": tokens,
    }
    replaced = {"$set": {"messages": [{"id": "m-1", "content": [{"text": '"tokens"'}]}]}}
    first, again = told(gemini.read, message, replaced, message | {"toolCalls": []})
    assert first == again
    assert figures(first) == (63, 15, 40, 0, 0, 5)


def opencode_message(created: int, completed: int | None, **tokens: Any) -> tuple[int, bytes]:
    given = {"input": 100, "output": 10, "reasoning": 0, "cache": {"read": 5, "write": 3}}
    time = {"created": created} | ({"completed": completed} if completed else {})
    said = {"role": "assistant", "time": time, "modelID": "m", "tokens": given | tokens}
    return created, json.dumps(said).encode()


def test_a_message_of_opencode_is_asked_for_again_until_it_is_finished() -> None:
    user = NOON, json.dumps({"role": "user", "time": {"created": NOON}}).encode()
    rows = [user, opencode_message(NOON + 1, None), opencode_message(NOON + 2, NOON + 9)]
    portion, since = opencode.read_messages(0, rows, NOON + SECOND)
    assert ([figures(each)[:4] for each in portion.records], since) == ([(100, 10, 5, 3)], NOON + 1)
    rows[1] = opencode_message(NOON + 1, NOON + 5)
    portion, since = opencode.read_messages(since, rows[1:], NOON + SECOND)
    assert (len(portion.records), since) == (2, NOON + 3)
    # One that its process left is not waited for.
    _, since = opencode.read_messages(0, [opencode_message(NOON, None)], NOON + 2 * HOUR)
    assert since == NOON + 1


def test_the_reasoning_of_opencode_is_output() -> None:
    apart = opencode_message(NOON, NOON + 9, reasoning=7, total=125)
    inside = opencode_message(NOON, NOON + 9, reasoning=7, total=118)
    found = opencode.read_messages(0, [apart, inside], NOON)[0].records
    assert [(each.output, each.reasoning) for each in found] == [(17, 7), (10, 7)]


def test_a_copy_of_a_message_of_opencode_has_its_key() -> None:
    rows = [opencode_message(NOON, NOON + 9), opencode_message(NOON, NOON + 9)]
    first, copy = opencode.read_messages(0, rows, NOON)[0].records
    assert first.key == copy.key


HOSTILE = [
    b"not json",
    b'{"usage"}',
    b'{"type":"assistant","message":{"usage":{"input_tokens":-1}}}',
    b'{"type":"assistant","timestamp":"then","message":{"id":"m","usage":{"input_tokens":1}}}',
    b'{"type":"assistant","timestamp":"2026-01-05T12:00:00Z","message":{"usage":{"input_tokens":1}}}',
    b'{"type":"assistant","message":{"id":"m","usage":{"input_tokens":99999999999999999999}}}',
    b'{"usage":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"type":"event_msg","timestamp":"2026-01-05T12:00:00Z","payload":{"type":"token_count","info":7}}',
    b'{"type":"session_meta","timestamp":"x","payload":{"id":"s","forked_from_id":"p"}}',
    b'{"tokens":{"input":"many"}}',
    b"\xff\xfe\x00{",
]


@pytest.mark.parametrize("read", [claude.read, codex.read, gemini.read])
@pytest.mark.parametrize("line", HOSTILE)
def test_a_broken_line_is_counted_and_stops_nothing(read: Read, line: bytes) -> None:
    good = {claude.read: claude_line(1), codex.read: codex_count(1, [1, 0, 1], [1, 0, 1])}
    after = good.get(read, {"id": "m", "timestamp": "2026-01-05T12:00:00Z", "tokens": {"input": 1}})
    portion = read({}, [line, text_of(after).strip()])
    assert len(portion.records) == 1
    assert portion.broken <= 1
    assert portion.broken == 1 or b'"usage"' not in line or read is not claude.read


def sequences(read: Read) -> tuple[list[dict[str, Any]], Read]:
    if read is claude.read:
        return [claude_line(n // 2) for n in range(40)], read
    counts = [
        codex_count(n, [100 * (n // 2), 0, 10 * (n // 2)], [100, 0, 10]) for n in range(2, 40)
    ]
    return [META, CONTEXT, *counts], read


@pytest.mark.parametrize("read", [claude.read, codex.read])
@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(1, 3_000), min_size=1, max_size=40))
def test_whatever_the_portions_are_they_tell_the_same(read: Read, cuts: list[int]) -> None:
    """A torn line waits for the next portion."""
    lines, _ = sequences(read)
    data = text_of(*lines)
    whole = read({}, lines_of(data)[0])
    state: dict[str, Any] = {}
    found, position, end = [], 0, 0
    repeated = 0
    for cut in [*cuts, len(data)]:
        end = min(end + cut, len(data))
        some, taken = lines_of(data[position:end])
        portion = read(state, some)
        assert portion.broken == 0
        state, position = portion.state, position + taken
        found += portion.records
        repeated += portion.repeated
    assert position == len(data)
    assert (found, repeated) == (whole.records, whole.repeated)


def test_what_follows_the_last_end_of_a_line_waits() -> None:
    assert lines_of(b"") == ([], 0)
    assert lines_of(b"{}\n\n{ }\n{") == ([b"{}", b"{ }"], 8)
