"""Connections: many requests at once, room, leaving, slowness, and the daemon's own leaving."""

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fleetd.protocol.framing import HOOK_BEGINS
from fleetd.server import lines
from fleetd.server.rpc import Success

PING = {"jsonrpc": "2.0", "method": "ping"}


class Holding:
    """A method that answers when it is told to, and counts who waits."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.waiting = 0

    async def hold(self, context: Any, /) -> Any:
        self.waiting += 1
        try:
            await self.go.wait()
        finally:
            self.waiting -= 1
        return Success("held")

    async def ping(self, context: Any, /) -> Any:
        return Success("pong")

    @property
    def methods(self) -> dict[str, Any]:
        return {"hold": self.hold, "ping": self.ping}


@pytest.fixture
def holding() -> Holding:
    return Holding()


async def hold(client: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        await client.send({"jsonrpc": "2.0", "id": number, "method": "hold"})


async def test_a_quick_request_overtakes_a_slow_one(
    serve: Callable[..., Any], holding: Holding
) -> None:
    async with serve(holding.methods) as running:
        client = await running.connect()
        await hold(client, 1, 1)
        assert (await client.call("ping", identity=2))["id"] == 2
        holding.go.set()
        assert (await client.line())["id"] == 1


async def test_lines_of_one_connection_are_begun_in_their_order(client: Any) -> None:
    for number in range(30):
        request = {"type": "step_taken", "data": {"n": number}}
        await client.send(
            {"jsonrpc": "2.0", "id": number, "method": "event.append", "params": request}
        )
    for _ in range(30):
        assert "result" in await client.line()
    events = (await client.call("event.list"))["result"]["events"]
    assert [e["data"]["n"] for e in events if e["type"] == "step_taken"] == list(range(30))


async def test_a_short_request_does_not_overtake_a_long_one(client: Any) -> None:
    for number in range(6):
        text = "" if number % 2 else "a word or two " * 10_000
        request = {"type": "step_taken", "data": {"n": number, "text": text}}
        await client.send(
            {"jsonrpc": "2.0", "id": number, "method": "event.append", "params": request}
        )
    for _ in range(6):
        assert "result" in await client.line()
    events = (await client.call("event.list"))["result"]["events"]
    assert [e["data"]["n"] for e in events if e["type"] == "step_taken"] == list(range(6))


async def test_the_33rd_request_in_flight_waits_for_room(
    serve: Callable[..., Any], holding: Holding
) -> None:
    async with serve(holding.methods) as running:
        client, other = await running.connect(), await running.connect()
        await hold(client, 1, 32)
        await client.send(PING | {"id": 33})
        await wait_all_tasks_blocked(0.02)
        assert holding.waiting == 32
        assert (await other.call("ping"))["result"] == "pong"
        with trio.move_on_after(0.02) as patience:
            await client.line()
        assert patience.cancelled_caught, "the 33rd request was answered"
        holding.go.set()
        assert {(await client.line())["id"] for _ in range(33)} == set(range(1, 34))


async def test_a_client_over_the_limit_of_connections_waits_and_is_served(
    serve: Callable[..., Any], holding: Holding
) -> None:
    async with serve(holding.methods, connections=2) as running:
        first, second = await running.connect(), await running.connect()
        assert (await first.call("ping"))["result"] == "pong"
        assert (await second.call("ping"))["result"] == "pong"
        third = await running.connect()
        await third.send(PING | {"id": 3})
        with trio.move_on_after(0.05) as patience:
            await third.line()
        assert patience.cancelled_caught, "the third client was served beside two others"
        await first.stream.aclose()
        assert (await third.line())["result"] == "pong"
        assert (await second.call("ping"))["result"] == "pong"


async def test_what_is_in_flight_is_answered_after_the_client_stopped_sending(
    serve: Callable[..., Any], holding: Holding
) -> None:
    async with serve(holding.methods) as running:
        client = await running.connect()
        await hold(client, 1, 1)
        await client.stream.send_eof()
        await wait_all_tasks_blocked(0.02)
        holding.go.set()
        assert (await client.line())["result"] == "held"
        assert await client.line() is None


async def test_a_broken_limit_leaves_requests_in_flight_ten_seconds(
    serve: Callable[..., Any], holding: Holding, autojump_clock: Any
) -> None:
    async with serve(holding.methods) as running:
        client = await running.connect()
        begun = trio.current_time()
        await hold(client, 1, 1)
        await client.send(b"[" * 1_000 + b"\n")
        assert (await client.line())["error"]["data"]["limit"] == "depth"
        assert await client.line() is None
        assert trio.current_time() - begun == pytest.approx(10, abs=0.5)
        assert holding.waiting == 0


async def test_half_a_line_at_the_end_is_dropped(client: Any) -> None:
    await client.send(b'{"jsonrpc":"2.0","id":1,"method":"system.hel')
    await client.stream.send_eof()
    assert await client.line() is None


async def test_the_work_of_a_client_that_vanished_is_dropped(
    serve: Callable[..., Any], holding: Holding, autojump_clock: Any
) -> None:
    async with serve(holding.methods) as running:
        client = await running.connect()
        await hold(client, 1, 3)
        await wait_all_tasks_blocked()
        assert holding.waiting == 3
        await client.stream.aclose()
        await trio.sleep(0.5)
        assert holding.waiting == 0


async def test_a_client_that_vanished_with_a_full_pipeline_is_noticed(
    serve: Callable[..., Any], holding: Holding, autojump_clock: Any
) -> None:
    async with serve(holding.methods, requests_in_flight=2) as running:
        client = await running.connect()
        await hold(client, 1, 5)
        await wait_all_tasks_blocked()
        assert holding.waiting == 2
        await client.stream.aclose()
        await trio.sleep(0.5)
        assert holding.waiting == 0


async def test_a_wait_for_a_lock_ends_with_the_connection(
    running: Any, client: Any, autojump_clock: Any
) -> None:
    mission = (await client.call("mission.create", {"title": "t"}))["result"]["id"]
    lock = {"file": "/tmp/x", "mission_id": mission}
    held = await client.call("lock.acquire", lock | {"agent_id": "first"})
    waiter, last = await running.connect(), await running.connect()
    await waiter.send(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "lock.acquire",
            "params": lock | {"agent_id": "vanishing", "wait_ms": 600_000},
        }
    )
    await wait_all_tasks_blocked()
    await waiter.stream.aclose()
    await trio.sleep(0.5)
    lock_id = held["result"]["id"]
    await client.call("lock.release", {"lock_id": lock_id, "agent_id": "first"})
    reply = await last.call("lock.acquire", lock | {"agent_id": "second"})
    assert reply["result"]["held_by"] == "second"


async def test_a_notification_is_carried_out_though_its_sender_left_at_once(
    running: Any, client: Any
) -> None:
    sender = await running.connect()
    note = {"jsonrpc": "2.0", "method": "event.append", "params": {"type": "left_behind"}}
    await sender.send(note)
    await sender.stream.aclose()
    await wait_all_tasks_blocked(0.02)
    events = (await client.call("event.list", {"type": "left_behind"}))["result"]["events"]
    assert len(events) == 1


async def test_a_client_that_does_not_take_its_reply_is_closed_after_ten_seconds(
    serve: Callable[..., Any], autojump_clock: Any
) -> None:
    async def much(context: Any, /) -> Any:
        return Success("x" * 5_000_000)

    async def ping(context: Any, /) -> Any:
        return Success("pong")

    async with serve({"much": much, "ping": ping}) as running:
        lazy, other = await running.connect(), await running.connect()
        begun = trio.current_time()
        await lazy.send({"jsonrpc": "2.0", "id": 1, "method": "much"})
        await wait_all_tasks_blocked()
        assert (await other.call("ping"))["result"] == "pong"
        await trio.sleep(11)
        received = 0
        while data := await lazy.stream.receive_some(1_000_000):
            received += len(data)
        assert received < 5_000_000
        assert trio.current_time() - begun == pytest.approx(11, abs=0.5)
        assert running.engine.traffic.cut_off == 1
        assert (await other.call("ping"))["result"] == "pong"


async def test_who_lets_most_replies_wait_is_closed_when_they_are_too_much_together(
    serve: Callable[..., Any], autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "UNSENT_BYTES", 2_000_000)

    async def much(context: Any, /, size: int) -> Any:
        return Success("x" * size)

    def ask(size: int) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": "much", "params": {"size": size}}

    async with serve({"much": much}) as running:
        greedy, lazy, alone = [await running.connect() for _ in range(3)]
        await lazy.send(ask(500_000))
        for _ in range(7):
            await greedy.send(ask(600_000))
        await trio.sleep(1)
        with pytest.raises(AssertionError, match="half a line"):
            await greedy.line()
        assert len((await lazy.line())["result"]) == 500_000
        await alone.send(ask(3_000_000))
        assert len((await alone.line())["result"]) == 3_000_000


async def test_a_large_reply_arrives_whole(serve: Callable[..., Any]) -> None:
    async def much(context: Any, /) -> Any:
        return Success("x" * 5_000_000)

    async with serve({"much": much}) as running:
        client = await running.connect()
        assert len((await client.call("much"))["result"]) == 5_000_000


async def test_draining_closes_idle_connections_and_finishes_the_others(
    serve: Callable[..., Any], holding: Holding
) -> None:
    async with serve(holding.methods) as running:
        idle, busy = await running.connect(), await running.connect()
        assert (await idle.call("ping"))["result"] == "pong"
        await hold(busy, 1, 1)
        await wait_all_tasks_blocked(0.02)
        running.server.drain()
        assert await idle.line() is None
        refused = await busy.call("system.hello", identity=2)
        assert refused["error"]["code"] == -32008
        assert refused["error"]["data"]["kind"] == "unavailable"
        holding.go.set()
        assert (await busy.line())["result"] == "held"
        assert await busy.line() is None


async def test_a_connection_that_comes_while_draining_is_closed(serve: Callable[..., Any]) -> None:
    async with serve() as running:
        running.server.drain()
        client = await running.connect()
        assert await client.line() is None


async def test_a_crash_in_one_connection_ends_only_that_one(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetd.server import connection

    async with serve() as running:
        healthy, doomed = await running.connect(), await running.connect()
        assert "result" in await healthy.call("system.health")
        read = connection.rpc.parse

        def fail(line: bytes, **limits: int) -> Any:
            if b"doom" in line:
                raise RuntimeError("a bug")
            return read(line, **limits)

        monkeypatch.setattr(connection.rpc, "parse", fail)
        await doomed.send(b"doom\n")
        assert await doomed.line() is None
        assert "result" in await healthy.call("system.health")
    assert "A connection failed and was closed" in caplog.text


async def test_descriptors_used_up_only_delay_new_clients(
    running: Any, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        late = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            try:
                fillers.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        late.connect(str(running.path))
        late.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "system.hello"}).encode())
        late.sendall(b"\n")
        assert "result" in await client.call("system.health")
        await trio.sleep(0.05)
        assert "No connection can be accepted now" in caplog.text
    finally:
        for filler in fillers:
            os.close(filler)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with late:
        answer = await trio.to_thread.run_sync(late.recv, 65_536)
    assert json.loads(answer)["result"]["name"] == "fleetd"


async def test_the_peer_is_known_to_the_kernel() -> None:
    from fleetd.server.connection import is_gone
    from fleetd.server.server import caller_of

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        caller = caller_of(ours)
        assert (caller.kind, caller.uid, caller.pid) == ("client", os.getuid(), os.getpid())
        assert not is_gone(ours)
        theirs.shutdown(socket.SHUT_WR)
        assert not is_gone(ours)
        theirs.close()
        assert is_gone(ours)


async def test_who_rests_longest_gives_way_when_all_connections_are_taken(
    serve: Callable[..., Any], holding: Holding, autojump_clock: Any
) -> None:
    async with serve(holding.methods, connections=3) as running:
        first, second, busy = [await running.connect() for _ in range(3)]
        await hold(busy, 1, 1)
        for client in (second, first):
            assert (await client.call("ping"))["result"] == "pong"
            await trio.sleep(1)
        newcomer = await running.connect()
        assert (await newcomer.call("ping"))["result"] == "pong"
        assert await second.line() is None
        assert (await first.call("ping"))["result"] == "pong"
        holding.go.set()
        assert (await busy.line())["result"] == "held"


@pytest.mark.parametrize("begun", [b"", b'{"jsonrpc"', HOOK_BEGINS + b"x" * 2_000])
async def test_who_was_never_heard_gives_way_first_also_with_half_a_line(
    serve: Callable[..., Any], holding: Holding, autojump_clock: Any, begun: bytes
) -> None:
    async with serve(holding.methods, connections=3, line_bytes=1_024) as running:
        heard = await running.connect()
        assert (await heard.call("ping"))["result"] == "pong"
        await trio.sleep(3_600)
        silent = [await running.connect() for _ in range(2)]
        for client in silent:
            await client.send(begun or b"\n")
        for _ in range(4):
            newcomer = await running.connect()
            assert (await newcomer.call("ping"))["result"] == "pong"
            await newcomer.stream.aclose()
        await trio.sleep(60)
        assert await silent[0].line() is None
        assert (await heard.call("ping"))["result"] == "pong"


async def test_subscribers_keep_their_connections_though_they_say_nothing(
    serve: Callable[..., Any], holding: Holding, autojump_clock: Any
) -> None:
    async with serve(holding.methods, connections=2) as running:
        subscriber, idle = [await running.connect() for _ in range(2)]
        await subscriber.call("event.subscribe")
        assert (await idle.call("ping"))["result"] == "pong"
        await trio.sleep(3_600)
        newcomer = await running.connect()
        await newcomer.call("event.append", {"type": "still_there"})
        assert (await subscriber.line())["params"]["event"]["type"] == "still_there"
        assert await idle.line() is None


async def test_nobody_gives_way_to_nobody(serve: Callable[..., Any], autojump_clock: Any) -> None:
    async with serve(connections=2) as running:
        clients = [await running.connect() for _ in range(2)]
        for _ in range(2):
            for client in clients:
                assert "result" in await client.call("system.health")
            await trio.sleep(3_600)


async def test_nothing_more_is_read_for_a_client_that_takes_nothing(
    running: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await client.call("event.append", {"type": "large_one", "data": {"text": "x" * 300_000}})
    perform, performed = running.engine.handle, []

    async def counted(request: Any, caller: Any) -> Any:
        performed.append(request.method)
        return await perform(request, caller)

    monkeypatch.setattr(running.engine, "handle", counted)
    lazy = await running.connect()
    for number in range(20):
        params = {"type": "large_one"}
        await lazy.send({"jsonrpc": "2.0", "id": number, "method": "event.list", "params": params})
    await wait_all_tasks_blocked(0.05)
    assert (await client.call("system.health"))["result"]["ok"]
    assert performed.count("event.list") == 1
    assert [(await lazy.line())["id"] for _ in range(20)] == list(range(20))
