"""fleetctl forget: what it shows, asks and reports; and a daemon killed in the middle of it."""

import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import NotFound
from tests.support.processes import Daemon

SECRET = "sentinel-7f3a"


def places_of(root: Path, text: str) -> list[Path]:
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".log"]
    return [path for path in files if text in path.name or text.encode() in path.read_bytes()]


@pytest.fixture
def secret(daemon: Daemon, done) -> str:
    """Return the id of a mission in progress with a secret in it."""
    mission = done("mission", "create", SECRET, "--sortie", "One").id("msn")
    done("mission", "start", mission)
    done("agent", "start", "alice", "--mission", mission)
    done("agent", "note", "alice", "--last-action", SECRET)
    done("checkpoint", "--mission", mission, "--note", SECRET)
    done("snapshot", "record", "--run", "run-1", "--agent", "alice", "--note", SECRET)
    return mission


def test_forget_shows_what_goes_asks_and_leaves_not_a_byte(run, done, secret, answer, home):
    dry = done("forget", "mission", secret[:8], "--dry-run").out
    assert dry.startswith("This will be forgotten: 1 mission, 1 sortie, 1 agent, ")
    assert "1 checkpoint, 1 run, 1 snapshot, 4 files (" in dry
    assert f"  {secret}  in_progress  " in dry
    assert re.search(r"^  run-1  in_progress  [\d.]+ kB  1 snapshot$", dry, re.MULTILINE)
    assert dry.splitlines()[3:5] == ["Not finished: 1 mission.", "Still at work: alice."]
    assert dry.endswith("[DRY RUN] Nothing was forgotten.\n")

    answer("n")
    refused = run("forget", "mission", secret)
    assert (refused.status, refused.out.splitlines()[-1]) == (3, "Nothing was forgotten.")
    assert "Forget all of this? [y/N]" in refused.err
    assert places_of(home, SECRET)

    answer("y")
    result = done("forget", "mission", secret)
    assert result.out.splitlines()[-1].startswith("Forgotten: 1 mission, 1 sortie, 1 agent, ")
    assert places_of(home, SECRET) == []
    assert run("forget", "mission", secret, "--yes").status == 4


def test_without_a_terminal_it_refuses_and_names_yes(run, secret):
    refused = run("forget", "mission", secret)
    assert (refused.status, "Use --yes" in refused.err) == (2, True)
    refused = run("forget", "mission", secret, "--json")
    assert (refused.status, refused.out) == (2, "")
    assert run("mission", "show", secret).status == 0


def test_json_is_one_document(done, secret):
    seen = done("forget", "mission", secret, "--dry-run", "--json").json
    assert seen["details"][0]["title"] == SECRET
    gone = done("forget", "mission", secret, "--yes", "--json").json
    assert (gone["missions"], gone["details"], gone["warnings"]) == (1, [], [])


def test_a_project_is_the_repository_here_or_the_directory_that_is_named(
    run, done, secret, home, monkeypatch
):
    (home / "project" / ".git").mkdir()
    (home / "project" / "src").mkdir()
    monkeypatch.chdir(home / "project" / "src")
    assert run("forget", "project", ".", "--yes").status == 1
    assert secret in done("forget", "project", "..", "--dry-run").out
    assert secret in done("forget", "project", "--dry-run").out
    done("forget", "project", "--yes")
    assert done("mission", "list").out == "No missions found.\n"
    assert "has no records of" in run("forget", "project").err


def test_a_session_is_named_as_its_agents_named_it(run, done, daemon, connect, home):
    own, shared = connect().call_raw, done("mission", "create", "Shared").id("msn")
    register = {"role": "specialist", "mission_id": shared}
    own("agent.register", {"agent_id": "alice", "session_id": "s-1", **register})
    own("agent.register", {"agent_id": "bob", "session_id": "s-2", **register})
    own("agent.note", {"agent_id": "alice", "last_action": SECRET})

    result = done("forget", "session", "s-1", "--yes")

    assert result.out.startswith("Forgotten: 1 agent, ")
    assert f"1 mission in which others worked too will still mention it: {shared}." in result.out
    assert places_of(home, SECRET) == []
    assert run("forget", "session", "s-1").status == 4


def test_a_daemon_that_is_killed_in_the_middle_forgets_all_or_nothing(done, daemon, home):
    for number in range(5):
        mission = done("mission", "create", f"{SECRET} {number}", "--sortie", "One").id("msn")
        for _ in range(4):
            done("checkpoint", "--mission", mission)
        request = {"jsonrpc": "2.0", "id": 1, "method": "system.forget"}
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(daemon.socket))
            line = json.dumps(request | {"params": {"mission_id": mission}})
            sock.sendall(line.encode() + b"\n")
            time.sleep(number * 0.006)
            daemon.kill()
        daemon.start()
        listed = [each["id"] for each in done("mission", "list", "--json").json]
        if mission in listed:
            kept = done("checkpoints", "list", "--mission", mission, "--json").json
            assert len(kept) == len(list((home / "flightline").rglob("chk-*.json"))) == 4
            done("forget", "mission", mission, "--yes")
        assert places_of(home, mission) == []
        assert places_of(home, SECRET) == []


def test_agents_that_go_on_writing_to_a_daemon_bring_nothing_back(done, secret, connect, home):
    over, refused, latencies = threading.Event(), set(), []
    told = {"mission_id": secret, "subject": SECRET, "from": "alice", "to": ["bob"]}
    wanted = (
        ("checkpoint.create", {"mission_id": secret, "trigger_details": SECRET}),
        ("agent.note", {"agent_id": "alice", "last_action": SECRET}),
        ("message.send", told),
        ("lock.acquire", {"file": f"/{SECRET}", "agent_id": "alice", "mission_id": secret}),
    )

    def write(client: Fleet) -> None:
        while not over.is_set():
            for method, params in wanted:
                try:
                    client.call_raw(method, params)
                except NotFound:
                    refused.add(method)

    def stand_by(client: Fleet) -> None:
        while not over.is_set():
            began = time.monotonic()
            client.call_raw("agent.register", {"agent_id": "carol", "role": "specialist"})
            latencies.append(time.monotonic() - began)

    clients = [connect() for _ in range(3)]
    threads = [threading.Thread(target=write, args=(client,)) for client in clients[:2]]
    threads.append(threading.Thread(target=stand_by, args=(clients[2],)))
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.3)
        done("forget", "mission", secret, "--yes")
        time.sleep(0.3)
    finally:
        over.set()
        for thread in threads:
            thread.join()

    assert refused == {method for method, _ in wanted}
    assert places_of(home, SECRET) == []
    assert places_of(home, secret) == []
    assert max(latencies) < 5
