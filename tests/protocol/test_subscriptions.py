"""Subscriptions: order, no gaps, resume by position, and their end."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fleetd.domain.events import streams
from fleetd.server.rpc import Success


async def append(client: Any, kind: str = "step_taken", **data: Any) -> int:
    reply = await client.call("event.append", {"type": kind, "data": data})
    return int(reply["result"]["seq"])


async def subscribe(client: Any, **params: Any) -> dict[str, Any]:
    reply = await client.call("event.subscribe", params)
    assert "result" in reply, reply
    return dict(reply["result"])


async def next_event(client: Any, subscription: dict[str, Any]) -> dict[str, Any]:
    line = await client.line()
    assert line.keys() == {"jsonrpc", "method", "params"}
    assert line["method"] == "event"
    assert line["params"]["subscription_id"] == subscription["subscription_id"]
    return dict(line["params"]["event"])


async def test_the_reply_comes_before_the_first_notification(running: Any, client: Any) -> None:
    first = await append(client)
    for _ in range(20):
        other = await running.connect()
        subscription = await subscribe(other, since=0)
        assert subscription["position"] == 0
        assert (await next_event(other, subscription))["seq"] <= first


async def test_nothing_is_notified_before_the_batch_that_subscribes_is_answered(
    serve: Callable[..., Any],
) -> None:
    go = trio.Event()

    async def hold(context: Any, /) -> Any:
        await go.wait()
        return Success("held")

    async with serve({"hold": hold}) as running:
        client, other = await running.connect(), await running.connect()
        await client.send(
            [
                {"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": {"since": 0}},
                {"jsonrpc": "2.0", "id": 2, "method": "hold"},
            ]
        )
        await append(other)
        await wait_all_tasks_blocked(0.02)
        go.set()
        subscribed, held = await client.line()
        assert held["result"] == "held"
        assert (await next_event(client, subscribed["result"]))["type"] == "step_taken"


async def test_events_arrive_in_order_and_without_gaps(running: Any, client: Any) -> None:
    subscriber = await running.connect()
    subscription = await subscribe(subscriber)
    async with trio.open_nursery() as nursery:
        for writer in range(4):
            connection = await running.connect()

            async def write(connection: Any = connection, writer: int = writer) -> None:
                for number in range(50):
                    await append(connection, writer=writer, number=number)

            nursery.start_soon(write)
        seen = [await next_event(subscriber, subscription) for _ in range(200)]
    start = subscription["position"]
    assert [event["seq"] for event in seen] == list(range(start + 1, start + 201))
    for writer in range(4):
        numbers = [e["data"]["number"] for e in seen if e["data"]["writer"] == writer]
        assert numbers == list(range(50))


async def test_without_since_it_starts_at_the_end(client: Any, running: Any) -> None:
    before = await append(client)
    subscriber = await running.connect()
    subscription = await subscribe(subscriber)
    assert subscription["position"] == before
    after = await append(client)
    assert (await next_event(subscriber, subscription))["seq"] == after


async def test_a_subscriber_resumes_where_it_was(client: Any, running: Any) -> None:
    subscriber = await running.connect()
    subscription = await subscribe(subscriber)
    await append(client, n=1)
    last = (await next_event(subscriber, subscription))["seq"]
    await subscriber.stream.aclose()
    missed = [await append(client, n=n) for n in (2, 3)]
    again = await running.connect()
    resumed = await subscribe(again, since=last, epoch=subscription["epoch"])
    assert [(await next_event(again, resumed))["seq"] for _ in missed] == missed


async def test_another_epoch_is_refused(client: Any) -> None:
    error = await client.error("event.subscribe", {"since": 0, "epoch": "of another store"})
    assert error["data"]["kind"] == "incompatible"


async def test_only_the_events_of_a_wanted_agent_arrive(client: Any, running: Any) -> None:
    for agent in ("a", "b"):
        await client.call("agent.register", {"agent_id": agent, "role": "specialist"})
    subscriber = await running.connect()
    subscription = await subscribe(subscriber, agent_id="b", since=0)
    for agent in ("a", "b"):
        await client.call("event.append", {"type": "note_taken", "agent_id": agent})
    told = [await next_event(subscriber, subscription) for _ in range(2)]
    assert [(each["type"], each["agent_id"]) for each in told] == [
        ("agent_registered", "b"),
        ("note_taken", "b"),
    ]


async def test_only_wanted_types_arrive(client: Any, running: Any) -> None:
    subscriber = await running.connect()
    subscription = await subscribe(subscriber, types=["wanted_thing"])
    for _ in range(100):
        await append(client, "other_thing")
    wanted = await append(client, "wanted_thing")
    assert (await next_event(subscriber, subscription))["seq"] == wanted


@pytest.mark.parametrize("shortened", [False, True])
async def test_only_events_of_the_wanted_mission_arrive(
    client: Any, running: Any, shortened: bool
) -> None:
    mission = (await client.call("mission.create", {"title": "t"}))["result"]["id"]
    subscriber = await running.connect()
    wanted = mission[:-2] if shortened else mission
    subscription = await subscribe(subscriber, mission_id=wanted)
    await append(client)
    await client.call("mission.start", {"mission_id": mission})
    event = await next_event(subscriber, subscription)
    assert (event["type"], event["mission_id"]) == ("mission_started", mission)


async def test_two_subscriptions_on_one_connection_are_told_apart(client: Any) -> None:
    first = await subscribe(client, types=["first_thing"])
    second = await subscribe(client, types=["second_thing"])
    assert first["subscription_id"] != second["subscription_id"]
    note = {"jsonrpc": "2.0", "method": "event.append"}
    await client.send(note | {"params": {"type": "second_thing"}})
    assert (await next_event(client, second))["type"] == "second_thing"
    await client.send(note | {"params": {"type": "first_thing"}})
    assert (await next_event(client, first))["type"] == "first_thing"


async def test_after_unsubscribing_nothing_comes(client: Any) -> None:
    subscription = await subscribe(client)
    chosen = {"subscription_id": subscription["subscription_id"]}
    assert (await client.call("event.unsubscribe", chosen))["result"] == {"unsubscribed": True}
    await append(client)  # its reply is the next line, not a notification
    assert (await client.error("event.unsubscribe", chosen))["data"]["kind"] == "not_found"


async def test_the_subscription_of_another_connection_cannot_be_ended(
    client: Any, running: Any
) -> None:
    subscription = await subscribe(client)
    other = await running.connect()
    chosen = {"subscription_id": subscription["subscription_id"]}
    error = await other.error("event.unsubscribe", chosen)
    assert error["data"]["kind"] == "not_found"
    seq = await append(other)
    assert (await next_event(client, subscription))["seq"] == seq


async def test_subscribing_and_unsubscribing_in_one_batch_leaves_nothing(client: Any) -> None:
    subscription = await subscribe(client)
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": {"since": 0}},
        {"jsonrpc": "2.0", "id": 2, "method": "event.unsubscribe", "params": {
            "subscription_id": subscription["subscription_id"]}},
    ]  # fmt: skip
    await client.send(batch)
    replies = await client.line()
    assert [reply["id"] for reply in replies] == [1, 2]
    seq = await append_and_read_past(client)
    assert seq > 0


async def append_and_read_past(client: Any) -> int:
    """Append an event on a connection with one subscription; return the notified ``seq``."""
    await client.send({"jsonrpc": "2.0", "id": 9, "method": "event.append", "params": ["a_thing"]})
    lines = [await client.line(), await client.line()]
    (notified,) = [line["params"]["event"]["seq"] for line in lines if "params" in line]
    return int(notified)


async def test_the_number_of_subscriptions_is_limited(serve: Callable[..., Any]) -> None:
    async with serve(requests_in_flight=2) as running:
        client = await running.connect()
        await subscribe(client)
        last = await subscribe(client)
        error = await client.error("event.subscribe", {})
        assert (error["data"]["kind"], error["data"]["allowed"]) == ("limit", 2)
        chosen = {"subscription_id": last["subscription_id"]}
        await client.call("event.unsubscribe", chosen)
        await subscribe(client)


async def test_a_subscription_ends_when_its_client_stops_sending(client: Any) -> None:
    await subscribe(client)
    await client.stream.send_eof()
    assert await client.line() is None


async def test_a_subscriber_that_never_reads_is_closed_and_hinders_nobody(
    client: Any, running: Any, autojump_clock: Any
) -> None:
    lazy, keen = await running.connect(), await running.connect()
    lazy_subscription = await subscribe(lazy)
    subscription = await subscribe(keen)
    begun = trio.current_time()
    for number in range(30):
        await append(client, number=number, text="x" * 30_000)
        assert (await next_event(keen, subscription))["data"]["number"] == number
    await trio.sleep(11)
    received = b""
    while data := await lazy.stream.receive_some(1_000_000):
        received += data
    assert received.count(b"\n") < 30
    assert trio.current_time() - begun == pytest.approx(11, abs=1)
    # It goes on where it was, and has lost nothing.
    again = await running.connect()
    resumed = await subscribe(again, since=lazy_subscription["position"])
    numbers = [(await next_event(again, resumed))["data"]["number"] for _ in range(30)]
    assert numbers == list(range(30))


async def test_a_log_that_cannot_be_read_closes_the_connection(
    client: Any, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetd.protocol.errors import Storage

    await subscribe(client)
    await wait_all_tasks_blocked()

    def fail(*_: Any) -> Any:
        raise Storage("The disk cannot be read.")

    monkeypatch.setattr(streams, "tail", fail)
    other = await running.connect()
    await append(other)
    assert await client.line() is None


async def test_the_limit_of_subscriptions_holds_for_pipelined_requests(
    serve: Callable[..., Any],
) -> None:
    """Each takes its place before it waits for the store."""
    async with serve(requests_in_flight=4) as running:
        client, engine = await running.connect(), running.engine
        for _ in range(3):
            await subscribe(client, since=0)
        arrived, go, read = [], trio.Event(), engine.store.read

        async def held(rule: Any, kind: Any = None) -> Any:
            arrived.append(rule)
            await go.wait()
            return await read(rule, kind)

        engine.store.read = held
        for number in range(4):
            params = {"since": 0}
            request = {"id": number, "method": "event.subscribe", "params": params}
            await client.send({"jsonrpc": "2.0", **request})
        await wait_all_tasks_blocked(0.02)
        assert arrived
        go.set()
        replies = [await client.line() for _ in range(4)]
        granted = [reply for reply in replies if "result" in reply]
        refused = [reply["error"]["data"]["limit"] for reply in replies if "error" in reply]
        assert (len(arrived), len(granted)) == (1, 1)
        assert refused == ["subscriptions"] * 3
        identity = granted[0]["result"]["subscription_id"]
        await client.call("event.unsubscribe", {"subscription_id": identity}, "end")
        assert "result" in await client.call("event.subscribe", {"since": 0}), "a place is free"
