"""How far a long request is, told while it is under way: to who asks, and at nobody's expense."""

import json
import socket
from typing import Any

import pytest
import trio

from fleetd.engine.services import verify
from fleetd.host import progress
from fleetd.protocol.records import Finding
from fleetd.server.lines import LineWriter, SendBudget
from fleetd.server.progress import report_to_client

from .conftest import AsyncLineClient, RunningServer

RECORDS = 12
VERIFY = "checkpoint.verify"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the check of each checkpoint take so long that it can be told of."""

    async def check(engine: Any, noun: str, record_id: str, *rest: Any, **options: Any) -> Finding:
        await trio.sleep(0.04)
        return Finding(check=noun, ok=True, subject=record_id, detail="both copies are intact")

    monkeypatch.setattr(verify, "check", check)


@pytest.fixture
async def mission(client: AsyncLineClient) -> str:
    mission: str = (await client.call("mission.create", {"title": "m"}))["result"]["id"]
    await client.call("mission.start", {"mission_id": mission})
    for _ in range(RECORDS):
        await client.call("checkpoint.create", {"mission_id": mission, "wait_for_backup": False})
    return mission


async def until_reply(client: AsyncLineClient) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the params of the notifications that come before a reply, and the reply."""
    told = []
    while "id" not in (line := await client.line()):
        assert line["method"] == "progress"
        told.append(line["params"])
    return told, line


@pytest.mark.parametrize("named", [True, False])
async def test_who_asks_is_told_of_growing_numbers_and_of_none_after_the_reply(
    slow: None, client: AsyncLineClient, mission: str, named: bool
) -> None:
    params: dict[str, Any] = {"progress_token": "mine"}
    if named:
        params["mission_id"] = mission
    await client.send({"jsonrpc": "2.0", "id": 5, "method": VERIFY, "params": params})
    told, reply = await until_reply(client)

    assert reply["id"] == 5
    assert reply["result"]["ok"] is True
    assert len(told) >= 2
    done = [each["done"] for each in told]
    assert done == sorted(set(done))
    assert done[-1] <= RECORDS
    assert {(each["token"], each["what"], each["total"]) for each in told} == {
        ("mine", "checkpoints", RECORDS)
    }
    await trio.sleep(0.15)
    assert (await client.call("system.hello", identity=6))["id"] == 6


async def test_who_does_not_ask_is_told_nothing(
    slow: None, client: AsyncLineClient, mission: str
) -> None:
    assert "result" in await client.call(VERIFY, {"mission_id": mission})


async def test_two_requests_of_a_connection_are_told_of_by_their_tokens(
    slow: None, client: AsyncLineClient, mission: str
) -> None:
    for token in ("a", "b"):
        params = {"mission_id": mission, "progress_token": token}
        await client.send({"jsonrpc": "2.0", "id": token, "method": VERIFY, "params": params})
    told, first = await until_reply(client)
    more, second = await until_reply(client)

    assert {each["token"] for each in told} == {"a", "b"}
    assert {first["id"], second["id"]} == {"a", "b"}
    assert first["id"] not in {each["token"] for each in more}


async def test_a_request_that_fails_is_told_of_until_then(
    monkeypatch: pytest.MonkeyPatch, client: AsyncLineClient, mission: str
) -> None:
    async def check(*_: Any, **options: Any) -> Finding:
        await trio.sleep(0.12)
        progress.advance()
        tracker = progress._tracker.get()
        if tracker is not None and tracker.count.done > 2:
            raise ZeroDivisionError
        return Finding(check="checkpoint", ok=True, detail="")

    monkeypatch.setattr(verify, "check", check)
    params = {"mission_id": mission, "progress_token": "t"}
    await client.send({"jsonrpc": "2.0", "id": 1, "method": VERIFY, "params": params})
    told, reply = await until_reply(client)

    assert told
    assert reply["error"]["data"]["kind"] == "internal"


async def test_the_token_says_nothing_about_the_request(
    client: AsyncLineClient, mission: str
) -> None:
    params = {"mission_id": mission, "idempotency_key": "once", "keep_per_mission": 1}
    params |= {"older_than_days": 0}
    first = await client.call("checkpoint.prune", params)
    again = await client.call("checkpoint.prune", params | {"progress_token": "t"})

    assert first["result"]["deleted"] > 0
    assert again["result"] == first["result"]


@pytest.mark.parametrize("token", ["", "x" * 65, 5])
async def test_a_token_is_a_short_text(client: AsyncLineClient, token: Any) -> None:
    error = await client.error(VERIFY, {"progress_token": token})
    assert (error["code"], error["data"]["field"]) == (-32602, "progress_token")


async def test_a_client_that_does_not_read_holds_up_nobody(
    slow: None, running: RunningServer, mission: str
) -> None:
    deaf = await running.connect()
    deaf.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for n in range(30):
        await deaf.send({"jsonrpc": "2.0", "id": n, "method": "rpc.discover"})
    params = {"mission_id": mission, "progress_token": "t"}
    await deaf.send({"jsonrpc": "2.0", "id": "verify", "method": VERIFY, "params": params})
    other = await running.connect()
    told, reply = [], None
    await other.send({"jsonrpc": "2.0", "id": 1, "method": VERIFY, "params": params})
    told, reply = await until_reply(other)
    assert told
    assert reply["result"]["ok"]

    # What it finds when it reads at last are whole lines, each reply among them once.
    ids = []
    while len(ids) < 31:
        line = await deaf.line()
        if "id" in line:
            ids.append(line["id"])
    assert sorted(map(str, ids)) == sorted(["verify", *map(str, range(30))])


async def test_what_finds_no_room_is_left_out_and_lines_stay_whole() -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))

    def never() -> None:
        raise AssertionError

    writer = LineWriter(stream, seconds=5, unsent=SendBudget(), too_slow=never, gone=never)
    for n in range(10_000):
        writer.offer(b'{"n":%d,"text":"%s"}\n' % (n, b"x" * 500))
    assert writer.unsent == 0
    received = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.send, b'{"n":"reply"}\n')
        reader = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        while b"reply" not in received:
            received += await reader.receive_some(65_536)
    numbers = [json.loads(line)["n"] for line in received.splitlines()]
    assert numbers[-1] == "reply"
    assert numbers[:-1] == list(range(len(numbers) - 1))
    assert 1 < len(numbers) < 10_000
    await stream.aclose()
    await reader.aclose()


async def test_it_is_told_ten_times_a_second_at_most(autojump_clock: trio.testing.MockClock):
    lines: list[bytes] = []
    async with trio.open_nursery() as nursery:
        with report_to_client("t", lines.append, nursery):
            progress.at("rows", total=None)
            for _ in range(1_000):
                progress.advance()
                await trio.sleep(0.001)
        await trio.sleep(1)

    told = [json.loads(line)["params"] for line in lines]
    assert 8 <= len(told) <= 10
    assert {each["total"] for each in told} == {None}


async def test_what_comes_to_light_on_the_way_is_counted_in() -> None:
    with progress.tracked() as found:
        progress.at("files", total=1)
        progress.advance(3)
        assert found.count == ("files", 3, 3)
        progress.at("database")
        assert found.count == ("database", 0, None)
    progress.advance()
    assert found.count == ("database", 0, None)
