"""The client for trio: many calls on one connection, each its own."""

import json
import socket
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from fleetctl.client import AsyncFleet, ConnectionLost, Link, StoreReplaced, TooSlow, subscription
from fleetd.protocol.errors import (
    Incompatible,
    LimitExceeded,
    LockConflict,
    NotFound,
    Unavailable,
)
from fleetd.protocol.records import Event, Mission
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import CursorGet, EventAppend, EventList
from fleetd.protocol.requests.lock import LockAcquire, LockRelease
from fleetd.protocol.requests.mission import MissionCreate, MissionGet, MissionList
from fleetd.protocol.requests.system import SystemHello
from tests.support.processes import Daemon

PATIENCE_S = 60.0
MANY = 150


async def test_many_calls_are_in_flight_and_each_gets_its_own_answer(daemon):
    answered: dict[str, Mission] = {}

    async def create(fleet: AsyncFleet, title: str) -> None:
        answered[title] = await fleet.call(MissionCreate(title=title))

    async with AsyncFleet(daemon.socket) as fleet, trio.open_nursery() as nursery:
        for n in range(MANY):
            nursery.start_soon(create, fleet, f"m{n}")

    assert len(answered) == MANY
    assert all(mission.title == title for title, mission in answered.items())


async def test_an_error_is_what_it_was_and_stands_alone(daemon):
    with pytest.raises(NotFound):
        async with AsyncFleet() as fleet:
            await fleet.call(MissionGet("msn-00000000"))


async def test_a_call_that_is_cancelled_leaves_the_others_whole(daemon, home):
    async with AsyncFleet(daemon.socket) as fleet:
        for agent in ("a", "b"):
            await fleet.call(AgentRegister(agent, role="specialist"))
        file = str(home / "project" / "f.py")
        held = await fleet.call(LockAcquire("a", file))
        async with trio.open_nursery() as nursery:
            waiting = partial(fleet.call, LockAcquire("b", file, wait_ms=60_000))
            nursery.start_soon(waiting)
            for _ in range(10):
                await fleet.call(SystemHello())
            nursery.cancel_scope.cancel()

        assert (await fleet.call(LockRelease(held.id, "a"))).id == held.id


async def test_calls_outlive_a_daemon_that_is_killed_and_are_applied_once(daemon):
    appended: list[int] = []

    async def append(fleet: AsyncFleet, n: int) -> None:
        for part in range(20):
            event = EventAppend("note_taken", data={"n": 20 * n + part})
            appended.append((await fleet.call(event)).seq)

    async with AsyncFleet(daemon.socket, restart_s=PATIENCE_S) as fleet:
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(append, fleet, n)
            for kills in range(2):
                while len(appended) < (kills + 1) * 100:  # noqa: ASYNC110
                    await trio.sleep(0.001)
                await trio.to_thread.run_sync(daemon.kill)
                await trio.to_thread.run_sync(daemon.start)
        found = await fleet.call(EventList(type="note_taken", limit=1_000))

    assert sorted(event.data["n"] for event in found.events) == list(range(400))
    assert sorted(appended) == [event.seq for event in found.events]


async def test_events_are_followed_over_restarts_of_the_daemon(daemon, monkeypatch):
    # A restart may be quicker than an absence that is worth telling.
    monkeypatch.setattr(subscription, "LINK_GRACE_S", 0.0)
    links: list[Link] = []
    seen: list[int] = []
    away = trio.Event()

    def tell(link: Link) -> None:
        links.append(link)
        if link.state == "away":
            away.set()

    async def append(fleet: AsyncFleet) -> None:
        for n in range(2 * MANY):
            await fleet.call(EventAppend("note_taken", data={"n": n}))
            if n == MANY:
                await trio.to_thread.run_sync(daemon.kill)
                await away.wait()
                await trio.to_thread.run_sync(daemon.start)

    async with (
        AsyncFleet(daemon.socket) as fleet,
        trio.open_nursery() as nursery,
        fleet.events(types=["note_taken"], on_link=tell) as events,
    ):
        nursery.start_soon(append, fleet)
        while len(seen) < 2 * MANY:
            # Whoever is cancelled while he waits may ask again and has missed nothing.
            with trio.move_on_after(0.002):
                seen.append((await anext(events)).data["n"])

    assert seen == list(range(2 * MANY))
    assert [link.state for link in links] == ["connected", "away", "back"]
    assert events.position > 0


async def test_a_consumer_goes_on_where_it_was(daemon):
    async with AsyncFleet(daemon.socket) as fleet:
        seqs = [(await fleet.call(EventAppend("note_taken", data={}))).seq for _ in range(2)]
        for seq in seqs:
            async with fleet.events(consumer="tool", types=["note_taken"]) as events:
                event = await anext(events)
                assert isinstance(event, Event)
                assert event.seq == seq
        assert (await fleet.call(CursorGet("tool", "fleet"))).position == seqs[-1]


async def test_an_epoch_of_another_store_is_refused(daemon):
    async with AsyncFleet(daemon.socket) as fleet:
        with pytest.raises(StoreReplaced):
            async with fleet.events(since=0, epoch="another"):
                pass


async def test_where_nobody_listens_nobody_waits(home):
    with pytest.raises(Unavailable, match="not running"):
        async with AsyncFleet():
            pass


async def test_a_client_that_is_not_open_says_so(daemon):
    fleet = AsyncFleet(daemon.socket)
    with pytest.raises(Unavailable, match="not open"):
        await fleet.call(SystemHello())
    async with fleet:
        await fleet.call(SystemHello())
    with pytest.raises(Unavailable, match="not open"):
        await fleet.call(SystemHello())


async def test_a_daemon_that_stays_away_is_said_to_have_gone(daemon: Daemon):
    async with AsyncFleet(daemon.socket, restart_s=0.2) as fleet:
        async with fleet.events(away_s=0.2) as events:
            daemon.kill()
            with pytest.raises(ConnectionLost):
                await fleet.call(MissionCreate(title="Lost"))
            with pytest.raises(ConnectionLost):
                await anext(events)
        with pytest.raises(Unavailable, match="not running"):
            await fleet.call(MissionList())
        with pytest.raises(Unavailable, match="not running"):
            await fleet.call_raw("mission.list")


class Script:
    """A server of one connection that says what a test tells it to."""

    def __init__(self, path: Path) -> None:
        self._listener = trio.socket.socket(socket.AF_UNIX)
        self._path = path

    async def __aenter__(self) -> "Script":
        await self._listener.bind(str(self._path))
        self._listener.listen()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._listener.close()

    async def serve(self, *answers: str, asked: int) -> None:
        """Read so many calls and answer them, then close."""
        connection, _ = await self._listener.accept()
        with connection:
            lines = b""
            while lines.count(b"\n") < asked:
                lines += await connection.recv(4096)
            self.asked = [json.loads(line) for line in lines.splitlines()]
            for answer in answers:
                await connection.send(answer.encode() + b"\n")
            if answers:
                await connection.recv(1)  # until the client leaves


async def test_answers_come_in_any_order_and_those_to_nobody_are_passed_over(home):
    path = home / "run" / "d.sock"
    results = []

    async def call(fleet: AsyncFleet, method: str) -> None:
        results.append((method, await fleet.call_raw(method)))

    async with Script(path) as server, trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                server.serve,
                '{"id":99,"result":99}',
                '{"method":"event","params":{}}',
                '{"id":2,"result":"two"}',
                '{"id":1,"result":"one"}',
                asked=2,
            )
        )
        async with AsyncFleet(path) as fleet, trio.open_nursery() as calls:
            calls.start_soon(call, fleet, "a.a")
            await trio.testing.wait_all_tasks_blocked()
            calls.start_soon(call, fleet, "b.b")

    assert sorted(results) == [("a.a", "one"), ("b.b", "two")]


async def test_garbage_ends_every_call_that_waits(home):
    path = home / "run" / "d.sock"

    async def call(fleet: AsyncFleet) -> None:
        with pytest.raises(Incompatible, match="cannot read the reply"):
            await fleet.call(MissionCreate(title="x"))

    async with Script(path) as server, trio.open_nursery() as nursery:
        nursery.start_soon(partial(server.serve, "garbage", asked=2))
        async with AsyncFleet(path) as fleet, trio.open_nursery() as calls:
            calls.start_soon(call, fleet)
            calls.start_soon(call, fleet)


async def test_an_error_without_an_id_belongs_to_the_longest_call(home):
    path = home / "run" / "d.sock"
    done = []

    async def short(fleet: AsyncFleet) -> None:
        done.append(await fleet.call_raw("a.a"))

    async def long(fleet: AsyncFleet) -> None:
        with pytest.raises(LimitExceeded, match="Too long"):
            await fleet.call_raw("b.b", {"text": "x" * 1_000})

    async with Script(path) as server, trio.open_nursery() as nursery:
        error = '{"id":null,"error":{"code":-32007,"message":"Too long."}}'
        nursery.start_soon(partial(server.serve, error, '{"id":1,"result":1}', asked=2))
        async with AsyncFleet(path) as fleet, trio.open_nursery() as calls:
            calls.start_soon(short, fleet)
            await trio.testing.wait_all_tasks_blocked()
            calls.start_soon(long, fleet)

    assert done == [1]


async def test_a_call_without_a_key_is_never_sent_twice(home):
    path = home / "run" / "d.sock"
    async with Script(path) as server, trio.open_nursery() as nursery:
        nursery.start_soon(partial(server.serve, asked=1))
        async with AsyncFleet(path) as fleet:
            with pytest.raises(ConnectionLost):
                await fleet.call_raw("mission.create", {"title": "Once"})


async def test_a_daemon_that_does_not_answer_is_given_up_for_this_call_only(home):
    path = home / "run" / "d.sock"
    async with Script(path) as server, trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(server.serve, '{"id":1,"result":1}', '{"id":2,"result":2}', asked=2)
        )
        async with AsyncFleet(path) as fleet:
            with pytest.raises(TooSlow):
                await fleet.call_raw("a.a", reply_s=0.01)
            assert await fleet.call_raw("b.b") == 2


async def test_a_full_backlog_is_waited_for_until_the_deadline(home):
    path = home / "run" / "d.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with pytest.raises(Unavailable, match="too busy"):
            async with (
                AsyncFleet(path),
                AsyncFleet(path, connect_s=0.05),
                AsyncFleet(path, connect_s=0.05),
            ):
                pass


async def test_a_lock_that_somebody_else_holds_is_a_conflict(daemon, home):
    file = str(home / "project" / "f.py")
    async with AsyncFleet() as fleet:
        for agent in ("a", "b"):
            await fleet.call(AgentRegister(agent, role="specialist"))
        await fleet.call(LockAcquire("a", file))
        with pytest.raises(LockConflict) as caught:
            await fleet.call(LockAcquire("b", file))
    assert caught.value.values["existing_lock"]["held_by"] == "a"
