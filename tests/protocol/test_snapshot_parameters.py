"""Bad input to the methods of snapshots: refused with the field, and nothing is written."""

from typing import Any

import pytest

OUTCOME = {"kind": "shell", "name": "make", "result": "PASS"}


async def _written(running: Any) -> list[Any]:
    rows = await running.engine.store.read(
        lambda tx: [tx.value(f"SELECT count(*) FROM {t}") for t in ("runs", "snapshots", "events")]
    )
    files = [path for path in running.engine.config.checkpoints.rglob("*") if path.is_file()]
    return [*rows, files]


@pytest.mark.parametrize(
    ("params", "field", "expected"),
    [
        ({"source": "cron"}, "source", "one of error_boundary, manual, step_boundary, timer"),
        ({"status": "lost"}, "status", "one of completed, failed, in_progress, paused"),
        ({"step_state": {"step_status": "lost"}}, "step_state.step_status", "one of done"),
        ({"step_state": {"step_ordinal": 0}}, "step_state.step_ordinal", "at least 1"),
        ({"step_state": {"colour": 1}}, "step_state.colour", "plan_path"),
        ({"context_digest": {"dropped_items": -1}}, "context_digest.dropped_items", "at least 0"),
        ({"context_digest": {"window_pressure": "x"}}, "context_digest.window_pressure", "one of"),
        (
            {"command_outcomes": [OUTCOME, OUTCOME | {"duration_ms": -1}]},
            "command_outcomes[1].duration_ms",
            "at least 0",
        ),
        (
            {"command_outcomes": [OUTCOME | {"duration_ms": 1.5}]},
            "command_outcomes[0].duration_ms",
            "an integer",
        ),
        (
            {"command_outcomes": [OUTCOME | {"summary": "x" * 501}]},
            "command_outcomes[0].summary",
            "at most 500 characters",
        ),
        (
            {"command_outcomes": [OUTCOME | {"kind": "python"}]},
            "command_outcomes[0].kind",
            "one of shell, slash_command, tool_use",
        ),
        (
            {"command_outcomes": [OUTCOME | {"result": "ok"}]},
            "command_outcomes[0].result",
            "one of FAIL, PASS, WARN",
        ),
        (
            {"command_outcomes": [OUTCOME | {"reason_code": "Not A Code"}]},
            "command_outcomes[0].reason_code",
            "a string",
        ),
        ({"command_outcomes": [OUTCOME] * 1_001}, "command_outcomes", "at most 1000 items"),
        ({"command_outcomes": None}, "command_outcomes", "an array"),
        ({"note": "x" * 501}, "note", "at most 500 characters"),
    ],
)
async def test_a_wrong_value_is_refused_with_its_field_and_nothing_is_written(
    running: Any, client: Any, params: dict[str, Any], field: str, expected: str
) -> None:
    error = await client.error("snapshot.record", {"run_id": "r"} | params)
    assert (error["code"], error["data"]["kind"]) == (-32602, "invalid_params")
    assert error["data"]["field"] == field
    assert expected in str(error["data"]["expected"])
    assert await _written(running) == [0, 0, 0, []]


PATHS = [
    *("../x", "a/b", "/etc", "msn-1", "msn-", ".hidden", ".", "..", "x" * 65, "run\n", ""),
    *("a b", "ü", "a\0", "a\\b", "~"),
]


@pytest.mark.parametrize("method", ["record", "latest", "list", "prune", "verify"])
async def test_a_run_id_that_could_be_a_path_is_refused(
    running: Any, client: Any, method: str
) -> None:
    for run_id in PATHS:
        error = await client.error(f"snapshot.{method}", {"run_id": run_id})
        assert error["data"]["kind"] == "invalid_params", run_id
        assert error["data"]["field"] == "run_id"
        assert "the id of a run" in error["data"]["expected"]
        assert "regex" not in error["message"]
    assert await _written(running) == [0, 0, 0, []]


@pytest.mark.parametrize("snapshot_id", ["../x", "cp_1", "chk-1a2b3c4d", "cp_1_2\n", "cp_1_2/", ""])
async def test_an_id_that_is_no_snapshots_is_refused(client: Any, snapshot_id: str) -> None:
    error = await client.error("snapshot.get", {"snapshot_id": snapshot_id})
    assert error["data"]["field"] == "snapshot_id"
    assert "the id of a snapshot" in error["data"]["expected"]


async def test_a_summary_of_500_characters_and_a_run_id_of_64_are_taken(client: Any) -> None:
    params = {"run_id": "x" * 64, "command_outcomes": [OUTCOME | {"summary": "é" * 500}]}
    taken = (await client.call("snapshot.record", params))["result"]
    assert taken["run_id"] == "x" * 64
    assert taken["command_outcomes"][0]["summary"] == "é" * 500
    read = (await client.call("snapshot.latest", ["x" * 64]))["result"]
    assert read["snapshot_id"] == taken["snapshot_id"]


async def test_a_snapshot_on_the_wire_has_the_fields_of_the_document_first(client: Any) -> None:
    taken = (await client.call("snapshot.record", {"run_id": "r"}))["result"]
    assert list(taken)[:9] == [
        *("snapshot_id", "created_at", "run_id", "source", "status"),
        *("step_state", "context_digest", "command_outcomes", "integrity"),
    ]


async def test_no_run_at_all_is_refused_with_what_to_give(client: Any) -> None:
    for method in ("snapshot.record", "snapshot.latest"):
        error = await client.error(method, {})
        assert error["data"]["kind"] == "invalid_params"
        assert error["data"]["field"] == "run_id"
        assert "agent_id" in error["data"]["hint"]
