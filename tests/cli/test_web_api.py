"""The data behind the page: methods that only read, errors as they are, events without a gap."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio

from fleetctl.client import AsyncFleet, Fleet, aio, subscription
from fleetctl.client.methods import METHODS
from fleetctl.web import api, events
from fleetd.protocol import methods as protocol_methods
from fleetd.protocol.request import Query
from tests.support.notify import until
from tests.support.processes import Daemon
from tests.support.web import Answer, Ended, Page, Served, get, served

Connect = Callable[[], Fleet]
# They come with the timeline.
LATER = {"fleet.at", "timeline.get"}


async def call(web: Served, method: str, **params: Any) -> Answer:
    given = f"?params={quote(json.dumps(params))}" if params else ""
    return await web.ask(f"/api/{method}{given}", X_Fleet_Key=web.key)


# Only reading


def test_every_method_that_the_page_may_call_is_a_query() -> None:
    assert api.METHODS - set(METHODS) <= LATER
    for name in api.METHODS & set(METHODS):
        _, changes, _ = METHODS[name]
        assert not changes, name
        request = protocol_methods.METHODS[name]
        assert issubclass(request, Query), name
        assert not request.changes


async def test_what_changes_something_is_refused_and_not_sent(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    real = AsyncFleet.call_raw

    async def noted(fleet: AsyncFleet, method: str, *more: Any, **options: Any) -> Any:
        sent.append(method)
        return await real(fleet, method, *more, **options)

    monkeypatch.setattr(AsyncFleet, "call_raw", noted)
    async with served() as web:
        for name in {*METHODS, "system.shutdown", "", "System.Hello", "x" * 5_000} - api.METHODS:
            answer = await call(web, name)
            assert (answer.status, answer.error["kind"]) == (404, "not_found"), name
    assert not sent


@pytest.mark.sqlite_only("it reads the file of the store")
async def test_no_method_of_the_page_changes_a_table(
    home: Path, daemon: Daemon, mission: str, connect: Connect
) -> None:
    fleet = connect()
    ask = fleet.call_raw
    ask("agent.register", {"agent_id": "a", "role": "specialist", "mission_id": mission})
    ask("agent.register", {"agent_id": "b", "role": "specialist"})
    file = str(home / "project" / "f.py")
    ask("lock.acquire", {"agent_id": "a", "file": file})
    ask("message.send", {"from": "a", "to": ["b"], "subject": "s", "body": "hello"})
    ask("note.add", {"kind": "decision", "text": "Use tabs.", "mission_id": mission})
    checkpoint = ask("checkpoint.create", {"mission_id": mission, "wait_for_backup": True})["id"]
    now = ask("event.list", {"limit": 1, "newest": True})["events"][0]["timestamp"]
    of_mission = {"mission_id": mission}
    params: dict[str, dict[str, Any]] = {
        "agent.get": {"agent_id": "a"},
        "checkpoint.compare": {"before": checkpoint, "after": checkpoint},
        "checkpoint.get": {"checkpoint_id": checkpoint},
        "fleet.at": {"time": now},
        "mission.at": {**of_mission, "time": now},
        "mission.get": of_mission,
        "recovery.context": of_mission,
        "report.get": of_mission,
        "search.query": {"query": "tabs"},
        "sortie.list": of_mission,
        "timeline.get": {"since": "2026-01-01T00:00:00.000Z", "until": now},
    }
    before = tables(home)
    async with served() as web:
        for name in sorted(api.METHODS & set(METHODS)):
            answer = await call(web, name, **params.get(name, {}))
            assert answer.status == 200, (name, answer.body)
            assert tables(home) == before, name


def tables(home: Path) -> dict[str, str]:
    """Return a checksum of each table of the store."""
    found = {}
    with sqlite3.connect(home / "data" / "squawk.db") as store:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
        for (name,) in store.execute(names).fetchall():
            rows = sorted(map(repr, store.execute(f'SELECT * FROM "{name}"')))
            found[name] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    store.close()
    return found


# Parameters and errors


async def test_parameters_go_to_the_daemon_as_they_are(
    daemon: Daemon, mission: str, connect: Connect
) -> None:
    async with served() as web:
        found = await call(web, "mission.get", mission_id=mission)
        assert found.json == connect().call_raw("mission.get", {"mission_id": mission})
        title = "é <script>alert(1)</script> &+% \u2028 \U0001f600 '\"\\"
        connect().call_raw("mission.create", {"title": title})
        assert (await call(web, "mission.list", limit=1)).json["missions"][0]["title"] == title
        assert (await call(web, "mission.list")).json == (await call(web, "mission.list")).json


@pytest.mark.parametrize(
    "query",
    [
        "?params=",
        "?params=[]",
        "?params=null",
        "?params=1",
        "?params=%7B",
        "?params=%7B%7D%7B%7D",
        "?params=%7B%22a%22:NaN%7D",
        "?params=%7B%7D&params=%7B%7D",
        "?params=%7B%7D&more=1",
        "?limit=1",
        "?params=%ff",
        "?",
        "?params",
        "?params=" + "%5B" * 2_000,
        "?params=" + quote('{"unknown":1}'),
        "?params=" + quote('{"limit":"many"}'),
        "?params=" + quote('{"limit":0}'),
    ],
)
async def test_parameters_that_are_wrong_are_named(daemon: Daemon, query: str) -> None:
    async with served() as web:
        answer = await web.ask(f"/api/mission.list{query}", X_Fleet_Key=web.key)
        if query == "?":
            assert answer.status == 200  # nothing is given
            return
        assert (answer.status, answer.error["kind"]) == (400, "invalid_params")
        assert not answer.error["message"].startswith("Invalid params:")


async def test_an_error_of_the_daemon_keeps_its_kind(daemon: Daemon) -> None:
    async with served() as web:
        missing = await call(web, "mission.get", mission_id="msn-00000000")
        assert (missing.status, missing.error["kind"]) == (404, "not_found")
        wrong = await call(web, "agent.list", nothing=1)
        assert (wrong.status, wrong.error["kind"]) == (400, "invalid_params")
        assert wrong.error["data"]


# A daemon that goes away


async def test_a_request_waits_for_a_daemon_that_restarts(daemon: Daemon) -> None:
    got: list[int] = []
    async with served() as web:
        assert (await call(web, "system.hello")).status == 200

        async def ask() -> None:
            got.append((await call(web, "system.hello")).status)

        await trio.to_thread.run_sync(daemon.kill)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
            await trio.to_thread.run_sync(daemon.start)
    assert got == [200] * 5


async def test_one_that_stays_away_is_waited_for_once(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []
    real = aio.reconnect

    async def counted(*given: Any) -> Any:
        waits.append(True)
        return await real(*given)

    async with served(restart_s=0.2) as web:
        assert (await call(web, "system.hello")).status == 200
        await trio.to_thread.run_sync(daemon.kill)
        monkeypatch.setattr(aio, "reconnect", counted)
        for _ in range(3):
            answer = await call(web, "system.hello")
            assert (answer.status, answer.error["kind"]) == (503, "unavailable")
        told = len(waits)
        await call(web, "system.hello")
        assert len(waits) == told
        await trio.to_thread.run_sync(daemon.start)
        assert (await call(web, "system.hello")).status == 200


async def test_a_daemon_that_comes_later_is_found(daemon: Daemon) -> None:
    daemon.kill()
    async with served() as web:
        assert (await call(web, "system.hello")).status == 503
        await trio.to_thread.run_sync(daemon.start)
        assert (await call(web, "system.hello")).status == 200
        assert (await (await web.events()).next())[0] == "begin"


# Events


def append(fleet: Fleet, n: int) -> int:
    return int(fleet.call_raw("event.append", {"type": "note_taken", "data": {"n": n}})["seq"])


async def test_a_page_gets_each_event_as_it_happens(daemon: Daemon, connect: Connect) -> None:
    fleet = connect()
    before = append(fleet, 0)
    epoch = fleet.call_raw("event.list", {})["epoch"]
    async with served() as web:
        page = await web.events()
        name, begun = await page.next()
        assert name == "begin"
        assert (begun["position"], begun["epoch"]) == (before, epoch)
        assert begun["now"].endswith("Z")
        assert page.last_id == f"{epoch}:{before}"
        assert await page.next() == ("link", {"state": "connected"})
        seq = append(fleet, 1)
        event = await page.event()
        assert page.last_id == f"{epoch}:{seq}"
        assert [event] == fleet.call_raw("event.list", {"since": before})["events"]


async def test_a_page_that_comes_back_gets_what_it_missed(daemon: Daemon, connect: Connect) -> None:
    fleet = connect()
    async with served() as web:
        page = await web.events()
        await page.next()
        seqs = [append(fleet, n) for n in range(5)]
        got = [(await page.event())["seq"] for _ in range(3)]
        again = await web.events(page.last_id)
        name, begun = await again.next()
        assert (name, begun["position"]) == ("begin", seqs[2])
        got += [(await again.event())["seq"] for _ in range(2)]
    assert got == seqs


async def test_events_come_once_each_over_restarts_of_the_daemon(
    daemon: Daemon, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A restart may be quicker than an absence that is worth telling.
    monkeypatch.setattr(subscription, "LINK_GRACE_S", 0.0)
    seen: list[int] = []
    links: list[str] = []
    number = 60

    def gone(restarts: int) -> bool:
        return links.count("away") > restarts

    async def write() -> None:
        async with AsyncFleet(daemon.socket, restart_s=60.0) as fleet:
            for n in range(number):
                what = {"type": "note_taken", "data": {"n": n}}
                await fleet.call_raw("event.append", what, again=False)
                if n in (20, 40):
                    await trio.to_thread.run_sync(daemon.stop)
                    restarts = links.count("back")
                    await until(partial(gone, restarts))
                    await trio.to_thread.run_sync(daemon.start)
                    await fleet.call_raw("system.hello", again=True)

    async with served() as web, trio.open_nursery() as nursery:
        page = await web.events()
        await page.next()
        nursery.start_soon(write)
        while len(seen) < number:
            name, data = await page.next()
            if name == "link":
                links.append(data["state"])
            elif name == "event":
                seen.append(data["data"]["n"])
                # The browser loses its connection as well, and comes back with the last id.
                if len(seen) in (10, 30, 50):
                    page = await web.events(page.last_id)
    assert seen == [*range(number)]
    assert links.count("away") == links.count("back") == 2


async def replaced(page: Page) -> None:
    """Read to the event that says that the store is another one, after which nothing comes."""
    while (await page.next())[0] != "replaced":
        pass
    with pytest.raises(Ended):
        await page.next()


async def test_a_position_of_another_store_says_so(daemon: Daemon, connect: Connect) -> None:
    seq = append(connect(), 0)
    epoch = connect().call_raw("event.list", {})["epoch"]
    async with served() as web:
        await replaced(await web.events("another:0"))
        await replaced(await web.events(f"{epoch}:{seq + 1}"))  # a store that lost its end


@pytest.mark.sqlite_only("it replaces the file of the store")
async def test_a_store_that_is_replaced_meanwhile_says_so(home: Path, daemon: Daemon) -> None:
    async with served() as web:
        page = await web.events()
        await page.next()

        def replace() -> None:
            daemon.stop()
            for file in (home / "data").glob("squawk.db*"):
                file.unlink()
            daemon.start()

        await trio.to_thread.run_sync(replace)
        await replaced(page)


async def test_a_page_that_is_far_behind_loads_everything_again(
    daemon: Daemon, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "FAR_BEHIND", 3)
    fleet = connect()
    first, *_, last = [append(fleet, n) for n in range(5)]
    epoch = fleet.call_raw("event.list", {})["epoch"]
    async with served() as web:
        await replaced(await web.events(f"{epoch}:{first}"))
        page = await web.events(f"{epoch}:{last - 3}")
        assert [(await page.event())["seq"] for _ in range(3)] == [last - 2, last - 1, last]


@pytest.mark.parametrize(
    "last_id", ["", "1", "a:b", "epoch:-1", "epoch:1:2", "e" * 65 + ":1", "é:1"]
)
async def test_an_id_that_is_none_is_refused(daemon: Daemon, last_id: str) -> None:
    async with served() as web:
        answer = await web.ask("/events", X_Fleet_Key=web.key, Last_Event_ID=last_id)
        assert (answer.status, answer.error["kind"]) == (400, "invalid_params")


async def test_a_quiet_stream_is_kept_alive(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.02)
    async with served() as web:
        page = await web.events()
        got = [await page.next() for _ in range(5)]
    assert got[0][0] == "begin"
    assert got[-2:] == [(": keep-alive", None)] * 2


async def test_a_page_that_leaves_leaves_nothing_behind(daemon: Daemon, connect: Connect) -> None:
    fleet = connect()

    def connections() -> int:
        text = fleet.call_raw("system.metrics", {})["text"]
        found = [line for line in text.splitlines() if line.startswith("fleetd_connections_open ")]
        return int(float(found[0].split()[1]))

    async with served() as web:
        before = connections()
        client = await web.client()
        await client.send(get("/events", X_Fleet_Key=web.key))
        assert (await client.head()).status == 200
        assert connections() == before + 1
        await client.stream.aclose()
        await until(lambda: connections() == before)
