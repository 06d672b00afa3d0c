"""Following the event log over restarts: nothing is lost, nothing comes twice."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fleetctl.client import (
    ConnectionLost,
    EventsMissed,
    Fleet,
    Link,
    StoreReplaced,
    subscription,
)
from fleetd.protocol.errors import Incompatible, InvalidState, NotFound, Unavailable
from fleetd.protocol.records import Event
from fleetd.protocol.requests.event import CursorAdvance, CursorGet, EventAppend
from fleetd.protocol.requests.mission import MissionCreate, MissionGet
from fleetd.protocol.requests.system import SystemHello
from fleetd.store.sqlite import page_checksums
from tests.support.processes import Daemon

PATIENCE_S = 60.0
MANY = 150


def noted(fleet: Fleet, number: int, types: str = "note_taken") -> list[int]:
    """Append events and return their ``seq``."""
    return [fleet.call(EventAppend(types, data={"n": n})).seq for n in range(number)]


def told(event: Event) -> int:
    number: int = event.data["n"]
    return number


class Writer:
    """Appends events without a pause until it is told to stop, whatever becomes of the daemon."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stop = threading.Event()
        self.written: list[int] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Fleet(self._path, restart_s=PATIENCE_S) as fleet:
            while not self._stop.is_set():
                data = {"n": len(self.written)}
                self.written.append(fleet.call(EventAppend("note_taken", data=data)).seq)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def writer(daemon: Daemon) -> Iterator[Writer]:
    writing = Writer(daemon.socket)
    yield writing
    writing.finish()


def test_events_come_from_now_on_as_records_of_their_type(daemon):
    with Fleet(daemon.socket) as fleet:
        noted(fleet, 2)
        events = fleet.events()
        mission = fleet.call(MissionCreate(title="Ten lines"))

        event = next(events)

    assert isinstance(event, Event)
    assert (event.type, event.mission_id) == ("mission_created", mission.id)
    assert events.closed


def test_events_are_chosen_by_type_mission_and_position(daemon):
    with Fleet(daemon.socket) as fleet:
        fleet.call(MissionCreate(title="a"))
        second = fleet.call(MissionCreate(title="b")).id
        seqs = noted(fleet, 3)

        assert next(fleet.events(since=0, mission_id=second)).mission_id == second
        assert next(fleet.events(since=0, types=["note_taken"])).seq == seqs[0]
        assert next(fleet.events(since=seqs[1])).seq == seqs[2]
        with pytest.raises(NotFound):
            fleet.events(mission_id="msn-00000000")
        assert fleet.events(since=seqs[2]).next(0.0) is None


def test_a_loop_that_is_killed_away_from_under_its_daemon_misses_nothing(daemon, writer):
    seen: list[Event] = []
    with Fleet(daemon.socket) as fleet:
        events = fleet.events(since=0, types=["note_taken"])
        for kills in range(3):
            while len(seen) < (kills + 1) * MANY:
                seen.append(next(events))
            daemon.kill()
            daemon.start()
        writer.finish()
        while len(seen) < len(writer.written):
            event = events.next(PATIENCE_S)
            assert event is not None
            seen.append(event)
        assert events.next(0.05) is None

    assert [event.seq for event in seen] == writer.written
    assert [told(event) for event in seen] == list(range(len(seen)))


def test_a_loop_is_told_when_the_daemon_goes_and_when_it_is_back(daemon):
    links: list[Link] = []
    with Fleet(daemon.socket) as fleet:
        events = fleet.events(on_link=links.append)
        assert events.link == links[0]
        daemon.kill()
        while events.link.state != "away":
            assert events.next(0.1) is None
        daemon.start()
        while events.link.state != "back":
            assert events.next(0.1) is None
        [seq] = noted(fleet, 1)
        assert next(events).seq == seq

    assert [link.state for link in links] == ["connected", "away", "back"]
    assert [link.since for link in links] == sorted(link.since for link in links)
    assert isinstance(links[1].error, ConnectionLost)


def test_a_loop_that_rests_lags_behind_and_misses_nothing(home, daemon, monkeypatch):
    config = home / "config" / "fleet" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[limits]\nreply_timeout_ms = 100\n")
    daemon.stop()
    daemon.start()
    with Fleet(daemon.socket) as fleet:
        events = fleet.events(types=["note_taken"])
        large = "x" * 60_000
        for n in range(MANY):
            fleet.call(EventAppend("note_taken", data={"n": n, "large": large}))
        # Long enough for the daemon to close the connection that nobody reads.
        while "did not read its reply in time" not in daemon.log.read_text():
            fleet.call(SystemHello())

        assert [told(next(events)) for _ in range(MANY)] == list(range(MANY))


def test_a_consumer_goes_on_where_it_was(daemon):
    with Fleet(daemon.socket) as fleet:
        seqs = noted(fleet, 3)
        with fleet.events(consumer="tool", types=["note_taken"]) as events:
            assert next(events).seq == seqs[0]
        with suppress(ZeroDivisionError), fleet.events(consumer="tool") as events:
            assert next(events).seq == seqs[1]
            raise ZeroDivisionError
        with fleet.events(consumer="tool") as events:
            assert [next(events).seq, next(events).seq] == seqs[1:]
            assert events.next(0.05) is None
            assert fleet.call(CursorGet("tool", "fleet")).position == seqs[2]


def test_a_consumer_that_another_has_overtaken_is_told(daemon):
    with Fleet(daemon.socket) as fleet:
        noted(fleet, 1)
        with fleet.events(consumer="tool", types=["note_taken"]) as events:
            next(events)
            [further] = noted(fleet, 1, "else_noted")
            fleet.call(CursorAdvance(consumer="tool", stream="fleet", position=further))
            with pytest.raises(InvalidState, match="does not go back"):
                events.next(0.05)
            assert events.closed


def test_a_consumer_whose_cursor_lost_events_is_told_of_the_gap(daemon, home):
    with Fleet(daemon.socket) as fleet:
        seqs = noted(fleet, 4)
        fleet.call(CursorAdvance(consumer="tool", stream="fleet", position=seqs[0]))
        daemon.stop()
        with closing(page_checksums.opened(str(home / "data" / "squawk.db"))) as database:
            database.execute("DELETE FROM events WHERE seq = ?", (seqs[1],))
            database.execute("UPDATE cursors SET missed_seq = ?", (seqs[1],))
        daemon.start()
        text = f"Events up to {seqs[1]} were deleted .* continues with event {seqs[2]}"
        with pytest.warns(EventsMissed, match=text):
            events = fleet.events(consumer="tool", types=["note_taken"])
        with events:
            gap = events.gap
            assert gap is not None
            assert (gap.first_available, gap.missed_until) == (seqs[2], seqs[1])
            assert [next(events).seq, next(events).seq] == seqs[2:]
        with fleet.events(consumer="tool") as events:  # it has moved on
            assert events.gap is None


def test_a_consumer_that_wants_little_lets_its_cursor_pass_the_rest(daemon, monkeypatch):
    with Fleet(daemon.socket) as fleet:
        wanted = noted(fleet, 2)
        with fleet.events(consumer="tool", types=["note_taken", "never"]) as events:
            assert next(events).seq == wanted[0]
            assert next(events).seq == wanted[1]
            others = noted(fleet, 3, "else_noted")
            with monkeypatch.context() as patch:
                patch.setattr(subscription, "TOUCH_INTERVAL_S", 0.0)
                assert events.next(0.05) is None
            assert fleet.call(CursorGet("tool", "fleet")).position == others[-1]
            noted(fleet, 1, "else_noted")
            assert events.next(0.05) is None  # it has said so a moment ago
            assert fleet.call(CursorGet("tool", "fleet")).position == others[-1]
            [last] = noted(fleet, 1)
            assert next(events).seq == last
        assert fleet.call(CursorGet("tool", "fleet")).position == last


def test_a_store_that_was_replaced_is_said_to_be_another(daemon, home):
    with Fleet(daemon.socket) as fleet:
        noted(fleet, 1)
        events = fleet.events(since=0)
        next(events)
        before, epoch = events.position, events.epoch
        daemon.stop()
        for file in (home / "data").glob("squawk.db*"):
            file.unlink()
        daemon.start()

        with pytest.raises(StoreReplaced, match="epoch"):
            next(events)
        assert events.closed
        with pytest.raises(StoreReplaced):
            fleet.events(since=before, epoch=epoch)


def test_a_daemon_that_stays_away_ends_the_loop_after_the_time_that_was_set(daemon):
    with Fleet(daemon.socket) as fleet:
        events = fleet.events(away_s=0.3)
        daemon.kill()

        with pytest.raises(ConnectionLost):
            next(events)
        assert list(events) == []
        with pytest.raises(Unavailable, match="not running"):
            fleet.events()
    daemon.start()


def test_a_call_of_a_client_that_was_closed_says_so(daemon):
    fleet = Fleet(daemon.socket)
    fleet.close()

    with pytest.raises(Unavailable, match="was closed"):
        fleet.call(SystemHello())


def test_this_users_daemon_is_found_without_a_path(daemon):
    with Fleet() as fleet:
        assert fleet.call(SystemHello()).pid == daemon.process.pid


def test_threads_that_share_a_client_take_turns(daemon):
    with Fleet(daemon.socket) as fleet:
        missions = [fleet.call(MissionCreate(title=f"m{n}")) for n in range(4)]
        wrong = []

        def ask(mission):
            found = [fleet.call(MissionGet(mission.id)) for _ in range(50)]
            wrong.extend(each for each in found if each != mission)

        threads = [threading.Thread(target=ask, args=(each,)) for each in missions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert not wrong


def test_a_process_that_was_forked_has_a_connection_of_its_own(daemon):
    code = """
import os, sys
from fleetctl.client import Fleet
from fleetd.protocol.requests.event import EventAppend
with Fleet() as fleet:
    events = fleet.events(types=["note_taken"])
    child = os.fork()
    for n in range(100):
        fleet.call(EventAppend("note_taken", data={"child": not child}))
    assert len([next(events) for _ in range(200)]) == 200
    if not child:
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


# A server that says what it is told to say.

STARTED = '{"id":%d,"result":{"subscription_id":"s","position":%d,"epoch":"e"}}'


def line(seq: int) -> str:
    event = {"seq": seq, "type": "x_y", "stream": "fleet", "timestamp": "t"}
    event |= {"mission_id": None, "agent_id": None, "data": {}}
    params = {"subscription_id": "s", "event": event}
    return json.dumps({"jsonrpc": "2.0", "method": "event", "params": params})


@pytest.fixture
def scripted(home: Path) -> Iterator[Callable[..., list[dict]]]:
    """Return a function that serves one connection per script, after one for the Fleet itself.

    It returns the first requests of the connections.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home / "run" / "d.sock"))
    listener.listen()
    listener.settimeout(30)
    threads: list[threading.Thread] = []
    received: list[dict] = []

    def work(scripts: tuple[str, ...]) -> None:
        idle, _ = listener.accept()
        with idle:
            for script in scripts:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as lines:
                    received.append(json.loads(lines.readline()))
                    connection.sendall(script.encode())
        listener.close()

    def start(*scripts: str) -> list[dict]:
        threads.append(threading.Thread(target=work, args=(scripts,)))
        threads[-1].start()
        return received

    yield start
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    listener.close()


def test_what_follows_the_reply_in_the_same_breath_is_not_lost(scripted, home):
    scripted(f"{STARTED % (1, 6)}\n{line(7)}\n{line(8)}\n")

    with Fleet(home / "run" / "d.sock") as fleet:
        events = fleet.events()
        assert [next(events).seq, next(events).seq] == [7, 8]


def test_a_line_that_was_cut_off_comes_again_on_the_next_connection(scripted, home):
    received = scripted(
        f"{STARTED % (1, 6)}\n{line(7)}\n{line(8)[:50]}",
        "",
        f"{STARTED % (3, 7)}\n{line(8)}\n",
    )

    with Fleet(home / "run" / "d.sock") as fleet:
        events = fleet.events(types=["x_y"])
        assert [next(events).seq, next(events).seq] == [7, 8]

    asked = [request["params"] for request in received]
    assert [each.get("since") for each in asked] == [None, 7, 7]
    assert [each.get("epoch") for each in asked] == [None, "e", "e"]
    assert {each["types"][0] for each in asked} == {"x_y"}


@pytest.mark.parametrize(
    "answer",
    [
        "garbage",
        '{"id":1,"result":{}}',
        '{"id":1,"error":5}',
        f'{STARTED % (1, 6)}\n{{"method":"event","params":5}}',
        f'{STARTED % (1, 6)}\n{{"method":"event","params":{{"event":{{"seq":"x"}}}}}}',
    ],
)
def test_what_makes_no_sense_ends_it(scripted, home, answer):
    scripted(answer + "\n")

    with (
        Fleet(home / "run" / "d.sock") as fleet,
        pytest.raises(Incompatible, match="cannot read the reply"),
    ):
        next(fleet.events())


def test_a_daemon_that_falls_silent_is_taken_for_gone(home, monkeypatch):
    monkeypatch.setattr("fleetctl.client.subscription.READ_S", 0.1)
    monkeypatch.setattr("fleetctl.client.subscription.QUIET_S", 0.1)
    monkeypatch.setattr("fleetctl.client.subscription.WAKE_S", 0.02)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home / "run" / "d.sock"))
    listener.listen()
    with listener, Fleet(home / "run" / "d.sock") as fleet:
        accepted = [listener.accept()[0]]

        def answer() -> None:
            accepted.append(listener.accept()[0])
            accepted[1].recv(4096)
            accepted[1].sendall((STARTED % (1, 6)).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        events = fleet.events(away_s=0.0)
        thread.join()

        with pytest.raises(ConnectionLost, match="no longer answers"):
            next(events)
        assert b"system.hello" in accepted[1].recv(4096)
        for connection in accepted:
            connection.close()
