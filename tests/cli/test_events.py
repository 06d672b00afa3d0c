"""``fleetctl events``: the log up to now, and as it grows."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fleetctl.client import Fleet

PATIENCE_S = 60


@pytest.fixture
def follow(home) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that follows events in a process of its own."""
    started = []

    def start(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", "events", "--follow", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background has SIGINT ignored, and so would the child.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        # A line that never comes must fail the test, not hang it.
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        started.append((process, watchdog))
        return process

    yield start
    for process, watchdog in started:
        watchdog.cancel()
        watchdog.join()
        process.kill()
        process.communicate()


def next_event(process: subprocess.Popen[str]) -> dict:
    """Return the next event that a follower printed."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_events_as_text_and_as_json(done, mission):
    text = done("events").out.splitlines()
    events = done("events", "--json").json

    assert [line.split()[2] for line in text] == [event["type"] for event in events]
    assert events[0]["type"] == "mission_created"
    assert text[0].endswith("title=Test")
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(seqs)


def test_events_by_type_mission_position_and_number(done, mission):
    other = done("mission", "create", "Other").id("msn")
    everything = done("events", "--json").json

    created = done("events", "--type", "mission_created", "--json").json
    assert [event["mission_id"] for event in created] == [mission, other]
    both = done("events", "--type", "mission_created", "--type", "sortie_created", "--json").json
    assert {event["type"] for event in both} == {"mission_created", "sortie_created"}
    assert {e["mission_id"] for e in done("events", "--mission", other, "--json").json} == {other}
    assert done("events", "--limit", "1", "--json").json == everything[-1:]
    assert done("events", "--since", "0", "--limit", "2", "--json").json == everything[:2]
    assert done("events", "--since", str(everything[-1]["seq"])).out == "No events found.\n"


def test_the_newest_of_many_events_are_found(done, daemon):
    sorties = [{"title": f"Sortie {n}"} for n in range(1_100)]
    done("call", "mission.create", json.dumps({"title": "Large", "sorties": sorties}))

    newest = done("events", "--type", "sortie_created", "--limit", "2", "--json").json

    assert [event["data"]["title"] for event in newest] == ["Sortie 1098", "Sortie 1099"]


def test_events_of_a_mission_or_type_do_not_read_the_whole_log(done, daemon, monkeypatch):
    sorties = [{"title": f"Sortie {n}"} for n in range(1_100)]
    made = done("call", "mission.create", json.dumps({"title": "Large", "sorties": sorties}))
    told = []
    call = Fleet.call

    def counted(self: Fleet, request: Any, **more: Any) -> Any:
        answer = call(self, request, **more)
        told.append(len(answer.get("events", ())))
        return answer

    monkeypatch.setattr(Fleet, "call", counted)
    for options in (
        ("--mission", made.json["id"]),
        ("--type", "sortie_created"),
        ("--type", "sortie_created", "--type", "mission_created"),
    ):
        told.clear()
        assert len(done("events", *options, "--json").json) == 50
        assert told == [50]


def test_events_of_an_agent_with_or_without_a_type(done, mission):
    for agent in ("alice", "bob"):
        done("agent", "start", agent)
        done("call", "event.append", json.dumps({"type": "note_taken", "agent_id": agent}))

    alices = done("events", "--agent", "alice", "--json").json
    assert [event["type"] for event in alices] == ["agent_registered", "note_taken"]
    noted = done("events", "--agent", "bob", "--type", "note_taken", "--json").json
    assert [event["agent_id"] for event in noted] == ["bob"]
    begun = done("events", "--agent", "bob", "--since", "0", "--type", "note_taken", "--json").json
    assert begun == noted
    assert done("events", "--agent", "carol").out == "No events found.\n"


def test_events_since_takes_a_number_or_an_age(done, run, mission, monkeypatch):
    everything = done("events", "--since", "0", "--json").json
    assert done("events", "--since", "1h", "--json").json == everything
    monkeypatch.setattr("fleetctl.output.console.now_ms", lambda: 4_000_000_000_000)
    assert done("events", "--since", "1h").out == "No events found.\n"
    for wrong in ("1w", "-1", "", "1.5"):
        refused = run("events", f"--since={wrong}")
        assert (refused.status, "an age such as 30m, 2h or 3d" in refused.err) == (2, True)


def test_events_of_an_age_are_its_newest_and_those_after_a_number_its_first(done, daemon):
    sorties = [{"title": f"Sortie {n}"} for n in range(60)]
    done("call", "mission.create", json.dumps({"title": "Large", "sorties": sorties}))
    everything = done("events", "--since", "0", "--limit", "1000", "--json")
    whole, many = everything.json, str(len(everything.json))
    assert everything.err == ""

    recent = done("events", "--since", "1h", "--json")
    assert recent.json == whole[-50:]
    assert "There are more events of that age. These are the newest 50" in recent.err
    assert "--limit" in recent.err
    one = done("events", "--since", "1h", "--type", "sortie_created", "--limit", "1")
    assert "Sortie 59" in one.out
    assert "the newest 1:" in one.err
    assert done("events", "--since", "1h", "--limit", many).err == ""

    first = done("events", "--since", "0", "--json")
    assert first.json == whole[:50]
    assert f"There are more events; continue with --since {whole[49]['seq']}." in first.err
    rest = done("events", "--since", str(whole[49]["seq"]), "--json")
    assert (first.json + rest.json, rest.err) == (whole, "")
    assert done("events", "--limit", "1").err == ""


def test_an_agents_events_of_the_last_hour_are_followed(done, mission, follow):
    for agent in ("alice", "bob"):
        done("agent", "start", agent)
    process = follow("--agent", "bob", "--since", "1h", "--json", "--limit", "2")
    assert next_event(process)["agent_id"] == "bob"
    for agent in ("alice", "bob"):
        done("call", "event.append", json.dumps({"type": "note_taken", "agent_id": agent}))
    assert (next_event(process)["agent_id"], process.wait(PATIENCE_S)) == ("bob", 0)


def test_follow_goes_on_after_the_daemon_was_restarted(done, daemon, follow):
    done("mission", "create", "Before")
    process = follow("--since", "0", "--json", "--type", "mission_created", "--limit", "2")
    assert next_event(process)["data"]["title"] == "Before"

    daemon.stop()
    assert process.stderr is not None
    assert "waiting until it is back" in process.stderr.readline()
    daemon.start()
    done("mission", "create", "After")

    assert next_event(process)["data"]["title"] == "After"
    assert process.wait(PATIENCE_S) == 0


def test_ctrl_c_ends_following_quietly(done, mission, follow):
    process = follow("--since", "0")
    assert process.stdout is not None
    assert "mission_created" in process.stdout.readline()

    process.send_signal(signal.SIGINT)

    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    assert "Traceback" not in out


def test_following_a_store_that_was_replaced_starts_at_its_end(done, daemon, follow, home):
    done("mission", "create", "Before")
    process = follow("--since", "0", "--json", "--type", "mission_created", "--limit", "2")
    assert next_event(process)["data"]["title"] == "Before"

    daemon.stop()
    assert process.stderr is not None
    assert "The connection to fleetd ended" in process.stderr.readline()
    for file in (home / "data").glob("squawk.db*"):
        file.unlink()
    daemon.start()
    assert "from the end of the new log" in process.stderr.readline()
    # The subscription that follows this line may come after the next event: offer several.
    while process.poll() is None:
        done("mission", "create", "After")

    assert next_event(process)["data"]["title"] == "After"
