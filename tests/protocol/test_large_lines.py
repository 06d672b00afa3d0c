"""Lines of the hook client may be large: few of them at once, and no others."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from jsonrpcserver import Success

from fleetd.protocol.errors import LimitExceeded, ParseError
from fleetd.protocol.framing import HOOK_BEGINS
from fleetd.server import rpc

LIMIT = 1_024
USUAL = {"depth": 64, "batch": 50}


def hook_line(payload: str, **around: Any) -> bytes:
    """Return a line as the hook client writes it."""
    params = {"delivery_id": "0" * 32, "harness": "claude", **around, "payload": payload}
    message = {"jsonrpc": "2.0", "method": "hook.deliver", "params": params, "id": 1}
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class HookReceiver:
    """Stands for hook.deliver: keeps what comes, and answers when it is told to."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.go_on = trio.Event()

    async def deliver(self, context: Any, **params: Any) -> Any:
        self.payloads.append(params["payload"])
        await self.go_on.wait()
        return Success({"stdout": ""})


@pytest.fixture
def hooks() -> HookReceiver:
    return HookReceiver()


@pytest.fixture
def serve_hooks(serve: Callable[..., Any], hooks: HookReceiver) -> Callable[..., Any]:
    return lambda **limits: serve({"hook.deliver": hooks.deliver}, **limits)


@pytest.mark.parametrize(
    "payload",
    [
        "x" * 2_000,
        '{"a": "\\"},\\"id\\":7}' * 100,
        '"},"id":1}' * 200,
        '"payload":"' * 200,
        "[{" * 100_000,
        "\n\t\\\x00\x7f\u2028é😀" * 500,
    ],
)
async def test_a_large_payload_arrives_as_it_was(
    serve_hooks: Callable[..., Any], hooks: HookReceiver, payload: str
) -> None:
    hooks.go_on.set()
    async with serve_hooks(line_bytes=LIMIT) as running:
        client = await running.connect()
        await client.send(hook_line(payload, args=["enforce-locks"], env={"A": "b"}))
        assert await client.line() == {"jsonrpc": "2.0", "result": {"stdout": ""}, "id": 1}
        assert (await client.call("system.health"))["result"]["ok"]
    assert hooks.payloads == [payload]


async def test_a_payload_of_megabytes_reaches_the_real_method(client: Any) -> None:
    await client.send(hook_line(json.dumps({"content": "line\n" * 1_000_000})))
    assert (await client.line())["result"] == {"stdout": "", "exit_code": 0}


async def test_a_large_line_has_a_limit_of_its_own(serve_hooks: Callable[..., Any]) -> None:
    async with serve_hooks() as running:
        client = await running.connect()
        await client.send(hook_line("x" * 16 * 1024 * 1024))
        reply = await client.line()
        assert reply["error"]["data"]["limit"] == "line_bytes"
        assert reply["error"]["data"]["allowed"] == 16 * 1024 * 1024
        assert await client.line() is None


async def test_other_methods_stay_within_the_usual_limit(serve: Callable[..., Any]) -> None:
    line = hook_line("x" * LIMIT).replace(b"hook.deliver", b"event.append")
    async with serve(line_bytes=LIMIT) as running:
        client = await running.connect()
        await client.send(line)
        assert (await client.line())["error"]["data"]["allowed"] == LIMIT


@pytest.mark.parametrize(
    "line",
    [
        HOOK_BEGINS + b'"payload":' + b"[" * 2_000 + b"]" * 2_000 + b'},"id":1}\n',
        HOOK_BEGINS + b'"args":["' + b"x" * 70_000 + b'"],"payload":"x"},"id":1}\n',
        HOOK_BEGINS + b'"payload":"x","args":["' + b"x" * 2_000 + b'"]},"id":1}\n',
        HOOK_BEGINS + b'"payload":"' + b"x" * 2_000 + b"\n",
        HOOK_BEGINS + b'"payload":"' + b"x" * 2_000 + b'\\ud800"},"id":1}\n',
        HOOK_BEGINS + b'"payload":"' + b"x" * 2_000 + b'\xff"},"id":1}\n',
        HOOK_BEGINS + b'"payload":"' + b'x" ' * 2_000 + b'"},"id":1}\n',
    ],
)
async def test_a_large_line_of_another_form_is_refused(
    serve_hooks: Callable[..., Any], hooks: HookReceiver, line: bytes
) -> None:
    async with serve_hooks(line_bytes=LIMIT) as running:
        client = await running.connect()
        await client.send(line)
        assert (await client.line())["error"]["data"]["kind"] in ("limit", "parse_error")
        other = await running.connect()
        assert (await other.call("system.health"))["result"]["ok"]
    assert hooks.payloads == []


# What a JSON string is made of, and what would be wrong in one.
PARTS = ("a", "x" * 7, "é", "😀", r"\n", r"\\", r"\"", r"\/", r"\u00e9", r"\ud83d\ude00", r"\u0041")
WRONG = (r"\ud83d", "\\", '"', "\x01", r"\x", r"\u12")


@pytest.mark.parametrize("seed", range(20))
def test_a_payload_read_in_pieces_is_the_payload(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(rpc, "_PIECE_BYTES", 20)
    chance = random.Random(seed)
    for _ in range(500):
        parts = PARTS + (WRONG if chance.random() < 0.2 else ())
        text = "".join(chance.choices(parts, k=chance.randrange(40))).encode()
        text = chance.choice((b"", b"", b"", b"\x80" * 60)) + text[: chance.choice((None, 30))]
        line = hook_line("").replace(b'"payload":""', b'"payload":"' + text + b'"')
        whole = _outcome(lambda line: msgspec.json.decode(line)["params"]["payload"], line)
        assert _outcome(lambda line: _payload(rpc.parse_large(line, **USUAL)), line) == whole


def _outcome(read: Callable[[bytes], str], line: bytes) -> str | None:
    try:
        return read(line)
    except (msgspec.DecodeError, ParseError, UnicodeDecodeError):
        return None


def _payload(message: rpc.RpcMessage) -> str:
    (element,) = message.elements
    assert isinstance(element, rpc.RpcElement)
    assert isinstance(element.params, dict)
    return str(element.params["payload"])


def test_what_stands_around_a_payload_is_checked_as_any_line() -> None:
    deep = hook_line("x" * 2_000, args=["a"]).replace(b'["a"]', b"[" * 65 + b"]" * 65)
    with pytest.raises(LimitExceeded, match="nests deeper"):
        rpc.parse_large(deep, **USUAL)
    with pytest.raises(ParseError):
        rpc.parse_large(hook_line("x", env={}).replace(b"{}", b"{]"), **USUAL)


async def test_large_lines_wait_for_room_and_their_clock_stands_still(
    serve_hooks: Callable[..., Any], hooks: HookReceiver, autojump_clock: Any
) -> None:
    async with serve_hooks(line_bytes=LIMIT) as running:
        clients = [await running.connect() for _ in range(5)]
        for number, client in enumerate(clients):
            await client.send(hook_line(str(number) * 2_000))
        await trio.sleep(60)
        assert len(hooks.payloads) == 2
        small = await running.connect()
        assert (await small.call("system.health"))["result"]["ok"]
        hooks.go_on.set()
        for client in clients:
            assert "result" in await client.line()
    assert len(set(hooks.payloads)) == 5


async def test_a_large_line_that_is_not_finished_in_time_makes_room(
    serve_hooks: Callable[..., Any], hooks: HookReceiver, autojump_clock: Any
) -> None:
    hooks.go_on.set()
    async with serve_hooks(line_bytes=LIMIT) as running:
        slow = [await running.connect() for _ in range(4)]
        for client in slow:
            await client.send(hook_line("x" * 3_000)[:2_000])
        whole = await running.connect()
        await whole.send(hook_line("y" * 2_000))
        assert "result" in await whole.line()
        for client in slow:
            assert (await client.line())["error"]["data"]["limit"] == "line_timeout_ms"


async def test_clients_that_vanish_or_are_refused_make_room(
    serve_hooks: Callable[..., Any], hooks: HookReceiver
) -> None:
    hooks.go_on.set()
    async with serve_hooks(line_bytes=LIMIT) as running:
        for _ in range(5):
            gone = await running.connect()
            await gone.send(hook_line("x" * 3_000)[:2_000])
            await trio.aclose_forcefully(gone.stream)
            wrong = await running.connect()
            await wrong.send(hook_line("x" * 2_000)[:-10] + b"?\n")
            assert (await wrong.line())["error"]["data"]["kind"] == "limit"
        client = await running.connect()
        await client.send(hook_line("z" * 2_000))
        assert "result" in await client.line()
    assert hooks.payloads == ["z" * 2_000]
