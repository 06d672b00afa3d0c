"""A daemon that commits on its event loop keeps what it acknowledged, and what follows a commit."""

import random
import signal
import sys
import threading
import time
from typing import Any

import pytest

# Whatever the disk and the load are like, and with a count of what ran on the loop.
EAGER = """
import sys, fleetd.__main__
from fleetd.store import worker_thread
from fleetd.store.sqlite import group_commit
worker_thread.SHORT_US = 60_000_000
group_commit.CommitPace.is_fast = property(lambda _: True)
group_commit.LOOP_S = 60
run_here, done = group_commit.SqliteCommitter.run_here, 0
def counted(self, job):
    global done
    ran = run_here(self, job)
    done += ran
    if done == 20:
        print("on the loop", file=sys.stderr, flush=True)
    return ran
group_commit.SqliteCommitter.run_here = counted
sys.exit(fleetd.__main__.main([]))
"""


@pytest.fixture
def eager(fleet: Any) -> Any:
    daemon = fleet.spawn(command=[sys.executable, "-c", EAGER])
    daemon.client_when_ready()
    return daemon


def append(client: Any, number: int) -> int:
    event = {"type": "note", "data": {"number": number}}
    return int(client.call("event.append", event)["seq"])


def events(client: Any) -> list[int]:
    page = client.call("event.list", {"type": "note", "limit": 1_000})
    return [event["data"]["number"] for event in page["events"]]


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_takes_nothing_that_was_acknowledged(fleet: Any, eager: Any, seed: int) -> None:
    client = eager.client()
    for number in range(60):
        append(client, number)
    acknowledged = [60]
    after = random.Random(seed).uniform(0.0, 0.05)
    killer = threading.Timer(after, eager.signal, [signal.SIGKILL])
    killer.start()
    try:
        while True:
            client.send("event.append", {"type": "note", "data": {"number": acknowledged[0]}})
            if (line := client.line()) is None:
                break
            assert "result" in line
            acknowledged[0] += 1
    except (BrokenPipeError, ConnectionResetError):
        pass
    killer.join()
    assert eager.wait() == -signal.SIGKILL
    assert "on the loop" in eager.log
    stored = events(fleet.start().client())
    assert stored == list(range(len(stored)))
    assert acknowledged[0] <= len(stored) <= acknowledged[0] + 1


def test_subscribers_hear_of_everything_in_order_and_the_log_is_whole_at_the_end(
    eager: Any,
) -> None:
    """Two clients, one of whom leaves after each request without reading its reply."""
    client, listener = eager.client(), eager.client()
    listener.call("event.subscribe", {"since": 0})
    mission = client.call("mission.create", {"title": "m"})["id"]
    client.call("mission.start", {"mission_id": mission})
    made = []
    for number in range(30):
        append(client, number)
        gone = eager.client()
        gone.send("event.append", {"type": "note", "data": {"number": 1_000 + number}})
        gone.sock.close()
        if number % 10 == 9:
            made.append(client.call("checkpoint.create", {"mission_id": mission})["id"])
    eager.signal(signal.SIGTERM)
    heard = []
    while (line := listener.line()) is not None:
        if line.get("method") == "event":
            heard.append(line["params"]["event"])
    assert eager.wait() == 0
    assert [event["seq"] for event in heard] == sorted({event["seq"] for event in heard})
    own = [each["data"]["number"] for each in heard if each["type"] == "note"]
    assert [number for number in own if number < 1_000] == list(range(30))
    for checkpoint_id in made:
        assert f"Checkpoint created: {checkpoint_id}" in eager.log


def test_a_request_whose_reply_was_read_has_its_line_in_the_log(eager: Any) -> None:
    """Also when the daemon is told to stop at that very moment."""
    client = eager.client()
    mission = client.call("mission.create", {"title": "m"})["id"]
    client.call("mission.start", {"mission_id": mission})
    for number in range(30):
        append(client, number)
    time.sleep(0.05)
    taken = client.call("checkpoint.create", {"mission_id": mission})["id"]
    assert eager.stop() == 0
    assert f"Checkpoint created: {taken}" in eager.log
