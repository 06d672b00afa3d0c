"""What is kept of a failed command's output: how it ended, and the end, where tests say it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.domain.redaction.redact import redact
from fleetd.harness.claude import adapter as claude
from fleetd.harness.codex import adapter as codex
from fleetd.harness.copilot import adapter as copilot
from fleetd.harness.cursor import adapter as cursor
from fleetd.harness.gemini import adapter as gemini
from fleetd.harness.generic import grok
from fleetd.harness.opencode import adapter as opencode
from fleetd.harness.payload import ERROR_CHARS, FIRST_LINE_CHARS, cut_output
from fleetd.harness.report import Adapter, ToolFinished

from .recorded import only

MOST = 300
PASSED = "".join(f"test_{number:05}.py passed\n" for number in range(10_000))
FAILED = "E   assert 5 == 6\nFAILED test_limit.py::test_limit\n1 failed"
KEY_LINE = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU/abcdef+0123456789AB=\n"


@pytest.mark.parametrize(
    "said", ["", "Exit code 1", "Exit code 1\nno rule", "  a\n\tb", "x" * MOST, "x\n" * 20 + "x"]
)
def test_a_short_text_stays_as_it_is(said: str) -> None:
    assert cut_output(said, MOST) == said.strip()
    assert cut_output(f"\n{said} \n\n", MOST) == said.strip()


def test_of_a_long_text_the_first_line_and_the_end_stay() -> None:
    kept = cut_output(f"Exit code 1\n{PASSED}{FAILED}\n", ERROR_CHARS)
    assert kept.startswith("Exit code 1\n…\ntest_0")
    assert kept.endswith(f"test_09999.py passed\n{FAILED}")
    assert ERROR_CHARS - len("test_00000.py passed\n") <= len(kept) <= ERROR_CHARS


@settings(max_examples=500, derandomize=True, database=None, deadline=None)
@given(st.lists(st.integers(1, 2 * MOST) | st.integers(1, 30), min_size=1, max_size=60))
def test_the_end_is_of_whole_lines_within_the_limit(lengths: list[int]) -> None:
    lines = [f"{number % 10}" * length for number, length in enumerate(lengths)]
    said = "\n".join(lines)
    kept = cut_output(said, MOST)
    assert len(kept) <= MOST
    if len(said) <= MOST:
        assert kept == said
        return
    first, _, end = kept.partition("…\n")
    assert first == (f"{lines[0]}\n" if len(lines[0]) <= FIRST_LINE_CHARS else "")
    assert end
    assert said.endswith(end)
    assert said[: -len(end)].endswith("\n") or len(lines[-1]) > len(end)


@pytest.mark.parametrize(("length", "is_kept"), [(FIRST_LINE_CHARS, True), (101, False)])
def test_a_long_first_line_is_left_out(length: int, is_kept: bool) -> None:
    first = "x" * length + "\n"
    kept = cut_output(first + "line\n" * 90 + "last", MOST)
    assert kept.startswith(f"{first if is_kept else ''}…\nline\n")
    assert kept.endswith("line\nlast")


def test_of_one_long_line_the_end_stays() -> None:
    assert cut_output(f"{'x' * MOST}end", MOST) == f"…\n{'x' * (MOST - 5)}end"
    assert cut_output(f"Signal 9\n{'x' * MOST}end", MOST) == f"Signal 9\n…\n{'x' * (MOST - 14)}end"


@pytest.mark.parametrize("before", ["", "line\n" * 500])
def test_what_nobody_can_read_is_removed(before: str) -> None:
    said = f"{before}a\x00\x07\ud83d\x7f\n\x1b[1;31mE   assert\x1b[0m\x1b[K b\t😀\x1b"
    assert cut_output(said, MOST).endswith("a\nE   assert b\t😀")
    assert cut_output(said, MOST).encode()


def test_sixteen_megabytes_are_cut_too() -> None:
    lines = "x" * 79 + "\n"
    for much in (lines * 200_000, "x" * 16_000_000, "\n" * 16_000_000, "\x1b[" * 8_000_000):
        kept = cut_output(f"Exit code 1\n{much}\nend", ERROR_CHARS)
        assert kept.startswith("Exit code 1\n…\n")
        assert kept.endswith("end")
        assert len(kept) <= ERROR_CHARS


def test_the_end_of_a_private_key_is_redacted_where_the_cut_took_its_beginning() -> None:
    key = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_LINE * 50}-----END OPENSSH PRIVATE KEY-----"
    kept = cut_output(f"Exit code 1\n{key}\nfailed", ERROR_CHARS)
    assert "BEGIN" not in kept
    assert redact(kept).startswith("Exit code 1\n")
    assert redact(kept).endswith("[redacted:private-key]\nfailed")
    assert KEY_LINE[:20] not in redact(kept)


def shell(event: str, **fields: Any) -> dict[str, Any]:
    call = {"tool_name": "Bash", "tool_input": {"command": "make test"}}
    return {"session_id": "s", "cwd": "/p", "hook_event_name": event, **call, **fields}


def claudes(out: str) -> dict[str, Any]:
    return shell("PostToolUseFailure", error=f"Exit code 1\n{out}")


def codexs(out: str) -> dict[str, Any]:
    said = f"Exit code: 1\nWall time: 0.4 seconds\nTotal output lines: 9\nOutput:\n{out}"
    return shell("PostToolUse", tool_response=said)


def geminis(out: str) -> dict[str, Any]:
    said = f"<untrusted_context>\nOutput: {out}\nExit Code: 1\nProcess Group PGID: 7\n"
    result = {"llmContent": f"{said}</untrusted_context>", "returnDisplay": out}
    return shell("AfterTool", tool_name="run_shell_command", tool_response=result)


def opencodes(out: str) -> dict[str, Any]:
    return {
        "event": "tool.execute.after",
        "session_id": "s",
        "tool": "bash",
        "args": {"command": "make test"},
        "metadata": {"output": out, "exit": 1},
    }


def copilots(out: str) -> dict[str, Any]:
    said = f"{out}\n<exited with exit code 1>"
    return {
        "sessionId": "s",
        "toolName": "bash",
        "toolArgs": {"command": "make test"},
        "toolResult": {"resultType": "success", "textResultForLlm": said},
    }


def cursors(out: str) -> dict[str, Any]:
    output = json.dumps({"output": out, "exitCode": 1})
    return shell("postToolUse", conversation_id="c", tool_name="Shell", tool_output=output)


def others(out: str) -> dict[str, Any]:
    return shell("post_tool_use", tool_result={"exit_code": 1, "stdout": out, "stderr": ""})


@pytest.mark.parametrize(
    ("adapter", "payload"),
    [
        (claude, claudes),
        (codex, codexs),
        (gemini, geminis),
        (opencode, opencodes),
        (copilot, copilots),
        (cursor, cursors),
        (grok, others),
    ],
    ids=lambda each: each.name if isinstance(each, Adapter) else "",
)
@pytest.mark.parametrize("out", ["", FAILED, f"{PASSED}{FAILED}", f"{PASSED}{FAILED}\n\n"])
def test_each_cli_tells_how_a_command_ended_and_what_it_printed_last(
    adapter: Adapter, payload: Callable[[str], dict[str, Any]], out: str
) -> None:
    told = only(adapter.read(payload(out), None))
    assert isinstance(told, ToolFinished)
    assert (told.command, told.passed) == ("make test", False)
    assert told.error == cut_output(f"Exit code 1\n{out}", ERROR_CHARS)


@pytest.mark.parametrize(
    ("adapter", "payload"), [(gemini, geminis("(empty)")), (opencode, opencodes("(no output)"))]
)
def test_words_for_no_output_are_none(adapter: Adapter, payload: dict[str, Any]) -> None:
    told = only(adapter.read(payload, None))
    assert isinstance(told, ToolFinished)
    assert told.error == "Exit code 1"


def test_a_call_that_copilot_calls_failed_tells_its_end() -> None:
    payload = copilots("")
    payload["toolResult"] = {"resultType": "failure", "textResultForLlm": PASSED + FAILED}
    told = only(copilot.read(payload, None))
    assert isinstance(told, ToolFinished)
    assert told.error == cut_output(PASSED + FAILED, ERROR_CHARS)
    assert told.error.endswith(FAILED)
