"""``fleetctl snapshot`` with a daemon behind it."""

import io
import json
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Result

from .test_text_escapes import EVIL, controls

pytestmark = pytest.mark.usefixtures("daemon")
ID = r"cp_\d{8}T\d{9}Z_\d+"
RECORDED = re.compile(
    rf"Snapshot ({ID}) of run build-42 recorded \(manual, (\w+)\)\.\nFile: (.+)\n"
)
Command = Callable[..., Result]


def folder(home: Path, run_id: str = "build-42") -> Path:
    """Return the directory of a run's files."""
    return home / "flightline" / "checkpoints" / run_id


def record(done: Command, *words: str, run_id: str = "build-42") -> str:
    """Record a run and return the id of the snapshot."""
    return str(done("snapshot", "record", "--run", run_id, *words, "--json").json["snapshot_id"])


@pytest.fixture
def three(done: Command) -> list[str]:
    """Return the ids of three snapshots of one run, oldest first."""
    return [record(done, "--ordinal", str(n), "--step-status", "done") for n in (1, 2, 3)]


def test_record_says_what_was_recorded_and_where_the_file_lies(done, home: Path):
    result = done("snapshot", "record", "--run", "build-42", "--status", "paused")

    match = RECORDED.fullmatch(result.out)
    assert match, result
    assert match[2] == "paused"
    assert match[3] == str(folder(home) / "history" / f"{match[1]}.json")
    document = json.loads(Path(match[3]).read_text())
    assert document["snapshot_id"] == match[1]
    assert json.loads((folder(home) / "latest.json").read_text()) == document


def test_record_takes_everything_from_options(done, home: Path):
    options = (
        *("--source", "step_boundary", "--status", "failed", "--plan", "PLAN.md"),
        *("--step", "s-2", "--ordinal", "2", "--step-status", "failed"),
        *("--next", "Mend the build", "--next", "Go on", "--violation", "two at once"),
        *("--pressure", "high", "--protect", "a.py", "--protect", "srt-1a2b3c4d"),
        *("--outcome", "shell:make test:FAIL:1200:2 failed", "--outcome", "tool_use:Edit:PASS"),
        *("--note", "before lunch"),
    )

    found = done("snapshot", "record", "--run", "build-42", *options, "--json").json

    assert (found["source"], found["status"], found["note"]) == (
        "step_boundary",
        "failed",
        "before lunch",
    )
    step = found["step_state"]
    assert step["plan_path"] == str(home / "project" / "PLAN.md")
    assert (step["step_id"], step["step_ordinal"], step["step_status"]) == ("s-2", 2, "failed")
    assert step["todo_compliance"]["result"] == "FAIL"
    assert step["todo_compliance"]["violations"] == ["two at once"]
    assert step["resume_hints"]["eligible"] is True
    assert step["resume_hints"]["next_actions"] == ["Mend the build", "Go on"]
    digest = found["context_digest"]
    assert digest["window_pressure"] == "high"
    assert digest["protected_artifacts"] == ["a.py", "srt-1a2b3c4d"]
    assert [
        (each["kind"], each["name"], each["result"], each["duration_ms"], each["summary"])
        for each in found["command_outcomes"]
    ] == [("shell", "make test", "FAIL", 1200, "2 failed"), ("tool_use", "Edit", "PASS", 0, "")]


def test_record_says_when_it_joined_the_last_snapshot(done):
    first = record(done)
    # The three seconds may be over on a machine that is busy with others, but not each time.
    for _ in range(10):
        result = done("snapshot", "record", "--run", "build-42")
        if result.out.startswith("Joined"):
            break

    said = rf"Joined snapshot ({ID}) of run build-42 \(manual, in_progress\): nothing that matters"
    match = re.match(said, result.out)
    assert match, (first, result)
    assert re.search(r"^Joined by: manual, \d times?, last at 20", result.out, re.MULTILINE)
    assert re.search(r"^File: /.*\.json$", result.out, re.MULTILINE)


@pytest.mark.parametrize("place", ["stdin", "file"])
def test_record_takes_the_parameters_as_json(done, home: Path, monkeypatch, place):
    outcome = {
        "kind": "shell",
        "name": "a:PASS:b",
        "result": "FAIL",
        "reason_code": "tool_failed",
        "summary": "x",
    }
    parameters = {"run_id": "build-42", "status": "failed", "command_outcomes": [outcome]}
    text = json.dumps(parameters, indent=2)
    if place == "stdin":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        source = "-"
    else:
        (home / "project" / "run.json").write_text(text)
        source = "run.json"

    found = done("snapshot", "record", "--json-in", source, "--json").json

    assert (found["run_id"], found["status"]) == ("build-42", "failed")
    assert found["command_outcomes"] == [{"duration_ms": 0, **outcome}]


def test_json_may_leave_the_run_to_the_command_line(done, home: Path):
    (home / "project" / "run.json").write_text('{"status": "completed"}')

    said = done("snapshot", "record", "--json-in", "run.json", "--run", "build-42").out

    assert RECORDED.fullmatch(said)


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"run_id": "../x"}, "run_id"),
        ({"run_id": "r", "sauce": "timer"}, "sauce"),
        ({"run_id": "r", "source": "hunch"}, "source"),
        ({"run_id": "r", "step_state": {"step_ordinal": 0}}, "step_state.step_ordinal"),
        ({"run_id": "r", "command_outcomes": [{"kind": "shell"}]}, "command_outcomes[0].name"),
    ],
)
def test_what_is_wrong_in_the_json_is_named(run, home: Path, parameters, field):
    (home / "project" / "run.json").write_text(json.dumps(parameters))

    result = run("snapshot", "record", "--json-in", "run.json")

    assert (result.status, result.out) == (2, "")
    assert f"{field}" in result.err.splitlines()[0]


HOSTILE = ["../x", "", "a/b", ".", "..", "msn-1a2b3c4d", "x" * 65, "a\nb", "\x1b[31m", "r\n"]


@pytest.mark.parametrize("run_id", HOSTILE)
def test_a_run_that_is_a_path_is_refused(run, home: Path, run_id):
    for words in (("record", f"--run={run_id}"), ("list", run_id), ("show", run_id)):
        result = run("snapshot", *words)
        assert (result.status, result.out) == (2, ""), (words, result)
        assert ("run_id" if run_id else "the value is empty") in result.err
        assert not controls(result.err)
    for words in (("verify", run_id), ("prune", run_id)):
        assert run("snapshot", *words).status == 2, words
    assert not (home / "flightline" / "checkpoints" / "x").exists()


@pytest.mark.parametrize("option", ["--plan", "--step", "--next", "--violation", "--protect"])
def test_an_empty_option_is_refused(run, option):
    result = run("snapshot", "record", "--run", "build-42", option, "")

    assert (result.status, result.out) == (2, "")


def test_the_run_is_the_one_of_this_shells_agent(run, done, monkeypatch):
    done("agent", "start", "alice")
    monkeypatch.setenv("FLEET_AGENT_ID", "alice")

    without = run("snapshot", "record")
    assert without.status == 1
    assert "--run" in without.err or "run_id" in without.err
    made = done("snapshot", "record", "--run", "build-42", "--agent", "alice", "--json").json
    assert (made["run_id"], made["agent_id"]) == ("build-42", "alice")
    assert done("snapshot", "show", "--json").json["snapshot_id"] == made["snapshot_id"]
    again = done("snapshot", "record", "--status", "paused", "--json").json
    assert (again["run_id"], again["agent_id"]) == ("build-42", "alice")


def test_the_run_is_the_one_under_way_in_this_directory(run, done, home: Path, monkeypatch):
    payload = {"session_id": "s-1", "cwd": str(home / "project"), "hook_event_name": "SessionStart"}
    deliver(done, payload)

    made = done("snapshot", "record", "--json").json

    assert made["run_id"] == "s-1"
    assert done("snapshot", "show", "--json").json["run_id"] == "s-1"
    monkeypatch.chdir("/")
    elsewhere = run("snapshot", "record")
    assert elsewhere.status == 1
    assert "No run is in progress in /" in elsewhere.err


def deliver(done: Command, payload: dict[str, Any]) -> None:
    """Have a hook of Claude Code tell something."""
    parameters = {
        "delivery_id": f"d-{payload['hook_event_name']}",
        "harness": "claude",
        "payload": json.dumps(payload),
    }
    done("call", "hook.deliver", json.dumps(parameters))


def test_list_shows_the_newest_first(done, three):
    lines = done("snapshot", "list", "build-42").out.splitlines()

    titles = ["ID", "TIME", "SOURCE", "STATUS", "STEP", "PRESSURE", "COMMANDS", "SIZE", "GZ"]
    assert lines[0].split() == titles
    assert [line.split()[0] for line in lines[1:4]] == three[::-1]
    row = re.fullmatch(
        rf"{ID}  \d{{4}}-\S+Z  manual  in_progress  3 done  low       0         \S+ k?B  -",
        lines[1],
    )
    assert row, lines[1]
    assert lines[4:] == ["", "Total: 3 snapshots"]


def test_list_of_all_runs_names_them(done, three):
    other = record(done, run_id="build-43")

    lines = done("snapshot", "list", "--limit", "2").out.splitlines()

    assert lines[0].split()[-1] == "RUN"
    assert [(line.split()[0], line.split()[-1]) for line in lines[1:3]] == [
        (other, "build-43"),
        (three[2], "build-42"),
    ]
    assert lines[3:] == ["", "Total: 4 snapshots", "Showing the newest 2; --limit N shows more."]
    listed = done("snapshot", "list", "build-43", "--json").json
    assert [each["snapshot_id"] for each in listed] == [other]


def test_a_run_without_snapshots(run, done):
    assert done("snapshot", "list").out == "No snapshots found.\n"
    assert done("snapshot", "list", "--json").json == []
    assert run("snapshot", "list", "nobody").status == 4
    assert run("snapshot", "show", "nobody").status == 4
    assert run("snapshot", "show", "cp_20260105T120000000Z_42").status == 4


def test_show_takes_a_snapshot_or_a_run(done, three):
    assert done("snapshot", "show", three[0], "--json").json["snapshot_id"] == three[0]
    assert done("snapshot", "show", "build-42", "--json").json["snapshot_id"] == three[2]
    page = done("snapshot", "show", "build-42").out
    assert page.startswith(f"Snapshot: {three[2]}\nRun: build-42\n")
    assert "  Step: 3 done\n" in page


def test_show_says_where_the_files_lie_and_what_they_hold(done, home: Path):
    made = record(done, "--outcome", "shell:make:FAIL:90000:broken", "--next", "Mend it")

    page = done("snapshot", "show", made).out

    assert f"Files (1) in {folder(home)}:\n  history/{made}.json  " in page
    assert "Stored In: sqlite, file\n" in page
    assert "  FAIL  shell            1m 30s  make\n        broken\n" in page
    assert "  Next Actions:\n    - Mend it\n" in page


def test_stored_text_cannot_steer_the_terminal(run, done, home: Path):
    evil = EVIL.replace("\x00", "")
    made = record(
        done,
        *("--plan", "/p/" + evil, "--step", evil, "--next", evil, "--violation", evil),
        *("--protect", evil, "--note", evil, "--outcome", f"shell:{evil}:FAIL:1:{evil}"),
    )
    (folder(home) / "history" / f"{made}.json").write_text(EVIL)

    for words in (
        ("list",),
        ("list", "--json"),
        ("show", made),
        ("show", made, "--json"),
        ("verify",),
        ("verify", "--json"),
        ("prune", "--yes"),
    ):
        result = run("snapshot", *words)
        assert not controls(result.out + result.err), words


def test_verify_finds_a_damaged_file_by_its_reason_code_and_mends_it(run, done, three, home: Path):
    history = folder(home) / "history"
    assert done("snapshot", "verify").out.endswith("Everything is in order.\n")
    whole = (history / f"{three[0]}.json").read_text()
    (history / f"{three[0]}.json").write_text(whole.replace("in_progress", "completed"))
    (history / f"{three[1]}.json").write_text(whole[:40])

    wrong = run("snapshot", "verify", "build-42")
    assert wrong.status == 1
    assert re.search(rf"^WRONG .*{three[0]}.*\[checkpoint_integrity_mismatch\]$", wrong.out, re.M)
    assert re.search(rf"^WRONG .*{three[1]}.*\[checkpoint_schema_invalid\]$", wrong.out, re.M)
    one = run("snapshot", "verify", three[1])
    assert one.status == 1
    assert three[0] not in one.out
    codes = {
        each["reason_code"] for each in run("snapshot", "verify", "--json").json["findings"]
    } - {None}
    assert codes == {"checkpoint_integrity_mismatch", "checkpoint_schema_invalid"}

    mended = done("snapshot", "verify", "--repair")
    assert "fixed" in mended.out
    assert (history / f"{three[0]}.json").read_text() == whole
    done("snapshot", "verify")


def test_verify_says_what_latest_json_is_and_where_something_of_a_persons_lies(
    run, done, three, home: Path
):
    (folder(home) / "latest.json").write_text("{}")
    stray = folder(home) / "history" / "notes.txt"
    stray.write_text("mine")

    wrong = run("snapshot", "verify")
    assert wrong.status == 1
    assert f"latest.json  does not hold snapshot {three[2]}, the newest" in wrong.out
    mended = done("snapshot", "verify", "--repair").out
    assert f"; it holds {three[2]} now" in mended
    assert f"{stray}  is not a name that fleetd uses; it is ignored" in mended


def age(home: Path, *snapshot_ids: str) -> None:
    """Have snapshots be of long ago, as far as pruning looks."""
    with closing(sqlite3.connect(home / "data" / "squawk.db")) as database, database:
        for snapshot_id in snapshot_ids:
            database.execute(
                "UPDATE snapshots SET timestamp = '2020-01-01T00:00:00.000Z' WHERE id = ?",
                (snapshot_id,),
            )


def test_prune_shows_asks_and_deletes(run, done, three, home: Path, answer):
    failed = record(done, "--status", "failed")
    age(home, *three[:2], failed)

    dry = done("snapshot", "prune", "--dry-run").out.splitlines()
    assert dry[0] == "Found 2 snapshots to prune:"
    assert [line.split()[:4] for line in dry[1:3]] == [
        [each, "build-42", "2020-01-01T00:00:00.000Z", "manual"] for each in three[:2]
    ]
    assert re.fullmatch(r"Total: 2 snapshots, \S+ k?B", dry[3])
    assert dry[4:] == ["", "[DRY RUN] No snapshots were deleted."]
    assert len(done("snapshot", "list", "--json").json) == 4

    refused = run("snapshot", "prune")
    assert refused.status == 2
    assert "--yes" in refused.err
    answer("n")
    cancelled = run("snapshot", "prune")
    assert (cancelled.status, cancelled.err) == (3, "Proceed? [y/N] ")
    assert cancelled.out.endswith("Prune cancelled.\n")
    answer("y")
    pruned = done("snapshot", "prune", "build-42")
    assert pruned.out.endswith("\nDeleted 2 snapshots.\n")
    left = [each["snapshot_id"] for each in done("snapshot", "list", "--json").json]
    assert left == [failed, three[2]]
    assert {path.stem for path in (folder(home) / "history").iterdir()} == set(left)


def test_prune_of_one_run_leaves_the_others(done, three, home: Path):
    other = record(done, run_id="build-43")
    age(home, *three, other)

    assert done("snapshot", "prune", "build-43", "--yes", "--json").json["deleted"] == 1
    assert len(done("snapshot", "list", "build-42", "--json").json) == 3
    assert done("snapshot", "prune", "--yes").out.endswith("\nDeleted 3 snapshots.\n")
    assert done("snapshot", "prune", "--yes").out == "No snapshots to prune.\n"


def test_config_shows_how_long_snapshots_stay(done):
    rows = [line.split(maxsplit=2) for line in done("config").out.splitlines()]

    assert ["retention.snapshots_per_run", "50", "default"] in rows
    assert ["retention.snapshot_days", "14", "default"] in rows
    assert ["retention.snapshot_gzip_hours", "24", "default"] in rows


def test_a_json_document_is_all_that_json_prints(done, run, three):
    for words in (
        ("list",),
        ("show", three[0]),
        ("verify",),
        ("prune", "--dry-run"),
        ("record", "--run", "r"),
    ):
        result = done("snapshot", *words, "--json")
        assert (result.json is not None, result.err) == (True, ""), words
    error = run("snapshot", "show", "nobody", "--json")
    assert (error.status, error.out) == (4, "")
    assert json.loads(error.err)["error"]["kind"] == "not_found"
