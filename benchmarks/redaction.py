"""The cost of removing secrets from a text, in CPU time; no socket, no store."""

import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fleetd.domain.redaction.redact import redact, redact_data

from .bench import Bench
from .measure import Operation
from .rows import Row

# One takes microseconds, too little beside the cost of reading a thread's clock.
AT_ONCE = 50
COMMAND = "git -C /home/me/project log --oneline -20 && make test ARGS='tests/unit -x'"
PROMPT = (
    "Please add a login form to the page, with tests. Keep the old one until the new one works, and"
    " say what you changed. "
)
SOURCE = Path(json.__file__).with_name("decoder.py").read_text("utf-8")
OUTPUT = "".join(
    f"tests/unit/test_form_{n}.py::test_field_{n % 7}_is_checked PASSED [{n % 100:3d}%]\n"
    for n in range(1_300)
)
HOOK: dict[str, Any] = {
    "session_id": "5f0c2c1e-0000-4000-8000-000000000001",
    "transcript_path": "/home/me/.claude/projects/-home-me-project/5f0c2c1e.jsonl",
    "cwd": "/home/me/project",
    "hook_event_name": "PostToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": COMMAND, "description": "Run the tests"},
    "tool_response": {"stdout": OUTPUT[:800], "stderr": "", "interrupted": False},
}


def redacting(bench: Bench) -> Iterator[Row]:
    """Measure texts without a secret, like nearly all, beside splitting them into words."""
    for name, text in (
        ("a command", COMMAND),
        ("a prompt of 1 KB", PROMPT * 8),
        ("a source file of 12 KB", SOURCE),
        ("an output of 100 KB", OUTPUT),
    ):
        yield _row(bench, name, partial(redact, text), text)
    yield _row(bench, "a hook's payload", partial(redact_data, HOOK), json.dumps(HOOK))


def _row(bench: Bench, name: str, ours: Callable[[], object], text: str) -> Row:
    return bench.beside(
        f"redaction, CPU of {AT_ONCE} times {name}",
        _often(ours),
        _often(partial(re.compile(r"\w+").findall, text)),
        runs=100,
        reference="words of it, by re",
        clock=time.thread_time,
    )


def _often(work: Callable[[], object]) -> Operation:
    def run() -> None:
        for _ in range(AT_ONCE):
            work()

    return run
