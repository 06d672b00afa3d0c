"""Parameters: by name, by position, and the errors that say which one is wrong."""

from typing import Any

import pytest

MISSION = "msn-1a2b3c4d"


async def invalid(client: Any, method: str, params: Any) -> dict[str, Any]:
    error = await client.error(method, params)
    assert error["code"] == -32602
    assert error["data"]["kind"] == "invalid_params"
    assert error["data"]["hint"]
    assert error["message"].startswith("Invalid params: ")
    return error


@pytest.mark.parametrize(
    ("method", "params", "field", "expected", "value"),
    [
        ("mission.get", {"mission_id": 5}, "mission_id", "a string", "5"),
        ("mission.get", {"mission_id": "../../etc"}, "mission_id", "an id such as", '"../../etc"'),
        ("mission.get", {"mission_id": "msn-1\n"}, "mission_id", "an id such as", '"msn-1\\n"'),
        ("checkpoint.compare", {"before": "A"}, "before", "an id such as chk-", '"A"'),
        ("mission.list", {"limit": True}, "limit", "an integer", "true"),
        ("mission.list", {"limit": 0}, "limit", "at least 1", "0"),
        ("mission.list", {"limit": 1.5}, "limit", "an integer", "1.5"),
        ("mission.list", {"status": "lost"}, "status", "one of cancelled, completed", '"lost"'),
        ("mission.update", {"mission_id": MISSION, "priority": "x"}, "priority", "one of", '"x"'),
        ("mission.create", {"title": None}, "title", "a string", "null"),
        ("mission.create", {"title": "t", "metadata": []}, "metadata", "an object", "[]"),
        (
            "mission.create",
            {"title": "t", "sorties": [{"title": "a"}, {"title": ""}]},
            "sorties[1].title",
            "not empty",
            '""',
        ),
        (
            "mission.create",
            {"title": "t", "sorties": [{"title": "a", "files": ["a\x00b"]}]},
            "sorties[0].files[0]",
            "a path without NUL bytes",
            '"a\\u0000b"',
        ),
        ("message.send", {"from": "a b", "to": ["x"], "subject": "s"}, "from", "a name", '"a b"'),
        ("checkpoint.create", {"recovery_context": 5}, "recovery_context", "or null", "5"),
        ("agent.heartbeat", {"agent_id": {"a": 1}}, "agent_id", "a string", "an object"),
    ],
)
async def test_a_wrong_value_is_named_with_its_field_and_what_was_expected(
    client: Any, method: str, params: dict[str, Any], field: str, expected: str, value: str
) -> None:
    error = await invalid(client, method, params)
    assert error["data"]["field"] == field
    assert expected in error["data"]["expected"]
    assert error["data"]["value"] == value
    for part in (field, expected, value):
        assert part in error["message"]
    assert "regex" not in error["message"]


async def test_a_long_value_is_cut_short(client: Any) -> None:
    error = await invalid(client, "mission.get", {"mission_id": "x" * 100_000})
    assert len(error["message"]) < 300


@pytest.mark.parametrize("name", ["colour", "id", "a - at `$.b`", "", "context", "self"])
async def test_an_unknown_parameter_is_named(client: Any, name: str) -> None:
    error = await invalid(client, "mission.get", {"mission_id": MISSION, name: 1})
    assert error["data"]["field"] == (name or "params")
    assert "is not a parameter of mission.get" in error["message"]
    assert "mission_id" in error["data"]["hint"]


async def test_an_unknown_nested_parameter_is_named_with_its_place(client: Any) -> None:
    params = {"title": "t", "sorties": [{"title": "a", "colour": 1}]}
    error = await invalid(client, "mission.create", params)
    assert error["data"]["field"] == "sorties[0].colour"
    fields = ["title", "description", "files", "assigned_to", "priority", "depends_on"]
    assert error["data"]["expected"] == fields


async def test_a_missing_parameter_is_named(client: Any) -> None:
    error = await invalid(client, "sortie.assign", {"sortie_id": "srt-1a2b3c4d"})
    assert error["data"]["field"] == "agent_id"
    assert error["message"] == "Invalid params: agent_id is required."


async def test_parameters_by_position_follow_the_order_of_the_struct(client: Any) -> None:
    reply = await client.call("event.append", ["file_modified", None, "agent-1", {"file": "a"}])
    assert reply["result"]["type"] == "file_modified"
    assert reply["result"]["data"] == {"file": "a"}


async def test_a_wrong_parameter_by_position_is_named_too(client: Any) -> None:
    error = await invalid(client, "mission.list", ["failed", 5])
    assert error["data"]["field"] == "project_dir"


async def test_too_many_parameters_by_position_are_refused(client: Any) -> None:
    error = await invalid(client, "mission.get", [MISSION, "more"])
    assert "at most 1 by position (mission_id), got 2" in error["message"]


async def test_the_idempotency_key_goes_by_name_only(client: Any) -> None:
    error = await invalid(client, "mission.start", [MISSION, "key-1"])
    assert "at most 1" in error["message"]
    error = await client.error("mission.start", {"mission_id": MISSION, "idempotency_key": "key-1"})
    assert error["data"]["kind"] == "not_found"  # it passed the check and reached the engine


async def test_an_unknown_method_is_named_in_the_data(client: Any) -> None:
    error = await client.error("mission.fly")
    assert (error["code"], error["message"]) == (-32601, "Method not found")
    assert error["data"]["kind"] == "method_not_found"
    assert "mission.fly" in error["data"]["method"]
    assert "rpc.discover" in error["data"]["hint"]


async def test_an_error_of_the_engine_arrives_with_code_message_and_hint(client: Any) -> None:
    error = await client.error("mission.get", {"mission_id": MISSION})
    assert error["code"] == -32001
    assert MISSION in error["message"]
    assert error["data"]["kind"] == "not_found"
