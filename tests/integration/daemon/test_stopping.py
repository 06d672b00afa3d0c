"""Stopping: signals, what is in flight, and the order in which things are let go."""

import os
import resource
import signal
import sys
import time
from typing import Any

import pytest

REPLIES = 20


def wait_for_lock(daemon: Any, wait_ms: int) -> Any:
    """Return a client that waits for a lock that is held."""
    holder, waiter = daemon.client(), daemon.client()
    lock = {"file": "/tmp/x", "agent_id": "holder"}
    holder.call("lock.acquire", lock)
    waiter.send("lock.acquire", lock | {"agent_id": "waiter", "wait_ms": wait_ms}, identity="w")
    # A request of the same connection that is answered shows that the line before it was read.
    waiter.send("system.hello", identity="h")
    assert waiter.line()["id"] == "h"
    return waiter


def take_no_reply(daemon: Any) -> Any:
    """Return a client with requests in flight: their replies are more than a socket holds."""
    client = daemon.client()
    client.send("system.hello", identity="first")
    for number in range(REPLIES):
        client.send("rpc.discover", identity=number)
    assert client.line()["id"] == "first"
    return client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(fleet: Any, daemon: Any, number: int) -> None:
    idle = daemon.client()
    idle.call("system.hello")
    daemon.signal(number)
    assert daemon.wait() == 0
    assert idle.line() is None
    assert not fleet.socket.exists()
    assert (fleet.directory / "fleetd.lock").exists()
    assert daemon.log.endswith("[INFO] fleetd has stopped\n")


def test_hangup_is_ignored(daemon: Any) -> None:
    daemon.signal(signal.SIGHUP)
    daemon.wait_for_log("SIGHUP is ignored")
    assert daemon.client().call("system.hello")["pid"] == daemon.pid
    assert daemon.stop() == 0


WATCHFUL = """
import sys, fleetd.__main__, fleetd.daemon
fleetd.daemon._SOCKET_SECONDS = 0.02
sys.exit(fleetd.__main__.main([]))
"""


@pytest.mark.parametrize("replaced", [False, True])
def test_one_that_nobody_can_find_any_more_leaves_its_stores_to_the_next(
    fleet: Any, replaced: bool
) -> None:
    """As when the runtime directory of a user goes at logout, and the daemon does not."""
    lost = fleet.spawn(command=[sys.executable, "-c", WATCHFUL])
    connected = lost.client_when_ready()
    connected.call("system.hello")
    fleet.directory.rename(fleet.runtime / "away")
    if replaced:
        fleet.directory.mkdir(mode=0o700)
        fleet.socket.write_text("somebody's")
    assert lost.wait() == 1
    assert "no client can connect: shutting down" in lost.log
    assert "Traceback" not in lost.log
    assert connected.line() is None
    if replaced:
        assert fleet.socket.read_text() == "somebody's"
        fleet.socket.unlink()
    assert fleet.start().client().call("system.hello")


def test_what_is_in_flight_is_finished_and_new_requests_are_told_to_come_back(
    fleet: Any, daemon: Any
) -> None:
    busy, idle = take_no_reply(daemon), daemon.client()
    idle.call("system.hello")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for_log("SIGTERM")
    assert idle.line() is None
    assert not fleet.socket.exists()
    busy.send("system.hello", identity="late")
    replies = {reply["id"]: reply for reply in iter(busy.line, None)}
    assert set(replies) == {*range(REPLIES), "late"}
    # What had begun is answered; what was only in the socket's buffer is told to come back.
    assert "result" in replies[0]
    refused = [reply["error"]["code"] for reply in replies.values() if "error" in reply]
    assert set(refused) == {-32008}
    assert replies["late"]["error"]["code"] == -32008
    assert replies["late"]["error"]["data"]["retry"] is True
    assert daemon.wait() == 0


def test_who_waits_for_a_lock_hears_of_the_end(daemon: Any) -> None:
    waiter = wait_for_lock(daemon, wait_ms=600_000)
    begun = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - begun < 4
    answer = waiter.line()
    assert (answer["id"], answer["error"]["code"]) == ("w", -32008)
    assert answer["error"]["data"]["retry"] is True
    assert waiter.line() is None


def test_a_client_that_takes_no_reply_does_not_hold_it_up(daemon: Any) -> None:
    take_no_reply(daemon)
    begun = time.monotonic()
    assert daemon.stop() == 0
    assert 4 < time.monotonic() - begun < 10


def test_a_second_signal_ends_it_at_once(daemon: Any) -> None:
    take_no_reply(daemon)
    daemon.signal(signal.SIGTERM)
    daemon.wait_for_log("SIGTERM")
    begun = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 1
    assert time.monotonic() - begun < 4
    assert "exits at once" in daemon.log


def test_a_socket_that_is_not_its_own_any_more_stays(fleet: Any, daemon: Any) -> None:
    fleet.socket.unlink()
    fleet.socket.write_text("somebody else's")
    assert daemon.stop() == 0
    assert fleet.socket.read_text() == "somebody else's"


def test_nothing_acknowledged_is_lost_when_it_stops_under_load(fleet: Any, daemon: Any) -> None:
    client = daemon.client()
    for number in range(200):
        client.send("event.append", {"type": "step_taken", "data": {"n": number}}, number)
    acknowledged = [client.line()["id"] for _ in range(20)]
    daemon.signal(signal.SIGTERM)
    while (reply := client.line()) is not None:
        if "result" in reply:
            acknowledged.append(reply["id"])
        else:
            assert reply["error"]["data"]["kind"] == "unavailable"
    assert daemon.wait() == 0
    again = fleet.start()
    page = again.client().call("event.list", {"type": "step_taken", "limit": 1_000})
    stored = {event["data"]["n"] for event in page["events"]}
    assert set(acknowledged) <= stored


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prlimit is of Linux only")
def test_a_limit_on_the_size_of_files_is_a_full_disk_and_no_reason_to_stop(fleet: Any) -> None:
    # Coverage could not write its own file either, and would say so.
    daemon = fleet.start(env={"COVERAGE_PROCESS_CONFIG": "", "COVERAGE_PROCESS_START": ""})
    client = daemon.client()
    kept = client.call("mission.create", {"title": "kept"})
    # From now on the kernel refuses to let any file grow: writing the database fails.
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (4_096, 4_096))
    client.send("mission.create", {"title": "refused", "description": "x" * 60_000})
    refusal = client.line()["error"]
    assert (refusal["data"]["kind"], refusal["data"].get("retry")) == ("storage", None)
    assert "disk is full" in refusal["message"]
    assert client.call("mission.list")["missions"] == [kept]
    assert daemon.stop() == 0
    again = fleet.start().client()
    assert again.call("mission.list")["missions"] == [kept]


def test_a_bug_in_what_happens_by_itself_ends_it_with_a_traceback(fleet: Any) -> None:
    script = (
        "import sys, fleetd.daemon, fleetd.__main__ as program\n"
        "async def broken(engine): raise RuntimeError('a planted bug')\n"
        "fleetd.daemon.run_timers = broken\n"
        "sys.exit(program.main([]))"
    )
    daemon = fleet.spawn(command=[sys.executable, "-c", script])
    assert daemon.wait() == 1
    assert "[ERROR] fleetd stopped because of a bug" in daemon.log
    assert "RuntimeError: a planted bug" in daemon.log
    assert not fleet.socket.exists()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_connections_leave_no_descriptors_behind(daemon: Any) -> None:
    place = f"/proc/{daemon.pid}/fd"
    daemon.client().call("system.hello")
    before = len(os.listdir(place))
    for _ in range(50):
        client = daemon.client()
        client.call("system.hello")
        client.close()
    last = daemon.client()
    for _ in range(20):  # each round trip lets closed connections be noticed
        last.call("system.hello")
    assert len(os.listdir(place)) <= before + 2
