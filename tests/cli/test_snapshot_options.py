"""What ``fleetctl snapshot`` makes of arguments, and of records, without a daemon."""

import argparse
import io
import sys
from typing import Any

import msgspec
import pytest

from fleetctl.commands import snapshot as command
from fleetctl.output import console
from fleetctl.output.views.snapshot import show_snapshot, took
from fleetd.protocol.errors import (
    AtomicWriteFailed,
    Corrupt,
    IntegrityMismatch,
    RetentionPruneFailed,
    SchemaInvalid,
)
from fleetd.protocol.records import Finding
from fleetd.protocol.requests.system import Findings
from fleetd.protocol.snapshots import Snapshot

from .test_text_escapes import EVIL, controls

DIGEST = "0" * 64
COMPLETE: dict[str, Any] = {
    "snapshot_id": "cp_20260105T120000000Z_42",
    "created_at": "2026-01-05T12:00:00.000Z",
    "run_id": "build-42",
    "source": "timer",
    "status": "paused",
    "step_state": {
        "plan_path": "/p/PLAN.md",
        "step_id": "srt-1a2b3c4d",
        "step_ordinal": 2,
        "step_status": "in_progress",
        "todo_compliance": {
            "result": "FAIL",
            "violations": ["two steps at once"],
            "checked_at": "2026-01-05T11:59:00.000Z",
        },
        "resume_hints": {
            "eligible": True,
            "reason_code": "resume_ready",
            "next_actions": ["Continue: Write tests", "Then: Write docs"],
        },
    },
    "context_digest": {
        "window_pressure": "medium",
        "protected_artifacts": ["/p/a.py"],
        "dropped_items": 3,
        "policy_profile": "default",
    },
    "command_outcomes": [
        {"kind": "shell", "name": "make", "result": "PASS", "duration_ms": 1240, "summary": ""},
        {
            "kind": "slash_command",
            "name": "/test",
            "result": "FAIL",
            "duration_ms": 0,
            "reason_code": "tool_failed",
            "summary": "2 failed",
        },
    ],
    "integrity": {"algorithm": "sha256", "digest": DIGEST, "format_version": 1},
    "agent_id": "alice",
    "note": "before lunch",
    "window_tokens": 120_000,
    "window_size": 200_000,
    "source_details": [
        {
            "source": "manual",
            "agent_id": "bob",
            "count": 2,
            "first_at": "2026-01-05T12:00:01.000Z",
            "last_at": "2026-01-05T12:00:02.000Z",
        }
    ],
    "compressed_at": "2026-01-06T12:00:00.000Z",
    "storage_locations": ["sqlite", "file"],
    "artifacts": [
        {
            "path": "history/cp.json",
            "compressed": False,
            "present": False,
            "size_bytes": 1_800,
            "digest": "1" * 64,
        },
        {
            "path": "history/cp.json.gz",
            "compressed": True,
            "present": True,
            "size_bytes": 812,
            "digest": "2" * 64,
        },
    ],
}
PAGE = """\
Snapshot: cp_20260105T120000000Z_42
Run: build-42
Agent: alice
Note: before lunch
Created: 2026-01-05T12:00:00.000Z
Source: timer
Joined by: manual of bob, 2 times, last at 2026-01-05T12:00:02.000Z
Status: paused

Step:
  Plan: /p/PLAN.md
  Step: 2 in_progress  srt-1a2b3c4d
  Plan kept: FAIL (checked 2026-01-05T11:59:00.000Z)
    - two steps at once

Resume:
  Eligible: yes (resume_ready)
  Next Actions:
    - Continue: Write tests
    - Then: Write docs

Context:
  Window Pressure: medium (120000 of 200000 tokens, 60%)
  Dropped Items: 3
  Policy Profile: default
  Protected Artifacts (1):
    - /p/a.py

Commands (2):
  PASS  shell             1.2 s  make
  FAIL  slash_command         -  /test  [tool_failed]
        2 failed

Integrity: sha256 {digest} (format 1)
Stored In: sqlite, file
Files (2) in /f/build-42:
  history/cp.json  1.8 kB  (compressed since)
    sha256 {one}
  history/cp.json.gz  812 B
    sha256 {two}
""".format(digest=DIGEST, one="1" * 64, two="2" * 64)


def evil(value: Any) -> Any:
    """Return a record with every text in it turned hostile, those of a fixed set apart."""
    if isinstance(value, dict):
        return {key: value[key] if key in FIXED else evil(value[key]) for key in value}
    if isinstance(value, list):
        return [evil(each) for each in value]
    return EVIL if isinstance(value, str) else value


FIXED = (
    *(
        "source_details",
        "storage_locations",
        "source",
        "compressed_at",
        "status",
        "step_status",
        "result",
    ),
    *("kind", "window_pressure"),
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("shell:make:PASS", ("shell", "make", "PASS", 0, "")),
        ("shell:make test:FAIL:1200", ("shell", "make test", "FAIL", 1200, "")),
        ("tool_use:Edit:WARN:0:odd: but fine", ("tool_use", "Edit", "WARN", 0, "odd: but fine")),
        ("slash_command:/test:FAIL::failed", ("slash_command", "/test", "FAIL", 0, "failed")),
        ("shell:pytest t.py::test_a:PASS:7", ("shell", "pytest t.py::test_a", "PASS", 7, "")),
        ("shell:echo :PASSED:FAIL:1", ("shell", "echo :PASSED", "FAIL", 1, "")),
        ("shell:two\nlines:PASS:1:a\nb", ("shell", "two\nlines", "PASS", 1, "a\nb")),
        ("shell:x:FAIL:1:then:PASS:2", ("shell", "x", "FAIL", 1, "then:PASS:2")),
    ],
)
def test_an_outcome_is_told_in_one_argument(text, told):
    found = command.outcome(text)

    assert (found.kind, found.name, found.result, found.duration_ms, found.summary) == told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "shell",
        "shell:make",
        "shell::PASS",
        "shell:make:pass",
        "bash:make:PASS",
        "shell:make:PASS:-5",
        "shell:make:PASS:1.5",
        "shell:make:PASS:soon",
        "shell:make:PASS:99999999999999999999",
        "shell:make:FAIL:then:PASS",
        "shell:make:PASS:9999999999999999",
        f"shell:make:PASS:1:{'x' * 501}",
        f"shell:{'x' * 201}:PASS",
    ],
)
def test_an_outcome_that_is_none_is_refused(run, home, text):
    with pytest.raises(argparse.ArgumentTypeError):
        command.outcome(text)

    result = run("snapshot", "record", "--outcome", text)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("Error: argument --outcome: ")


def test_an_outcome_that_is_refused_cannot_steer_the_terminal(run, home):
    assert not controls(run("snapshot", "record", "--outcome", EVIL.replace("\x00", "")).err)


def test_the_page_says_everything(capsys):
    show_snapshot(msgspec.convert(COMPLETE, Snapshot), "/f/build-42")

    assert capsys.readouterr().out == PAGE


def test_the_page_of_a_run_of_which_nothing_is_known(capsys):
    bare = {
        **COMPLETE,
        "step_state": {
            **dict.fromkeys(("plan_path", "step_id", "step_ordinal", "step_status")),
            "todo_compliance": {"result": "PASS", "violations": [], "checked_at": "now"},
            "resume_hints": {
                "eligible": False,
                "reason_code": "resume_no_plan",
                "next_actions": [],
            },
        },
        "command_outcomes": [],
        "window_tokens": None,
        "agent_id": None,
        "note": None,
        "artifacts": [],
        "source_details": [],
        "storage_locations": [],
    }

    show_snapshot(msgspec.convert(bare, Snapshot), "/f/build-42")

    lines = capsys.readouterr().out.splitlines()
    assert "  Plan: None" in lines
    assert "  Step: None" in lines
    assert "  Eligible: no (resume_no_plan)" in lines
    assert "    - None" in lines
    assert "  Window Pressure: medium" in lines
    assert "Commands (0):" in lines
    assert "Stored In: None" in lines
    assert not any(line.startswith(("Agent:", "Note:", "Joined by:")) for line in lines)


def test_nothing_in_a_snapshot_steers_the_terminal(capsys):
    show_snapshot(msgspec.convert(evil(COMPLETE), Snapshot), EVIL)

    assert not controls(capsys.readouterr().out)


def test_a_file_that_is_not_written_yet_is_not_called_compressed(capsys):
    fresh = {**COMPLETE, "compressed_at": None, "artifacts": COMPLETE["artifacts"][:1]}

    show_snapshot(msgspec.convert(fresh, Snapshot), "/f/build-42")

    assert "  history/cp.json  1.8 kB  (not written yet)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "-"),
        (1, "1 ms"),
        (999, "999 ms"),
        (1_240, "1.2 s"),
        (59_999, "60.0 s"),
        (125_000, "2m 5s"),
    ],
)
def test_durations_read_as_people_say_them(ms, text):
    assert took(ms) == text


@pytest.mark.parametrize(
    "kind", [SchemaInvalid, IntegrityMismatch, AtomicWriteFailed, RetentionPruneFailed]
)
def test_each_reason_code_stands_behind_its_message_and_is_the_kind_under_json(
    run, home, monkeypatch, kind
):
    def refuse(_: object) -> None:
        raise kind("It is not well.")

    monkeypatch.setattr(command, "call", refuse)

    text = run("snapshot", "list")
    assert (text.status, text.out) == (1, "")
    assert text.err == f"Error: It is not well. [{kind.kind}]\n"
    document = run("snapshot", "list", "--json")
    assert (document.status, document.out) == (1, "")
    error = msgspec.json.decode(document.err)["error"]
    assert (error["kind"], error["code"]) == (kind.kind, kind.code)


def test_a_kind_that_is_no_reason_code_stays_out_of_the_sentence(run, home, monkeypatch):
    def refuse(_: object) -> None:
        raise Corrupt("It is not well.")

    monkeypatch.setattr(command, "call", refuse)

    assert run("snapshot", "list").err == "Error: It is not well.\n"


def test_a_finding_shows_its_reason_code(capsys):
    wrong = Finding(
        check="digest", ok=False, detail="it differs", subject="cp_1_2", reason_code="some_code"
    )

    status = console.findings(argparse.Namespace(json=False), Findings(ok=False, findings=[wrong]))

    assert status == 1
    assert capsys.readouterr().out.splitlines()[0] == (
        "WRONG  digest  cp_1_2  it differs  [some_code]"
    )


@pytest.mark.parametrize("option", ["--status", "--note", "--outcome", "--step-status", "--source"])
def test_what_is_said_twice_is_refused(run, home, option):
    value = {
        "--status": "failed",
        "--outcome": "shell:x:PASS",
        "--step-status": "done",
        "--source": "manual",
    }.get(option, "text")

    result = run("snapshot", "record", "--json-in", "-", option, value)

    assert result.status == 2
    assert f"argument {option}: not allowed with --json-in" in result.err


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"{", "not a JSON object"),
        (b'{"a": "\xff"}', "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"a":' * 100_000, "not a JSON object"),
        (b" " * (command.MOST_BYTES + 1), "is longer than 1048576 bytes"),
    ],
)
def test_json_in_that_is_no_object_is_refused(run, home, monkeypatch, data, told):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    result = run("snapshot", "record", "--json-in", "-")

    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("Error: argument --json-in: ")
    assert told in result.err


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b"])
def test_json_in_that_cannot_be_read_is_refused(run, home, name):
    result = run("snapshot", "record", "--json-in", name)

    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("Error: argument --json-in: cannot read ")


def test_a_run_is_named_once(run, home):
    (home / "project" / "run.json").write_text('{"run_id": "a"}')

    result = run("snapshot", "record", "--json-in", "run.json", "--run", "b")

    assert result.status == 2
    assert "run_id is in the file and among the options" in result.err


def test_show_takes_a_name_or_an_agent(run, home):
    result = run("snapshot", "show", "build-42", "--agent", "alice")

    assert result.status == 2
    assert "argument --agent: not allowed with" in result.err


def test_without_a_daemon_every_command_says_how_to_start_one(run, home):
    for words in (("record",), ("list",), ("show",), ("verify",), ("prune",)):
        result = run("snapshot", *words)
        assert (result.status, result.out) == (1, "")
        assert result.err.startswith("Error: fleetd is not running."), words


@pytest.mark.parametrize("action", ["record", "list", "show", "verify", "prune"])
@pytest.mark.parametrize("columns", ["40", "200"])
def test_help_fits_any_terminal(run, home, monkeypatch, action, columns):
    monkeypatch.setenv("COLUMNS", columns)

    result = run("snapshot", action, "--help")

    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"usage: fleetctl snapshot {action}")


def test_files_of_another_machine_are_said_to_lie_there(capsys):
    elsewhere = COMPLETE | {"file_on": "beta (0123456789abcdef)"}

    show_snapshot(msgspec.convert(elsewhere, Snapshot), "/f/build-42")

    shown = capsys.readouterr().out
    assert ") on beta (0123456789abcdef):" in shown
    assert "/f/build-42" not in shown
