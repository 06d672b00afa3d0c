"""What a client may send by mistake or on purpose: a typed error, and nobody else notices."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from fleetd.protocol.errors import FleetError, ParseError
from fleetd.server import rpc

HELLO = {"jsonrpc": "2.0", "id": 7, "method": "system.health"}


async def assert_alive(client: Any) -> None:
    """The same connection still answers."""
    await client.send(HELLO)
    reply = await client.line()
    assert reply["id"] == 7
    assert reply["result"]["ok"] is True


async def assert_limit_then_closed(client: Any, limit: str) -> dict[str, Any]:
    reply = await client.line()
    assert reply["id"] is None
    assert reply["error"]["code"] == -32007
    assert reply["error"]["data"]["kind"] == "limit"
    assert reply["error"]["data"]["limit"] == limit
    assert reply["error"]["data"]["hint"]
    assert await client.line() is None
    return reply["error"]


@pytest.mark.parametrize(
    "line",
    [
        b"NaN",
        b'{"jsonrpc":"2.0","id":1,"method":"system.health","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"system.health","params":{"a":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"system.health","params":{"a":1e999}}',
        b"\xff\xfe{\x00}\x00",
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{'a': 1}",
        b'{"a":1,}',
        b"\x00",
        b"9" * 5_000,
    ],
)
async def test_what_is_not_json_is_a_parse_error_and_the_connection_stays(
    client: Any, line: bytes
) -> None:
    await client.send(line + b"\n")
    reply = await client.line()
    assert reply["id"] is None
    assert (reply["error"]["code"], reply["error"]["message"]) == (-32700, "Parse error")
    assert reply["error"]["data"]["kind"] == "parse_error"
    assert reply["error"]["data"]["detail"]
    await assert_alive(client)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": 1.0}, "id"),
        ({"id": True}, "id"),
        ({"id": [1]}, "id"),
        ({"id": {}}, "id"),
        ({"jsonrpc": "1.0"}, "jsonrpc"),
        ({"jsonrpc": 2.0}, "jsonrpc"),
        ({"method": None}, "method"),
        ({"params": "x"}, "params"),
        ({"params": None}, "params"),
        ({"parms": {}}, "parms"),
    ],
)
async def test_a_wrong_envelope_is_refused_and_the_wrong_member_named(
    client: Any, change: dict[str, Any], named: str
) -> None:
    await client.send(HELLO | change)
    reply = await client.line()
    assert reply["id"] == (None if named == "id" else 7)
    assert (reply["error"]["code"], reply["error"]["message"]) == (-32600, "Invalid Request")
    assert named in reply["error"]["data"]["detail"]
    await assert_alive(client)


@pytest.mark.parametrize("identity", [0, -1, "", "x", None, 2**60])
async def test_strings_integers_and_null_are_ids_and_come_back(client: Any, identity: Any) -> None:
    reply = await client.call("system.health", identity=identity)
    assert reply["id"] == identity
    assert "result" in reply


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 65 + b"]" * 65,
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 64 + b"]" * 64 + b"}",
        b'["\\"]]]]",' + b"[" * 64 + b"]" * 64 + b"]",
    ],
)
async def test_a_message_that_nests_too_deep_is_refused(client: Any, line: bytes) -> None:
    await client.send(line + b"\n")
    error = await assert_limit_then_closed(client, "depth")
    assert "64" in error["message"]


@pytest.mark.parametrize(
    "params",
    [
        {"a": "[" * 1_000},
        {"a": '"' + "[{" * 1_000 + "\\"},
        {"a": ["[" * 100, "\\", '"', "]" * 100, "{" * 100]},
        {"a": ["\\", "[" * 1_000]},
        {"a": [[]] * 1_000},
    ],
)
async def test_brackets_within_strings_and_side_by_side_are_not_nesting(
    client: Any, params: Any
) -> None:
    reply = await client.call("system.health", params)
    assert reply["error"]["data"]["kind"] == "invalid_params"  # it was read, and has no such field


@pytest.mark.parametrize("pairs", [1, 2, 3, 10, 2_047, 2_048, 2_049, 4_096, 10_000])
@pytest.mark.parametrize("around", ["[]", "{}"])
def test_brackets_are_followed_however_many_there_are(around: str, pairs: int) -> None:
    """In a line of many brackets one is too deep, or one element too many, wherever that is."""
    begin, end = (f'{around[0]}"a":[', f"]{around[1]}") if around == "{}" else ("[[", "]]")
    inner = ["[]"] * pairs
    for at in {0, pairs // 2, pairs - 1}:
        deep = [*inner[:at], "[[]]", *inner[at + 1 :]]
        assert _refusal(f"{begin}{','.join(inner)}{end}".encode()) != "depth"
        assert _refusal(f"{begin}{','.join(deep)}{end}".encode()) != "depth"
        deep[at] = "[[[]]]"
        assert _refusal(f"{begin}{','.join(deep)}{end}".encode()) == "depth"
    whole = f"[{','.join(inner)}]"
    for more, refused in (("", False), (",{}", False), (",{},[]", False), (",{},[],{}", True)):
        assert (_refusal(f"[{whole}{more}]".encode()) == "batch") is refused


def _refusal(line: bytes) -> object:
    try:
        rpc.parse(line, depth=4, batch=3)
    except FleetError as error:
        return error.values.get("limit", error.kind)
    return None


async def test_a_message_as_deep_as_allowed_is_read(client: Any) -> None:
    nested: Any = 1
    for _ in range(63):
        nested = [nested]
    reply = await client.call("event.append", {"type": "deep_thing", "data": {"a": 1}})
    assert "result" in reply
    await client.send({"jsonrpc": "2.0", "id": 2, "method": "foobar", "params": nested})
    assert (await client.line())["error"]["code"] == -32601


async def test_more_containers_than_memory_should_hold_are_refused(client: Any) -> None:
    await client.send(b'{"a":[' + b",".join([b"[]"] * 200_000) + b"]}\n")
    await assert_limit_then_closed(client, "containers")


@pytest.mark.parametrize(
    "element", [b"1", b"{}", b"[]", b'"x"', b"null", json.dumps(HELLO).encode()]
)
async def test_a_batch_over_the_limit_is_refused_whole(client: Any, element: bytes) -> None:
    await client.send(b"[" + b",".join([element] * 51) + b"]\n")
    error = await assert_limit_then_closed(client, "batch")
    assert "50" in error["message"]


async def test_a_batch_at_the_limit_is_answered(client: Any) -> None:
    await client.send([HELLO | {"id": number} for number in range(50)])
    assert [reply["id"] for reply in await client.line()] == list(range(50))


async def test_one_bad_element_does_not_fail_its_batch(client: Any) -> None:
    await client.send([HELLO, 1, "x", None, [], {}, HELLO | {"id": 8, "method": "nowhere"}])
    replies = await client.line()
    assert [r.get("error", {}).get("code") for r in replies] == [None, *[-32600] * 5, -32601]
    await assert_alive(client)


async def test_two_megabytes_of_junk_are_refused_and_the_error_arrives(client: Any) -> None:
    await client.send(b"[" + b"{]," * 700_000 + b"\n")
    error = await assert_limit_then_closed(client, "line_bytes")
    assert "1048576" in error["message"]


async def test_a_line_over_the_limit_is_refused_before_it_ends(serve: Callable[..., Any]) -> None:
    async with serve(line_bytes=1_024) as running:
        client = await running.connect()
        await client.send(b"x" * 1_025)
        await assert_limit_then_closed(client, "line_bytes")


async def test_a_line_at_the_limit_is_read(serve: Callable[..., Any]) -> None:
    async with serve(line_bytes=1_024) as running:
        client = await running.connect()
        await client.send(json.dumps(HELLO).encode().ljust(1_024) + b"\n")
        assert (await client.line())["id"] == 7


async def test_half_a_line_is_given_five_seconds(client: Any, autojump_clock: Any) -> None:
    await client.send(b'{"jsonrpc"')
    error = await assert_limit_then_closed(client, "line_timeout_ms")
    assert "5000 ms" in error["message"]


async def test_trickling_does_not_prolong_a_line(client: Any, autojump_clock: Any) -> None:
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def trickle() -> None:
            while True:
                await client.send(b" x")
                await trio.sleep(1)

        nursery.start_soon(trickle)
        reply = await client.line()
        nursery.cancel_scope.cancel()
    assert reply["error"]["data"]["limit"] == "line_timeout_ms"
    assert trio.current_time() - begun == pytest.approx(5, abs=1)


async def test_an_idle_connection_stays_open(client: Any, autojump_clock: Any) -> None:
    await assert_alive(client)
    await trio.sleep(86_400)
    await assert_alive(client)


async def test_other_connections_notice_nothing(running: Any) -> None:
    good, bad, worse = [await running.connect() for _ in range(3)]
    await bad.send(b"[" * 100_000 + b"\n")
    await worse.send(b"half a line")
    await assert_alive(good)
    await assert_limit_then_closed(bad, "depth")
    await assert_alive(good)


async def test_blank_lines_and_carriage_returns_are_forgiven(client: Any) -> None:
    await client.send(b"\n\r\n  \n" + json.dumps(HELLO).encode() + b"\r\n")
    assert (await client.line())["id"] == 7


@pytest.mark.parametrize("line", [b"[" * 20_000, b"[" * 20_000 + b"]" * 20_000])
def test_what_the_parser_itself_cannot_bear_is_a_parse_error(line: bytes) -> None:
    with pytest.raises(ParseError) as refused:
        rpc.parse(line, depth=50_000, batch=50)
    assert "too deeply" in refused.value.values["detail"]
