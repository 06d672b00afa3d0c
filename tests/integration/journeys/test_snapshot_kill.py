"""The daemon is killed while snapshots are recorded: what it acknowledged is in row and file."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError
from tests.support.hook_client import hook
from tests.support.processes import Daemon, fleetctl

RUNS = ("build-1", "build-2")
SESSION = "s-1"
# It is killed when so many were acknowledged; not twice at the same step of anything.
KILLED_AFTER = (3, 45)


def told(event: str, **more: Any) -> str:
    """Return what Claude Code tells of an event."""
    payload = {"session_id": SESSION, "hook_event_name": event, "cwd": os.getcwd()}
    return json.dumps(payload | more)


def step(number: int) -> str:
    """Return what it tells when a plan goes on: the hook records a snapshot."""
    todos = [
        {"content": f"step {n}", "activeForm": f"step {n}", "status": status}
        for n, status in ((number, "completed"), (number + 1, "in_progress"))
    ]
    return told("PostToolUse", tool_name="TodoWrite", tool_input={"todos": todos})


class Recording:
    """Clients that record snapshots until the daemon is gone, and hooks beside them."""

    def __init__(self, daemon: Daemon) -> None:
        self.acknowledged: list[dict[str, Any]] = []
        self._daemon = daemon
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=self._record, args=[run]) for run in RUNS]
        self._threads.append(threading.Thread(target=self._hooks))
        self._number = 0

    def until(self, count: int) -> None:
        """Kill the daemon in the middle of it, when so many were acknowledged."""
        self._enough.clear()
        self._wanted = len(self.acknowledged) + count
        for thread in self._threads:
            thread.start()
        assert self._enough.wait(20)
        self._daemon.kill()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def _record(self, run_id: str) -> None:
        with Fleet(self._daemon.socket) as client:
            for number in range(1_000):
                outcome = {
                    "kind": "shell",
                    "name": "make",
                    "result": "PASS",
                    "summary": f"{number}",
                }
                said = {"run_id": run_id, "command_outcomes": [outcome]}
                try:
                    taken = client.call_raw("snapshot.record", said)
                except (FleetError, OSError):  # the daemon is gone
                    return
                self.acknowledged.append(taken)
                if len(self.acknowledged) >= self._wanted:
                    self._enough.set()

    def _hooks(self) -> None:
        while not self._enough.is_set():
            self._number += 1
            assert hook(step(self._number)).status == 0


def document(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the nine fields that stand in a file."""
    fields = ("snapshot_id", "created_at", "run_id", "source", "status")
    parts = ("step_state", "context_digest", "command_outcomes", "integrity")
    return {name: snapshot[name] for name in (*fields, *parts)}


def check(client: Fleet, checkpoints: Path, acknowledged: list[dict[str, Any]]) -> None:
    found = client.call_raw("snapshot.verify")
    assert found["ok"], [each for each in found["findings"] if not each["ok"]]
    for taken in acknowledged:
        got = client.call_raw("snapshot.get", {"snapshot_id": taken["snapshot_id"]})
        assert document(got) == document(taken)
        assert got["storage_locations"] == ["sqlite", "file"]
        assert got["warnings"] == []
        file = checkpoints / taken["run_id"] / "history" / f"{taken['snapshot_id']}.json"
        assert json.loads(file.read_bytes()) == document(taken)
    for run_id in (*RUNS, SESSION):
        rows = client.call_raw("snapshot.list", {"run_id": run_id, "limit": 1_000})["snapshots"]
        history = checkpoints / run_id / "history"
        wanted = {row["snapshot_id"] for row in rows}
        deadline = time.monotonic() + 10
        # What was past the 50 of a run goes after the start, when nobody waits for anything else.
        while {path.stem for path in history.iterdir()} > wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        assert {path.stem for path in history.iterdir()} == wanted
        newest = history / f"{rows[0]['snapshot_id']}.json"
        assert (checkpoints / run_id / "latest.json").read_bytes() == newest.read_bytes()
    assert not list(checkpoints.rglob(".tmp-*"))


def test_what_was_acknowledged_before_a_kill_is_there_in_row_and_file(
    daemon: Daemon, connect: Callable[[], Fleet], home: Path
) -> None:
    checkpoints = home / "flightline" / "checkpoints"
    hook(told("SessionStart", source="startup"))
    hook(step(0))
    acknowledged: list[dict[str, Any]] = []
    for count in KILLED_AFTER:
        recording = Recording(daemon)
        recording.until(count)
        acknowledged += recording.acknowledged
        daemon.start()
        check(connect(), checkpoints, acknowledged[-45:])
    seqs = [int(taken["snapshot_id"].rpartition("_")[2]) for taken in acknowledged]
    assert len(set(seqs)) == len(seqs)


@pytest.mark.parametrize("lost", ["database", "files", "latest"])
def test_what_a_kill_left_and_somebody_then_lost_comes_back(
    daemon: Daemon, connect: Callable[[], Fleet], home: Path, lost: str
) -> None:
    checkpoints = home / "flightline" / "checkpoints"
    hook(told("SessionStart", source="startup"))
    hook(step(0))
    recording = Recording(daemon)
    recording.until(10)
    acknowledged = recording.acknowledged
    if lost == "database":
        for path in (home / "data").glob("squawk.db*"):
            path.unlink()
        # Whose file was not written yet is lost with the database.
        on_disk = {path.stem for path in checkpoints.rglob("history/*.json")}
        acknowledged = [each for each in acknowledged if each["snapshot_id"] in on_disk]
        assert acknowledged, "no file was there before the kill"
    for path in checkpoints.rglob("*.json"):
        if lost == "files" or (lost == "latest" and path.name == "latest.json"):
            path.unlink()
    daemon.start()
    client = connect()
    check(client, checkpoints, acknowledged)
    before = max(int(taken["snapshot_id"].rpartition("_")[2]) for taken in acknowledged)
    taken = client.call_raw("snapshot.record", {"run_id": RUNS[0], "status": "paused"})
    assert int(taken["snapshot_id"].rpartition("_")[2]) > before
    check(client, checkpoints, [taken])


def test_a_file_in_the_way_is_told_on_the_command_line_with_its_reason_code(
    daemon: Daemon, connect: Callable[[], Fleet], home: Path
) -> None:
    checkpoints = home / "flightline" / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    (checkpoints / "build-1").write_text("in the way")
    done = fleetctl("snapshot", "record", "--run", "build-1")
    assert (done.status, done.out) == (1, "")
    assert "[checkpoint_atomic_write_failed]" in done.err
    assert "is stored, but its file" in done.err
    (row,) = connect().call_raw("snapshot.list", {"run_id": "build-1"})["snapshots"]
    assert row["snapshot_id"] in done.err
    found = fleetctl("snapshot", "verify", "build-1")
    assert found.status == 1
    assert "checkpoint_atomic_write_failed" in found.out
    (checkpoints / "build-1").unlink()
    assert fleetctl("snapshot", "verify", "build-1", "--repair").status == 0
    assert (checkpoints / "build-1" / "latest.json").is_file()
