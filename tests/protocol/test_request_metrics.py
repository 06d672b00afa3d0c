"""Requests are counted and timed, and the log tells which line belongs to which of them."""

import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from jsonrpcserver.result import Result, Success

from fleetd.domain.core.registry import REGISTERED
from fleetd.domain.events import streams
from fleetd.domain.redaction.redact import redact
from fleetd.engine.metrics.counters import Traffic
from fleetd.host import trace
from fleetd.protocol.errors import NotFound
from fleetd.protocol.methods import METHODS
from fleetd.server import rpc
from fleetd.server.rpc import Dispatcher, guarded

MS = 1_000_000


class MeteredServer:
    """A dispatcher whose methods take as long as they say."""

    def __init__(self) -> None:
        self.now_ns = 5 * MS
        self.traffic = Traffic()
        names = ("take", "lock.acquire", "fail", "break")
        methods = {name: guarded(name, getattr(self, name.split(".")[-1])) for name in names[:2]}
        methods |= {"fail": guarded("fail", self.fail), "break": guarded("break", self.break_)}
        self.dispatcher = Dispatcher(methods, self.traffic, lambda: self.now_ns)

    async def take(self, context: Any, /, ms: float = 0) -> Result:
        self.now_ns += int(ms * MS)
        return Success(None)

    acquire = take

    async def fail(self, context: Any, /) -> Result:
        raise NotFound("There is none.")

    async def break_(self, context: Any, /) -> Result:
        raise ValueError("a bug")

    async def send(self, *calls: tuple[str, Any], since_ns: int | None = None) -> Any:
        batch = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in enumerate(calls, 1)
        ]
        line = json.dumps(batch if len(batch) > 1 else batch[0]).encode()
        return await self.line(line, since_ns)

    async def line(self, line: bytes, since_ns: int | None = None) -> Any:
        message = rpc.parse(line, depth=64, batch=64)
        since = self.now_ns if since_ns is None else since_ns
        return await self.dispatcher.answer(message, None, since)

    def max_ms(self, method: str) -> float:
        return self.traffic.methods[method].max / 1_000


@pytest.fixture
def bench() -> MeteredServer:
    return MeteredServer()


@pytest.fixture
def debug(out: io.StringIO) -> io.StringIO:
    trace.configure("DEBUG", redact, out)
    return out


def texts(out: io.StringIO) -> list[str]:
    """Return the lines of the log without their time."""
    return [line.split("] ", 1)[1] for line in out.getvalue().splitlines()]


async def test_a_request_is_timed_from_when_it_was_understood(bench: MeteredServer) -> None:
    await bench.send(("take", [3.25]), since_ns=bench.now_ns - 2 * MS)
    assert bench.max_ms("take") == 5.25


async def test_the_members_of_a_batch_are_timed_one_by_one(bench: MeteredServer) -> None:
    await bench.send(("take", [3]), ("lock.acquire", [50]), ("take", [4]))
    assert (bench.max_ms("take"), bench.max_ms("lock.acquire")) == (4, 50)
    assert bench.traffic.methods["take"].count == 2


async def test_notifications_are_timed_as_well(bench: MeteredServer) -> None:
    assert await bench.line(b'{"jsonrpc":"2.0","method":"take","params":[2]}') is None
    assert bench.max_ms("take") == 2


async def test_errors_are_counted_by_their_kind(bench: MeteredServer) -> None:
    await bench.send(("fail", []), ("fail", []), ("break", []), ("unheard.of", []))
    await bench.line(b'[{"jsonrpc":"1.0"}]')
    assert bench.traffic.errors == {
        "not_found": 2,
        "internal": 1,
        "method_not_found": 1,
        "invalid_request": 1,
    }


async def test_names_that_clients_make_up_take_no_room(bench: MeteredServer) -> None:
    for number in range(50):
        await bench.send((f"made.up{number}", []))
    assert bench.traffic.methods == {}
    assert bench.traffic.errors == {"method_not_found": 50}


async def test_each_request_ends_in_one_line_at_debug(
    bench: MeteredServer, debug: io.StringIO
) -> None:
    await bench.send(("take", [1.5]))
    await bench.send(("fail", []))
    await bench.line(b'{"jsonrpc":"2.0","method":"take"}')
    assert texts(debug) == [
        "[DEBUG] Answered in 1.500 ms: ok (request 1 take)",
        "[DEBUG] Answered in 0.000 ms: not_found (request 1 fail)",
        "[DEBUG] Answered in 0.000 ms: ok (notification take)",
    ]


async def test_at_info_only_what_matters_is_said(bench: MeteredServer, out: io.StringIO) -> None:
    await bench.send(("take", [999]))
    await bench.send(("fail", []))
    assert out.getvalue() == ""


async def test_a_slow_request_is_told_and_a_wait_for_a_lock_is_none(
    bench: MeteredServer, out: io.StringIO
) -> None:
    await bench.send(("lock.acquire", [60_000]))
    await bench.send(("take", [1_000]))
    assert texts(out) == ["[WARNING] Slow: 1000 ms, ok (request 1 take)"]


def test_what_may_take_its_time_waits_or_looks_through_much() -> None:
    slow = {each.request.method for each in REGISTERED.values() if each.slow}
    assert slow == {"lock.acquire", "report.get", "stats.recovery"} | {
        name for name, each in METHODS.items() if each.long
    }


async def test_a_bug_tells_incident_and_request_in_the_same_line(
    bench: MeteredServer, out: io.StringIO
) -> None:
    reply = json.loads(await bench.send(("break", [])))
    incident = reply["error"]["data"]["incident"]
    first, *rest = texts(out)
    assert first == f"[ERROR] Incident {incident} in break (request 1 break)"
    assert rest
    assert all(line.endswith(" (request 1 break)") for line in rest)


@pytest.mark.parametrize(
    ("identity", "shown"),
    [
        ('"7"', '"7"'),
        ("null", "null"),
        ("-3", "-3"),
        ('"a) (connection 1, request 2 x\\""', '"a) (connection 1, request 2 x\\""'),
        ('"\\n[2026] [INFO] forged"', '"\\n[2026] [INFO] forged"'),
        ('"\\u202e\\u001b[2J"', '"\\u202e\\u001b[2J"'),
        (json.dumps("x" * 500), '"' + "x" * 79 + "…"),
    ],
)
async def test_an_id_of_a_client_is_escaped_and_cut(
    bench: MeteredServer, debug: io.StringIO, identity: str, shown: str
) -> None:
    await bench.line(b'{"jsonrpc":"2.0","method":"take","id":%b}' % identity.encode())
    (line,) = texts(debug)
    assert line == f"[DEBUG] Answered in 0.000 ms: ok (request {shown} take)"


async def test_an_id_with_half_a_character_does_not_silence_the_log(
    bench: MeteredServer, debug: io.StringIO
) -> None:
    with pytest.raises(Exception, match="Parse error"):
        await bench.line(b'{"jsonrpc":"2.0","method":"take","id":"\\ud800"}')
    await bench.send(("take", []))
    assert len(texts(debug)) == 1


async def test_a_made_up_method_is_escaped_and_cut(
    bench: MeteredServer, debug: io.StringIO
) -> None:
    await bench.send(("x) (request 8 take\n" + "y" * 500, []))
    (line,) = texts(debug)
    assert line.startswith(
        '[DEBUG] Answered in 0.000 ms: method_not_found (request 1 "x) (request 8 take\\nyyy'
    )
    assert len(line) < 200


async def test_connections_are_numbered_and_counted(
    serve: Callable[..., Any], debug: io.StringIO
) -> None:
    async with serve() as running:
        first, second = await running.connect(), await running.connect()
        for client in (first, second):
            await client.call("system.hello")
        traffic = running.engine.traffic
        assert (traffic.open, traffic.most_open, traffic.accepted) == (2, 2, 2)
        await first.stream.aclose()
        await trio.testing.wait_all_tasks_blocked(0.05)
        status = (await second.call("system.status", identity="s"))["result"]
    assert status["connections"]["open"] == 1
    assert status["connections"]["accepted"] == 2
    (hello,) = [each for each in status["latencies"] if each["method"] == "system.hello"]
    assert hello["count"] == 2
    assert 0 <= hello["p50_ms"] <= hello["p95_ms"] <= hello["max_ms"]
    found = [re.sub(r"[\d.]+ ms", "- ms", line) for line in texts(debug)]
    assert found == [
        "[DEBUG] Answered in - ms: ok (connection 1, request 1 system.hello)",
        "[DEBUG] Answered in - ms: ok (connection 2, request 1 system.hello)",
        '[DEBUG] Answered in - ms: ok (connection 2, request "s" system.status)',
    ]


async def test_a_line_that_nobody_can_read_is_counted(serve: Callable[..., Any]) -> None:
    async with serve() as running:
        client = await running.connect()
        for _ in range(2):
            await client.send(b"junk\n")
            assert (await client.line())["error"]["code"] == -32700
        assert running.engine.traffic.errors == {"parse_error": 2}


async def test_who_breaks_a_limit_is_counted_and_named(
    serve: Callable[..., Any], out: io.StringIO
) -> None:
    async with serve(line_bytes=1_024) as running:
        client = await running.connect()
        await client.send(b'"' + b"x" * 5_000)
        assert (await client.line())["error"]["data"]["limit"] == "line_bytes"
        assert await client.line() is None
        traffic = running.engine.traffic
        assert (traffic.cut_off, traffic.errors) == (1, {"limit": 1})
    (line,) = texts(out)
    assert line.startswith("[INFO] A client exceeded a limit and was disconnected: ")
    assert line.endswith(" (connection 1)")


async def test_a_request_that_nobody_waits_for_any_more_has_its_line_too(
    serve: Callable[..., Any], debug: io.StringIO, autojump_clock: trio.testing.MockClock
) -> None:
    async def for_ever(context: Any, /) -> Result:
        await trio.sleep_forever()
        raise AssertionError

    async with serve({"wait": for_ever}) as running:
        client = await running.connect()
        await client.send({"jsonrpc": "2.0", "id": 9, "method": "wait"})
        await trio.testing.wait_all_tasks_blocked(0.05)
        await client.stream.aclose()
        await trio.sleep(1)
    (line,) = texts(debug)
    assert line.endswith(" (connection 1, request 9 wait)")
    assert "Cancelled" in line


async def test_subscribers_that_cannot_go_on_are_named(
    serve: Callable[..., Any], out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as running:
        client = await running.connect()
        await client.call("event.subscribe")

        def refuse(*_: Any) -> None:
            raise NotFound("The log is gone.")

        monkeypatch.setattr(streams, "tail", refuse)
        running.engine.bell.ring()
        assert await client.line() is None
    (line,) = texts(out)
    assert line == "[WARNING] A subscription ended: The log is gone. (connection 1)"
