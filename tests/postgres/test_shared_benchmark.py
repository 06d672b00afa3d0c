"""The benchmark of shared stores: that it measures everything that its page shows."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.shared.instructions import (
    LOGGING,
    PARSING,
    UNPLANNED,
    Instructions,
    Recording,
    record,
    replay,
    segments_of,
    summed,
)
from benchmarks.shared.machines import machines
from benchmarks.shared.page import Shared
from benchmarks.shared.payloads import edit
from tests.support.postgres_server import LocalPostgres, run_sql

ROOT = Path(__file__).parents[2]


def test_it_measures_everything(tmp_path: Path) -> None:
    kept = tmp_path / "shared.json"
    command = [sys.executable, "-m", "benchmarks.shared", "--quick", "--json", str(kept)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    shared = msgspec.json.decode(kept.read_bytes(), type=Shared)
    assert {each.daemons for each in shared.crowds} == {1, 2}
    assert all(each.per_s > 0 for each in shared.crowds)
    assert [each.delay_ms for each in shared.distances] == [0.0, 0.5]
    assert [each.delay_ms for each in shared.spreads] == [0.0, 0.5]
    assert all(
        min(each.crowd.per_s, each.cpu["server"], each.cpu["daemons"]) > 0
        for each in shared.spreads
    )
    # Nothing is answered without asking the server.
    assert all(trips >= 1 for trips in shared.distances[0].trips.values())


def test_machines_in_one_process_tell_every_hook(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    with machines(tmp_path, url, 2, processes=1) as running:
        first = running.load(per_s=20, seconds=0.2, agents=4)
        again = running.load(per_s=20, seconds=0.5, agents=4)
    assert (first.hooks, first.failed, again.hooks, again.failed) == (4, 0, 10, 0)
    assert len(again.times_ms) == 10
    [row] = run_sql(
        url,
        "SELECT count(*) AS hooks, count(DISTINCT session_id) AS agents,"
        " (SELECT count(*) FROM machines) AS machines FROM hook_deliveries",
    )
    assert row == {"hooks": 14, "agents": 4, "machines": 2}


def test_a_server_without_clients_does_again_what_was_recorded() -> None:
    with LocalPostgres(settings=LOGGING) as server:
        recording = record(server, (edit,), warm_s=0.2)
        assert 0 < recording.first < len(recording.messages)
        warmed_up = recording.messages[: recording.first]
        incomplete = msgspec.structs.replace(recording, messages=warmed_up)
        with pytest.raises(RuntimeError, match="other results"):
            replay(server, incomplete)
    with LocalPostgres(settings=LOGGING) as server:
        replay(server, record(server, (edit,), warm_s=0.2))


def test_instructions_are_those_of_the_statement_that_ran_last() -> None:
    insert = "INSERT INTO hook_deliveries (id) VALUES ($1)"
    flush = "BEGIN; EXECUTE fleet_1 ('a;'';b'); EXECUTE fleet_1 ('c'); COMMIT"
    recording = Recording("fleet", [f"PREPARE fleet_1 (text) AS {insert}", flush, flush], 2, 4)
    before = [("", 9), ("pg_parse_query", 9), ("BeginCommand", 9), ("ReadyForQuery", 9)]
    message = [
        ("pg_parse_query", 1_000),
        ("BeginCommand", 200),
        ("BeginCommand", 10_000),
        ("pg_parse_query", 3_000),  # of a function in SQL
        ("BeginCommand", 20_000),
        ("BeginCommand", 400),
        ("ReadyForQuery", 7),
    ]
    assert summed(recording, [*before, *message, *message]) == Instructions(
        hooks=2,
        batch=2.0,
        total=17.3,
        statements={insert: 16.5, PARSING: 0.5, UNPLANNED: 0.3},
        calls={insert: 1.0, PARSING: 0.5, UNPLANNED: 1.0},
    )


def test_a_dump_counts_for_the_function_that_ended_the_one_before(tmp_path: Path) -> None:
    for number, (trigger, instructions) in enumerate(
        [("--dump-before=BeginCommand", 70), ("--dump-before=ReadyForQuery", 8), ("Program", 9)], 1
    ):
        (tmp_path / f"out.{number}").write_text(
            f"desc: Trigger: {trigger}\n\nevents: Ir\nsummary: {instructions}\n"
        )
    assert [*segments_of(tmp_path)] == [("", 70), ("BeginCommand", 8), ("ReadyForQuery", 9)]
