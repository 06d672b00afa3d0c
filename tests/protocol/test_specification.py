"""The examples of the JSON-RPC 2.0 specification, against a running server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetd.server.rpc import Success

EXAMPLES = json.loads(
    Path(__file__).with_name("jsonrpc_spec_examples.json").read_text(encoding="utf-8")
)


async def subtract(context: Any, /, minuend: int, subtrahend: int) -> Any:
    return Success(minuend - subtrahend)


async def total(context: Any, /, *numbers: int) -> Any:
    return Success(sum(numbers))


async def get_data(context: Any, /) -> Any:
    return Success(["hello", 5])


async def nothing(context: Any, /, *args: Any) -> Any:
    return Success(None)


DEMO = {
    "subtract": subtract,
    "sum": total,
    "get_data": get_data,
    "update": nothing,
    "notify_sum": nothing,
    "notify_hello": nothing,
}


def comparable(reply: Any) -> Any:
    """Reduce a reply to what the specification's examples show, in an order of its own."""
    if isinstance(reply, list):
        return sorted((comparable(one) for one in reply), key=json.dumps)
    if "error" in reply:
        error = reply["error"]
        return reply | {"error": {"code": error["code"], "message": error["message"]}}
    return reply


@pytest.mark.parametrize("example", EXAMPLES, ids=[e["name"] for e in EXAMPLES])
async def test_example_gets_the_reply_of_the_specification(
    serve: Callable[..., Any], example: dict[str, Any]
) -> None:
    async with serve(DEMO) as running:
        client = await running.connect()
        await client.send(example["request"].replace("\n", " ").encode() + b"\n")
        if example["response"] is not None:
            expected = comparable(json.loads(example["response"]))
            assert comparable(await client.line()) == expected
        # Whatever comes next answers this request: nothing else was said.
        assert await client.call("subtract", [3, 1], identity="after") == {
            "jsonrpc": "2.0",
            "result": 2,
            "id": "after",
        }
