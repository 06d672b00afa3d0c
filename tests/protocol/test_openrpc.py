"""rpc.discover: the protocol describes itself."""

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest

from fleetd.protocol import errors as protocol_errors
from fleetd.protocol import param_docs
from fleetd.protocol.errors import FleetError
from fleetd.protocol.methods import METHODS


@pytest.fixture
async def document(client: Any) -> dict[str, Any]:
    return (await client.call("rpc.discover"))["result"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


async def test_it_lists_every_method_once(document: dict[str, Any]) -> None:
    names = [method["name"] for method in document["methods"]]
    assert sorted(names) == sorted(METHODS)


async def test_it_has_the_shape_of_openrpc(document: dict[str, Any]) -> None:
    assert document.keys() == {"openrpc", "info", "methods", "components"}
    assert document["openrpc"].startswith("1.3.")
    assert document["info"]["title"] == "fleetd"
    for method in document["methods"]:
        assert method["summary"]
        assert method["result"]["schema"]
        names = [param["name"] for param in method["params"]]
        assert len(set(names)) == len(names)
        required = [param["required"] for param in method["params"]]
        assert required == sorted(required, reverse=True), "required parameters come first"


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = set(references(document))
    assert found
    for reference in found:
        here: Any = document
        for part in reference.removeprefix("#/").split("/"):
            here = here[part]
        assert here


async def test_schemas_are_valid_json_schema(document: dict[str, Any]) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    for schema in document["components"]["schemas"].values():
        validator.check_schema(schema)
    for method in document["methods"]:
        for param in method["params"]:
            validator.check_schema(param["schema"])


async def test_parameters_stand_in_their_order_by_position(document: dict[str, Any]) -> None:
    (send,) = [m for m in document["methods"] if m["name"] == "message.send"]
    assert [param["name"] for param in send["params"]] == [
        *("from", "to", "subject", "body", "mission_id", "thread_id", "priority"),
        "idempotency_key",
    ]


async def test_every_kind_of_error_is_described(document: dict[str, Any]) -> None:
    errors = document["components"]["errors"]
    assert errors["lock_conflict"]["code"] == -32003
    declared = [
        each
        for _, each in inspect.getmembers(protocol_errors, inspect.isclass)
        if issubclass(each, FleetError) and each is not FleetError
    ]
    assert sorted(errors) == sorted(each.kind for each in declared)
    assert len({each.code for each in declared}) == len(declared)
    assert json.dumps(document["methods"][0]["errors"])


def test_every_parameter_has_a_meaning_and_no_meaning_is_left_over() -> None:
    used = set()
    for method, request in METHODS.items():
        for name in request.__struct_encode_fields__:
            assert param_docs.meaning(method, name)
            here = f"{method}.{name}"
            used.add(here if here in param_docs._HERE else name)
    assert used == {*param_docs._HERE, *param_docs._EVERYWHERE}
