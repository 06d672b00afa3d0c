"""A daemon whose server goes away: it starts, serves what it can, says so, and catches up."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl import cli
from fleetctl.client import Events, Fleet
from fleetd.protocol.errors import FleetError, Unavailable
from fleetd.protocol.methods import METHODS
from tests.support.hook_client import hook, spooled
from tests.support.postgres_server import LocalPostgres, run_sql
from tests.support.processes import Daemon, Result, fleetctl
from tests.support.service_socket import heard, service_socket

LONG_S = 30.0
# A call waits for nothing: who is away for longer than a restart takes is not waited for.
AT_ONCE = {"restart_s": 0.0}


@pytest.fixture(scope="module")
def own() -> Iterator[LocalPostgres]:
    """Run a server for the tests of this file, each of which may stop and suspend it."""
    with LocalPostgres() as server:
        yield server


@pytest.fixture
def server(own: LocalPostgres) -> Iterator[LocalPostgres]:
    """Return a server that runs; whatever becomes of it is over with the test."""
    yield own
    own.resume()
    if own.process is None:
        own.start()


@pytest.fixture
def url(home: Path, server: LocalPostgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the store of the daemon that is started, on a server that may be stopped."""
    name = server.new_database()
    monkeypatch.setenv("FLEET_DATABASE_URL", server.url(name))
    yield server.url(name)
    server.resume()
    if server.process is None:
        server.start()
    server.drop_database(name)


@pytest.fixture
def sharing(home: Path, url: str) -> Iterator[Daemon]:
    """Return a daemon that is not started yet; it must end with status 0."""
    running = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log", warm=True)
    try:
        yield running
        if running.process is not None:
            running.stop()
    finally:
        running.clean_up()


def until(found: Callable[[], Any], what: str, seconds: float = LONG_S) -> Any:
    """Wait until something is found, which is returned."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return answer


def status(daemon: Daemon) -> Any:
    with Fleet(daemon.socket, **AT_ONCE) as client:
        return client.call_raw("system.status")


def until_back(daemon: Daemon) -> Any:
    return until(lambda: (s := status(daemon))["counts"] and s["store"]["since"] and s, "not back")


def until_away(daemon: Daemon) -> Any:
    return until(lambda: (s := status(daemon))["store"]["away"] and s, "never away")


def refused(daemon: Daemon, method: str, params: Any = None) -> FleetError:
    """Return what a call is refused with, which has to come soon."""
    with Fleet(daemon.socket, **AT_ONCE) as client, pytest.raises(FleetError) as raised:
        client.call_raw(method, params, reply_s=5.0)
    return raised.value


def session(home: Path, event: str = "SessionStart", number: int = 1) -> str:
    told = {"hook_event_name": event, "session_id": f"s-{number}", "cwd": str(home / "project")}
    return json.dumps(told | {"source": "startup", "prompt": f"Build part {number}"})


def test_it_starts_without_its_server_and_takes_in_what_hooks_left(
    home: Path, server: LocalPostgres, sharing: Daemon, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    with service_socket(home / "n") as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", str(home / "n"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        sharing.start()
        monkeypatch.delenv("NOTIFY_SOCKET")
        monkeypatch.delenv("WATCHDOG_USEC")
        (ready,) = [each for each in heard(manager) if b"READY=1" in each]
        assert b"the store is unreachable: postgresql://" in ready
        for number in (1, 2):
            assert hook(session(home, number=number)).silent
            assert hook(session(home, "UserPromptSubmit", number)).silent
        assert len(spooled()) == 4
        assert hook(session(home), "claude", "doctor").out == b"fleetd"
        until(lambda: b"WATCHDOG=1" in heard(manager), "nobody would keep it from being restarted")
        assert len(spooled()) == 4

        seen = status(sharing)
        assert (seen["counts"], seen["position"], seen["epoch"]) == (None, None, None)
        assert seen["spool_files"] == 4
        assert seen["store"]["kind"] == "postgresql"
        assert seen["store"]["away"]["step"] == "connecting"
        assert seen["store"]["where"] in seen["store"]["away"]["message"]
        shown = fleetctl("status")
        assert shown.status == 0
        assert shown.out.splitlines()[0].startswith("Store away: for ")
        assert "4 payloads of hooks in the spool" in shown.out

        server.start()
        seen = until_back(sharing)
        assert (seen["store"]["away"], seen["store"]["reconnects"]) == (None, 1)
        assert seen["counts"]["agents"] == 2
        assert spooled() == []
        events = fleetctl("events", "--type", "agent_registered", "--json").json
        assert [each["agent_id"] for each in events] == ["claude-s-1", "claude-s-2"]
        with Fleet(sharing.socket) as client:
            (counted,) = client.call_raw("hook.status")["harnesses"]
        assert (counted["deliveries"], counted["from_spool"]) == (4, 4)
        assert counted["last_event"] == "UserPromptSubmit"
        listening = f"STATUS=Listening on {sharing.socket}".encode()
        until(lambda: listening in heard(manager), "nothing is told of the server that is back")


def test_whoever_needs_the_store_is_refused_at_once_and_told_why(
    home: Path,
    server: LocalPostgres,
    sharing: Daemon,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sharing.start()
    until_back(sharing)
    server.stop()
    where = until_away(sharing)["store"]["where"]
    mine = {"system.hello", "system.status", "system.health", "system.config", "system.metrics"}
    mine |= {"system.doctor", "rpc.discover"}
    with Fleet(sharing.socket, **AT_ONCE) as client:
        for method in sorted(mine):
            assert client.call_raw(method, reply_s=5.0), method
        for method, params in {
            "mission.create": {"title": "m"},
            "mission.list": {},
            "event.list": {},
            "event.subscribe": {},
            "lock.acquire": {"file": "/a.py", "agent_id": "a", "wait_ms": 60_000},
            "checkpoint.prune": {},
            "agent.register": {"agent_id": "a", "role": "specialist"},
            "system.backup": {"path": str(home / "copy.db")},
        }.items():
            error = refused(sharing, method, params)
            assert isinstance(error, Unavailable), method
            assert error.message.startswith(where), method
            assert error.values["retry"] is True
            assert error.values["away_ms"] >= 0
        assert mine < METHODS.keys()
        health = client.call_raw("system.health")
        assert (health["ok"], health["restart_mends"]) == (False, False)
        assert "fleetd_store_away 1" in client.call_raw("system.metrics")["text"]
    assert any(where in each for each in fleetctl("daemon", "status", "--json").json["warnings"])
    found = fleetctl("doctor", "--json")
    assert found.status == 1
    (database,) = [each for each in found.json["findings"] if each["check"] == "database"]
    assert "unreachable for" in database["detail"]
    # Who asks in the first 8 s is kept waiting for the rest of them.
    monkeypatch.setitem(Fleet.__init__.__kwdefaults__, "restart_s", 0.0)
    capsys.readouterr()
    assert cli.main(("mission", "list")) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith(f"Error: {where}")
    assert "Hint:" in err
    server.start()
    until_back(sharing)
    assert fleetctl("mission", "list").status == 0
    assert fleetctl("doctor", "--json").json["findings"]


class Follower(threading.Thread):
    """Follows the log until it has heard of so many missions."""

    def __init__(self, daemon: Daemon, missions: int) -> None:
        super().__init__()
        self.heard: list[tuple[int, str]] = []
        self._client = Fleet(daemon.socket)
        self._events: Events = self._client.events(since=0, types=["mission_created"])
        self._missions = missions

    def run(self) -> None:
        deadline = time.monotonic() + LONG_S
        with self._client:
            while len(self.heard) < self._missions and time.monotonic() < deadline:
                if (event := self._events.next(0.5)) is not None:
                    self.heard.append((event.seq, event.data["title"]))


def test_who_follows_the_log_misses_nothing_and_hears_nothing_twice(
    server: LocalPostgres, sharing: Daemon, url: str
) -> None:
    sharing.start()
    until_back(sharing)
    follower = Follower(sharing, 6)
    follower.start()
    with Fleet(sharing.socket) as client:
        for number in range(6):
            if number in (2, 4):
                server.stop("immediate")
                until_away(sharing)
                server.start()
            client.call_raw("mission.create", {"title": f"m{number}"}, again=True)
    follower.join(2 * LONG_S)
    assert [title for _, title in follower.heard] == [f"m{number}" for number in range(6)]
    assert [seq for seq, _ in follower.heard] == sorted({seq for seq, _ in follower.heard})


def test_who_stands_in_line_for_a_lock_keeps_his_place(
    home: Path, server: LocalPostgres, sharing: Daemon, url: str
) -> None:
    sharing.start()
    until_back(sharing)
    file = {"file": str(home / "project" / "a.py")}
    got: list[Any] = []

    def wait_for_it() -> None:
        with Fleet(sharing.socket) as client:
            asked = {**file, "agent_id": "second", "wait_ms": 60_000}
            got.append(client.call_raw("lock.acquire", asked))

    with Fleet(sharing.socket) as client:
        for agent in ("first", "second"):
            client.call_raw("agent.register", {"agent_id": agent, "role": "specialist"})
        lock = client.call_raw("lock.acquire", {**file, "agent_id": "first"})
        waiting = threading.Thread(target=wait_for_it)
        waiting.start()
        until(lambda: in_line(server, url), "nobody stands in line")
        server.stop("immediate")
        until_away(sharing)
        server.start()
        until_back(sharing)
        assert in_line(server, url) == 1
        client.call_raw("lock.release", {"lock_id": lock["id"], "agent_id": "first"}, again=True)
    waiting.join(LONG_S)
    assert [each["held_by"] for each in got] == ["second"]


def test_what_ended_meanwhile_is_noticed_when_it_is_back(
    server: LocalPostgres,
    sharing: Daemon,
    url: str,
    mortal: Callable[[], subprocess.Popen[bytes]],
) -> None:
    sharing.start()
    until_back(sharing)
    agent = mortal()
    with Fleet(sharing.socket) as client:
        told = {"agent_id": "a", "role": "specialist", "pid": agent.pid}
        client.call_raw("agent.register", told)
        server.stop()
        until_away(sharing)
        agent.kill()
        agent.wait()
        server.start()
        until_back(sharing)
        until(lambda: client.call_raw("event.list", {"type": "agent_lost"})["events"], "not lost")


def test_the_doctor_tells_of_missions_that_were_left_behind(
    sharing: Daemon, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEET_DATABASE_URL")
    sharing.start()
    assert fleetctl("mission", "create", "Of this machine").status == 0
    sharing.stop()
    monkeypatch.setenv("FLEET_DATABASE_URL", url)
    sharing.start()
    until_back(sharing)
    findings = {each["check"]: each for each in fleetctl("doctor", "--json").json["findings"]}
    assert not findings["left behind"]["ok"]
    assert "holds 1 mission that the store lacks" in findings["left behind"]["detail"]
    assert findings["server"]["detail"].startswith("PostgreSQL ")
    assert findings["clock"]["ok"]
    assert findings["machines"]["detail"] == "1 share the store"


def in_line(server: LocalPostgres, url: str) -> int:
    """Return how many stand in line for a lock."""
    return int(run_sql(url, "SELECT count(*) AS waits FROM lock_waits")[0]["waits"])


def test_a_server_that_stands_still_is_away_too(
    server: LocalPostgres, sharing: Daemon, url: str
) -> None:
    sharing.start()
    until_back(sharing)
    server.suspend()
    with Fleet(sharing.socket, **AT_ONCE) as client, pytest.raises(Unavailable):
        client.call_raw("mission.create", {"title": "m"}, reply_s=20.0)
    assert isinstance(refused(sharing, "mission.list"), Unavailable)
    assert status(sharing)["store"]["away"]
    server.resume()
    until_back(sharing)
    assert fleetctl("mission", "create", "After all").status == 0


@pytest.mark.parametrize("how", ["stopped", "suspended"])
def test_it_ends_in_order_while_its_server_is_away(
    home: Path, server: LocalPostgres, sharing: Daemon, url: str, how: str
) -> None:
    sharing.start()
    until_back(sharing)
    if how == "stopped":
        server.stop()
        until_away(sharing)
        assert hook(session(home)).silent
    else:
        server.suspend()
    assert sharing.process is not None
    sharing.process.send_signal(signal.SIGTERM)
    assert sharing.process.wait(12) == 0, sharing.log.read_text()
    sharing.process = None
    assert not sharing.socket.exists()
    assert "Traceback" not in sharing.log.read_text()
    assert len(spooled()) == (1 if how == "stopped" else 0)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense://x", "not a PostgreSQL URL"),
        ("{url}&dbname=nowhere", 'database "nowhere" does not exist'),
    ],
)
def test_what_will_not_mend_itself_is_refused_at_the_start(
    sharing: Daemon, url: str, monkeypatch: pytest.MonkeyPatch, address: str, said: str
) -> None:
    monkeypatch.setenv("FLEET_DATABASE_URL", address.format(url=url))
    process = sharing.spawn()
    assert process.wait(LONG_S) == 78
    sharing.process = None
    (line,) = sharing.log.read_text().splitlines()
    assert said in line


def test_nothing_shows_a_password(
    server: LocalPostgres, sharing: Daemon, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    database = url.split("?")[0].rpartition("/")[2]
    secret = server.url(database, tcp=True).replace("fleet@", "fleet:5ecret@")
    monkeypatch.setenv("FLEET_DATABASE_URL", secret)
    shown: list[Result] = []

    def look() -> None:
        words = ("status", "status --json", "doctor --json", "config --json", "metrics")
        shown.extend(fleetctl(*each.split()) for each in words)
        with Fleet(sharing.socket, **AT_ONCE) as client:
            try:
                client.call_raw("mission.list")
            except Unavailable as error:
                shown.append(Result(1, error.message, str(error.data())))

    sharing.start()
    until_back(sharing)
    look()
    server.stop()
    until_away(sharing)
    look()
    text = "".join(each.out + each.err for each in shown) + sharing.log.read_text()
    assert "127.0.0.1" in text
    assert "5ecret" not in text
