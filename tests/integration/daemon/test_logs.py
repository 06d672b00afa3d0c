"""The log's format, and that no message can pretend to be another."""

import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.redaction.redact import redact
from fleetd.host import trace


def test_a_line_has_time_level_and_message(out: io.StringIO) -> None:
    record = logging.makeLogRecord(
        {"created": 1767614400.25, "levelname": "INFO", "msg": "Checkpoint created: %s"}
    )
    record.args = ("chk-abc12345",)
    formatted = trace.LineFormatter(redact).format(record)
    assert formatted == "[2026-01-05T12:00:00.250Z] [INFO] Checkpoint created: chk-abc12345"


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\n[2026] [INFO] forged", "a\\n[2026] [INFO] forged"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\r\x00\x7f\x9b", "a\\r\\x00\\x7f\\x9b"),
        ("\u202eright to left\u2028", "\\u202eright to left\\u2028"),
        ("\ud800", "\\ud800"),
        ("Grüße, 你好", "Grüße, 你好"),
    ],
)
def test_what_could_forge_a_line_is_escaped(out: io.StringIO, hostile: str, shown: str) -> None:
    trace.configure(
        "INFO", redact, out
    )  # once more, or pytest would report a text that nobody can encode
    logging.getLogger("fleetd.x").info("%s", hostile)
    (line,) = out.getvalue().splitlines()
    assert line.endswith(f"[INFO] {shown}")


def test_each_line_of_a_traceback_is_a_line_of_the_log(out: io.StringIO) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("fleetd").exception("It broke")
    lines = out.getvalue().splitlines()
    assert len(lines) > 4
    assert all(re.match(r"\[[^]]+Z\] \[ERROR\] ", line) for line in lines)
    assert "ValueError: two" in out.getvalue()


def test_the_level_is_ours_and_libraries_are_quiet(out: io.StringIO) -> None:
    trace.configure("DEBUG", redact, out)
    logging.getLogger("fleetd.deep.down").debug("fine print")
    logging.getLogger("a_library").info("chatter")
    logging.getLogger("a_library").warning("trouble")
    texts = [line.partition("] [")[2] for line in out.getvalue().splitlines()]
    assert texts == ["DEBUG] fine print", "WARNING] trouble"]


def test_configuring_twice_does_not_double_the_lines(out: io.StringIO) -> None:
    other: Any = io.StringIO()
    trace.configure("INFO", redact, other)
    logging.getLogger("fleetd").info("once")
    assert out.getvalue() == ""
    assert len(other.getvalue().splitlines()) == 1


def test_a_daemon_tells_request_by_request_what_was_done_for_whom(
    fleet: Any, tmp_path: Path
) -> None:
    daemon = fleet.start(env={"FLEET_LOG_LEVEL": "DEBUG"})
    first, second = daemon.client(), daemon.client()
    mission = first.call("mission.create", {"title": "Login"})["id"]
    first.call("mission.start", {"mission_id": mission})
    made = second.call("checkpoint.create", {"mission_id": mission})["id"]
    assert daemon.stop() == 0
    about = [
        line for line in daemon.log.splitlines() if made in line or "checkpoint.create" in line
    ]
    told = [re.sub(r"\S+ \[(\w+)\] (\w+) .* (\(.*\))", r"\1 \2 \3", line) for line in about]
    (request,) = {line.partition("(")[2] for line in told}
    assert re.fullmatch(r"connection \d+, request \d+ checkpoint\.create\)", request)
    assert [line.split(" (")[0] for line in told] == [
        "INFO Checkpoint",
        "INFO Written",
        "DEBUG Answered",
    ]
