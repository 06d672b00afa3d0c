"""What the end of a rollout tells beside the hooks, and that nothing in one can do harm."""

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from fleetd.engine.hooks.facts import TAIL_BYTES, tail_of
from fleetd.harness.codex import adapter
from fleetd.harness.codex_rollout import CALLS, script_plan
from fleetd.harness.payload import ERROR_CHARS
from fleetd.harness.report import (
    AnyHappening,
    Paused,
    PlanItem,
    Planned,
    ToolFinished,
    WindowUsed,
)

from .recorded import PAYLOADS

PROJECT = "/home/user/proj"
A, B, C = (f"{PROJECT}/{name}" for name in ("a.txt", "b.txt", "sub/c.txt"))
STARTED = {"type": "task_started", "turn_id": "t"}
RECORDED: dict[str, tuple[AnyHappening, ...]] = {
    "planned": (
        Planned(
            (PlanItem("Write b.txt", "completed"), PlanItem("Run tests", "in_progress")),
            whole=True,
        ),
        ToolFinished("apply_patch", call_id="call_a1", edited=(A, B), passed=True),
        # A patch in a shell command, of which no hook tells how it ended.
        ToolFinished("apply_patch", call_id="call_h", edited=(B,), passed=True),
        ToolFinished("Bash", "call_3", "false", passed=False, error="Exit code 1"),
        ToolFinished(
            "Bash",
            "call_5",
            "cat nofile",
            passed=False,
            error="Exit code 1\ncat: nofile: No such file or directory",
        ),
        ToolFinished("Bash", "call_6", "true", passed=True),
        Paused("DONE"),
    ),
    # Its plans were refused, for there was no tool to make them with.
    "refused": (
        ToolFinished(
            "Bash",
            "exec-2e8688e3-c431-4ff8-b0da-acb4efe1b7c3",
            "false",
            passed=False,
            error="Exit code 1",
        ),
        ToolFinished("Bash", "exec-877063ad-ff21-470c-af13-ab4fbe2331b5", "echo hi", passed=True),
        ToolFinished(
            "apply_patch",
            call_id="exec-b22e5715-dc72-4e5a-84bb-e8fccbd92a2c",
            edited=(A, B),
            passed=True,
        ),
        Paused("DONE"),
    ),
    "patches": (
        ToolFinished(
            "apply_patch",
            call_id="call_b1",
            passed=False,
            error="apply_patch verification failed: Failed to find expected lines in "
            f"{A}:\nnothing like it",
        ),
        ToolFinished("apply_patch", call_id="call_m1", edited=(A, C), passed=True),
        ToolFinished("apply_patch", call_id="call_h1", edited=(C,), passed=True),
        ToolFinished("apply_patch", call_id="call_d1", edited=(C,), passed=True),
        ToolFinished("Bash", "call_4", "sleep 1; exit 3", passed=False, error="Exit code 3"),
        Paused("DONE"),
    ),
    "counts": (WindowUsed(1_010, 258_400),),
}


def rollout(name: str) -> str:
    return (PAYLOADS / "codex" / f"_rollout.{name}.jsonl").read_text("utf-8")


def written(*payloads: dict[str, Any]) -> str:
    """Return a rollout with these payloads, one on each line, as Codex writes them."""
    return "".join(
        json.dumps({"type": "x", "payload": each}, ensure_ascii=False, separators=(",", ":")) + "\n"
        for each in payloads
    )


def told(*payloads: dict[str, Any]) -> tuple[AnyHappening, ...]:
    return adapter.look_back(written(*payloads))


def planning(call_id: str, *steps: str) -> dict[str, Any]:
    plan = json.dumps({"plan": [{"step": step, "status": "pending"} for step in steps]})
    return {
        "type": "function_call",
        "name": "update_plan",
        "arguments": plan,
        "call_id": call_id,
    }


def script(call_id: str, code: str) -> dict[str, Any]:
    return {"type": "custom_tool_call", "name": "exec", "input": code, "call_id": call_id}


def output(call_id: str, said: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": said}


def ran(call_id: str, code: Any, line: Any = "make", said: Any = "") -> dict[str, Any]:
    item = {"type": "CommandExecution", "id": call_id, "command": ["bash", "-lc", line]}
    return {
        "type": "item_completed",
        "item": {**item, "exit_code": code, "aggregated_output": said},
    }


def changed(call_id: str, status: str, **changes: Any) -> dict[str, Any]:
    item = {"type": "FileChange", "id": call_id, "changes": changes, "status": status}
    return {"type": "item_completed", "item": {**item, "stdout": "", "stderr": "no such line"}}


def answer(text: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": parts}


def plan_of(happenings: tuple[AnyHappening, ...]) -> list[str] | None:
    """Return the steps of the one plan that is told, None without one."""
    plans = [each for each in happenings if isinstance(each, Planned)]
    assert len(plans) <= 1
    return [item.text for item in plans[0].items] if plans else None


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_rollout_tells_exactly_this(name: str) -> None:
    assert adapter.look_back(rollout(name)) == RECORDED[name]


def test_a_plan_that_a_script_works_out_is_not_known_and_the_one_before_is_not_told() -> None:
    assert plan_of(adapter.look_back(rollout("script"))) is None
    before = "".join(rollout("script").splitlines(keepends=True)[:8])
    assert plan_of(adapter.look_back(before)) == ["Write b.txt", "Run tests"]


@pytest.mark.parametrize("name", [*RECORDED, "script"])
def test_wherever_a_rollout_is_cut_nothing_else_is_told(name: str) -> None:
    text = rollout(name)
    everything = adapter.look_back(text)
    for start in range(0, len(text), 311):
        assert {*adapter.look_back(text[start:])} <= {*everything}
    for end in range(0, len(text), 311):
        adapter.look_back(text[:end])


def test_the_last_plan_counts_also_when_it_is_of_an_earlier_turn() -> None:
    assert plan_of(told(planning("p1", "a"), planning("p2", "b", "c"))) == ["b", "c"]
    assert plan_of(told(planning("p1", "a"), STARTED)) == ["a"]


@pytest.mark.parametrize(
    "refusal",
    [
        "unsupported call: update_plan",
        "failed to parse function arguments: missing field `plan`",
        "Command blocked by PreToolUse hook",
        [{"type": "input_text", "text": "Script failed\nWall time 0.0 seconds\nOutput:\n"}],
    ],
)
def test_a_plan_that_is_refused_leaves_the_one_before_it(refusal: Any) -> None:
    calls = (planning("p1", "a"), output("p1", "Plan updated"), planning("p2", "b"))
    assert plan_of(told(*calls, output("p2", refusal))) == ["a"]
    assert plan_of(told(*calls, output("p2", "Plan updated"))) == ["b"]
    assert plan_of(told(planning("p1", "b"), output("p1", refusal))) is None


def test_a_plan_that_cannot_be_read_is_none() -> None:
    bad = {**planning("p1", "a"), "arguments": '{"plan": ['}
    assert told(bad) == ()
    assert told({**bad, "arguments": "[1]"}) == ()
    assert told({**bad, "arguments": None}) == ()


@pytest.mark.parametrize(
    ("code", "steps"),
    [
        ('await tools.update_plan({plan:[{step:"a",status:"pending"}]})', ["a"]),
        ("tools.update_plan({ 'plan': [ {'status': 'pending', 'step': 'it\\'s'}, ], })", ["it's"]),
        (
            'tools.update_plan({explanation:"x", plan:[\n{step:`a\nb`, status:`pending`}]})',
            ["a\nb"],
        ),
        ('tools.update_plan({"plan":[{"step":"a","status":"pending"}]});exec_command()', ["a"]),
        ('update_plan({plan:[{step:"a",status:"b"}]});update_plan({plan:[]})', []),
        (r'update_plan({plan:[{step:"\u00e4 \ud83d\ude00 \x41\u{1F600}\t",status:"x"}]})', None),
    ],
)
def test_a_plan_that_is_written_out_in_a_script_is_read(code: str, steps: list[str] | None) -> None:
    wanted = ["ä \U0001f600 A\U0001f600\t"] if steps is None else steps
    assert plan_of(told(script("p", code))) == wanted


@pytest.mark.parametrize(
    "code",
    [
        "const plan = [1]; await tools.update_plan({plan})",
        "update_plan({plan: steps.map(s => ({step: s, status: 'pending'}))})",
        'update_plan({plan: [{step: "a" + b, status: "pending"}]})',
        "update_plan({plan: [{step: `a ${b}`, status: 'pending'}]})",
        'update_plan({plan: [{step: "a", status: "pending"}',
        'update_plan({plan: [{step: "\\u12", status: "pending"',
        "update_plan(",
    ],
)
def test_a_plan_that_a_script_works_out_is_not_guessed(code: str) -> None:
    assert script_plan(code) == ()


def test_a_script_without_a_plan_says_nothing_of_one() -> None:
    assert script_plan('text(await tools.exec_command({cmd: "make"}))') is None
    assert plan_of(told(planning("p", "a"), script("x", "text(1)"))) == ["a"]


@pytest.mark.parametrize(
    ("code", "said", "passed", "error"),
    [
        (0, "fine", True, None),
        (2, "x\nno rule\n", False, "Exit code 2\nx\nno rule"),
        (2, None, False, "Exit code 2"),
        (1, " \n", False, "Exit code 1"),
        (1, "y" * 9_000, False, f"Exit code 1\n…\n{'y' * (ERROR_CHARS - 14)}"),
    ],
)
def test_a_commands_exit_code_and_its_last_words_are_told(
    code: int, said: str | None, passed: bool, error: str | None
) -> None:
    (ended,) = told(ran("c", code, said=said))
    assert ended == ToolFinished("Bash", "c", "make", passed=passed, error=error)


@pytest.mark.parametrize("code", [None, -1, True, "0", 2**40])
def test_what_still_runs_or_was_ended_with_codex_has_no_outcome(code: Any) -> None:
    assert told(ran("c", code)) == ()


@pytest.mark.parametrize("line", [None, 3, [], ["x"], "", {"a": 1}])
def test_a_command_that_cannot_be_named_is_passed_over(line: Any) -> None:
    item = ran("c", 1, line)
    item["item"]["command"] = line if line != ["x"] else [[["x"]]]
    assert told(item) == ()


def test_older_rollouts_tell_the_outcome_in_the_output() -> None:
    def call(name: str, given: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps(given)
        return {"type": "function_call", "name": name, "arguments": line, "call_id": "c"}

    ended = output("c", "Chunk ID: 1\nProcess exited with code 1\nOutput:\nno rule\n")
    failed = ToolFinished("Bash", "c", "make", passed=False, error="Exit code 1\nno rule")
    assert told(call("exec_command", {"cmd": "make"}), ended) == (failed,)
    shell = call("shell", {"command": ["bash", "-lc", "make"]})
    passed = output(
        "c", "Exit code: 0\nWall time: 1 seconds\nOutput:\nProcess exited with code 7\n"
    )
    assert told(shell, passed) == (ToolFinished("Bash", "c", "make", passed=True),)
    assert told(call("other_tool", {"cmd": "make"}), ended) == ()
    assert (
        told(call("shell", {"command": ["make"]}), output("c", "Wall: 1\nOutput:\nExit code: 0\n"))
        == ()
    )
    assert told(ended) == ()


def test_files_are_told_when_the_change_was_made_only() -> None:
    moved = {"type": "update", "move_path": "/p/b"}
    (made,) = told(changed("c", "completed", **{"/p/a": moved, "relative": {}, "/p/c": None}))
    assert made == ToolFinished(
        "apply_patch", call_id="c", edited=("/p/a", "/p/b", "/p/c"), passed=True
    )
    (failed,) = told(changed("c", "failed", **{"/p/a": moved}))
    assert failed == ToolFinished("apply_patch", call_id="c", passed=False, error="no such line")


def test_what_ended_in_an_earlier_turn_is_not_told_again() -> None:
    assert told(ran("c1", 0), answer("One"), STARTED) == ()
    calls = told(STARTED, ran("c1", 0), answer("One"), STARTED, ran("c2", 1, said="x"))
    assert calls == (ToolFinished("Bash", "c2", "make", passed=False, error="Exit code 1\nx"),)


def test_of_many_calls_the_last_are_told_and_of_answers_the_last() -> None:
    many = [ran(f"c{number}", 0) for number in range(CALLS + 50)]
    happenings = told(*many, answer("One"), answer("Two"))
    assert len(happenings) == CALLS + 1
    assert happenings[0] == ToolFinished("Bash", "c50", "make", passed=True)
    assert happenings[-1] == Paused("Two")
    assert told({**answer("x"), "role": "user"}) == ()


def count(tokens: Any, size: Any = 258_400, **total: Any) -> dict[str, Any]:
    info = {"last_token_usage": {"total_tokens": tokens}, "model_context_window": size}
    return {"type": "token_count", "info": {**info, "total_token_usage": total}}


def test_how_full_the_window_is_shows_before_and_after_a_compaction() -> None:
    lines = rollout("counts").splitlines(keepends=True)
    [compacted] = [place for place, line in enumerate(lines) if '"type":"compacted"' in line]

    def used(end: int) -> tuple[AnyHappening, ...]:
        return adapter.look_back("".join(lines[:end]))

    assert used(compacted - 1) == (WindowUsed(250_010, 258_400),)
    # The request for the summary is counted as well; what it says is of no window that goes on.
    assert used(compacted + 1) == ()
    assert used(compacted + 2) == (WindowUsed(6_859, 258_400),)


def test_the_count_of_the_last_request_counts_and_not_that_of_the_session() -> None:
    assert told(count(7, total_tokens=90)) == (WindowUsed(7, 258_400),)
    assert told(count(7), count(9), STARTED) == (WindowUsed(9, 258_400),)
    assert told(count(7), {"type": "token_count", "info": None}) == (WindowUsed(7, 258_400),)


@pytest.mark.parametrize("tokens", [-1, "7", True, 10**12, 10**400, None, [7], 1e300])
def test_a_count_that_is_none_is_not_told(tokens: Any) -> None:
    assert told(count(tokens)) == ()
    expected = 10**9 if tokens == 10**9 else None
    assert told(count(7, tokens)) == (WindowUsed(7, expected),)


def test_a_line_may_hold_any_separator_but_its_own() -> None:
    lines = "a\u2028b\x85c"
    assert told(answer(lines)) == (Paused(lines),)
    assert plan_of(told(planning("p", "one\u2028two"))) == ["one\u2028two"]


def test_half_a_character_is_left_out() -> None:
    half = {**planning("p", "a"), "arguments": '{"plan":[{"step":"x\\ud83dy","status":"pending"}]}'}
    assert plan_of(told(half)) == ["xy"]
    assert plan_of(told(script("s", r'update_plan({plan:[{step:"x\ud83dy",status:"d"}]})'))) == [
        "xy"
    ]
    escaped = written(changed("c", "completed", **{"/p/X": {}})).replace("X", "\\ud83d")
    assert adapter.look_back(escaped) == (ToolFinished("apply_patch", call_id="c", passed=True),)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        '"type":"item_completed"',
        '{"payload":{"type":"item_completed"}}',
        '{"payload":{"type":"item_completed","item":[]}}',
        '{"payload":[{"type":"message"}]}',
        '{"payload":{"type":"message","role":"assistant","content":[1,null,{"text":7}]}}',
        '{"payload":{"type":"function_call","call_id":{}}}',
        '{"payload":{"type":"function_call_output","call_id":"c","output":[[]]}}',
        '{"payload":{"type":"message"' + "," * 500,
        '{"payload":{"type":"message","x":' + "[" * 5_000,
        '{"payload":{"type":"message","x":' + "9" * 9_000 + "}}",
        "\0\x01\ufffd" * 50,
    ],
)
def test_garbage_says_nothing_and_hides_nothing(line: str) -> None:
    good = written(ran("c", 0))
    expected = (ToolFinished("Bash", "c", "make", passed=True),)
    assert adapter.look_back(f"{line}\n{good}{line}\n") == expected


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
LINES = [
    json.loads(line)
    for name in [*RECORDED, "script"]
    for line in rollout(name).splitlines()
    if json.loads(line)["payload"].get("type") not in (None, "task_complete")
]


@st.composite
def mutilated(draw: st.DrawFn) -> str:
    lines = []
    for each in draw(st.lists(st.sampled_from(LINES), max_size=12)):
        payload = json.loads(json.dumps(each["payload"]))
        inner = payload.get("item") if draw(st.booleans()) else payload
        place = inner if isinstance(inner, dict) else payload
        place[draw(st.sampled_from(sorted(place)))] = draw(ODD)
        lines.append(json.dumps({**each, "payload": payload}))
    return "\n".join(lines)


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(mutilated())
def test_whatever_a_rollout_holds_can_be_told(tail: str) -> None:
    for happening in adapter.look_back(tail):
        assert isinstance(happening, Planned | ToolFinished | Paused | WindowUsed)
        assert msgspec.json.decode(msgspec.json.encode(happening), type=type(happening))


def test_of_a_long_rollout_the_last_megabyte_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rollout.jsonl"
    noise = written({"type": "message", "role": "user", "content": "x" * 4_000})
    many = noise * (TAIL_BYTES // len(noise) + 1)
    file.write_text(written(planning("p1", "old"), ran("c1", 0)) + many)
    assert adapter.look_back(tail_of(str(file))) == ()
    file.write_text(many + many + written(planning("p2", "new"), ran("c2", 0)))
    tail = tail_of(str(file))
    assert len(tail) <= TAIL_BYTES
    plan, ended = adapter.look_back(tail)
    assert (plan_of((plan,)), ended) == (["new"], ToolFinished("Bash", "c2", "make", passed=True))


def test_a_character_that_the_bound_cuts_in_two_spoils_its_line_only(tmp_path: Path) -> None:
    file = tmp_path / "rollout.jsonl"
    good = written(ran("c", 0))
    file.write_text("ä" * TAIL_BYTES + "\n" + good + good.strip() + " ")
    assert adapter.look_back(tail_of(str(file))) == (
        ToolFinished("Bash", "c", "make", passed=True),
    )
