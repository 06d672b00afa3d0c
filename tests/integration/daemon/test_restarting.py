"""A disk that fails ends the daemon; the next one goes on, and clients hardly notice."""

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, Storage
from fleetd.protocol.requests.mission import MissionList
from tests.support.hook_client import hook, spooled
from tests.support.processes import READY_S, fleetctl
from tests.support.supervised_daemon import (
    AFTER_COMMIT,
    BEFORE_COMMIT,
    FILES_HANG,
    KILLED,
    Supervised,
    failing,
)

EVERY = (BEFORE_COMMIT, AFTER_COMMIT, KILLED)


@pytest.fixture
def running(home: Path) -> Iterator[Supervised]:
    with failing(home) as supervised:
        yield supervised


@pytest.fixture
def plan(home: Path) -> Callable[[str], None]:
    """Return a function that lets something happen at the next opportunity."""
    return lambda fault: (home / "faults" / fault).touch()


def titles(running: Supervised) -> list[str]:
    with Fleet(running.daemon.socket) as client:
        return [each.title for each in client.call(MissionList()).missions]


def test_who_asks_a_failed_daemon_is_told_to_ask_again_and_who_reads_is_answered(
    running: Supervised, plan: Callable[[str], None]
) -> None:
    with Fleet(running.daemon.socket) as client:
        client.call_raw("mission.create", {"title": "before"})
        plan(BEFORE_COMMIT)
        for title in ("in flight", "new"):
            with pytest.raises(Storage) as refusal:
                client.call_raw("mission.create", {"title": title})
            assert refusal.value.data()["retry"] is True
            assert "restarts it" in refusal.value.hint
        assert client.call_raw("mission.list")["total"] == 1
    running.wait_for_restart()
    assert running.statuses == [1]
    assert titles(running) == ["before"]
    log = running.daemon.log.read_text()
    assert re.search(r"\[ERROR\] Storage failed: a write failed - fleetd stops", log)
    assert "Traceback" not in log


def until_somebody_waits(database: Path) -> None:
    deadline = time.monotonic() + READY_S
    with contextlib.closing(sqlite3.connect(database)) as connection:
        while not connection.execute("SELECT count(*) FROM lock_waits").fetchone()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_who_waits_for_a_lock_is_told_when_the_disk_fails(
    running: Supervised, plan: Callable[[str], None], home: Path
) -> None:
    errors: list[FleetError] = []

    def wait() -> None:
        with Fleet(running.daemon.socket) as client:
            try:
                client.call_raw("lock.acquire", {"agent_id": "b", "file": "/f", "wait_ms": 60_000})
            except FleetError as error:
                errors.append(error)

    with Fleet(running.daemon.socket) as client:
        for agent in ("a", "b"):
            client.call_raw("agent.register", {"agent_id": agent, "role": "specialist"})
        client.call_raw("lock.acquire", {"agent_id": "a", "file": "/f"})
        waiting = threading.Thread(target=wait)
        waiting.start()
        until_somebody_waits(home / "data" / "squawk.db")
        plan(BEFORE_COMMIT)
        with pytest.raises(Storage):
            client.call_raw("mission.create", {"title": "lost"})
        waiting.join(30)
    assert [error.values.get("retry") for error in errors] == [True]
    running.wait_for_restart()


def test_a_file_that_hangs_does_not_hold_a_failed_daemon_up(
    running: Supervised, plan: Callable[[str], None]
) -> None:
    with Fleet(running.daemon.socket) as client:
        mission = client.call_raw("mission.create", {"title": "m"})["id"]
        client.call_raw("mission.start", {"mission_id": mission})
        plan(FILES_HANG)
        client.call_raw("checkpoint.create", {"mission_id": mission, "wait_for_backup": False})
        plan(BEFORE_COMMIT)
        with pytest.raises(Storage):
            client.call_raw("mission.create", {"title": "lost"})
    running.wait_for_restart()
    assert running.statuses == [1]


def test_a_command_goes_on_over_restarts_and_is_applied_once(
    running: Supervised, plan: Callable[[str], None]
) -> None:
    for fault in EVERY:
        plan(fault)
        created = fleetctl("mission", "create", fault)
        assert created.status == 0, created
    plan(AFTER_COMMIT)
    called = fleetctl("call", "mission.create", '{"title": "called"}')
    assert called.status == 0, called
    assert sorted(titles(running)) == sorted([*EVERY, "called"])
    assert len(running.statuses) == 4


def told(event: str, **more: str) -> str:
    where = {"session_id": "s-1", "cwd": str(Path.cwd()), "transcript_path": "/c/s-1.jsonl"}
    return json.dumps({**where, "hook_event_name": event, **more})


def test_hooks_are_recorded_once_and_their_agent_is_briefed_all_the_same(
    running: Supervised, plan: Callable[[str], None]
) -> None:
    hook(told("SessionStart", source="startup"))
    hook(told("UserPromptSubmit", prompt="Write the parser"))
    for number, fault in enumerate(EVERY):
        hook(told("PreCompact", trigger="auto"))
        plan(fault)
        assert hook(told("SessionStart", source="compact")).silent
        running.wait_for_restart(number + 1)
        assert spooled() == []
        told_again = hook(told("UserPromptSubmit", prompt=f"Go on {number}"))
        assert b"Write the parser" in told_again.out
    with Fleet(running.daemon.socket) as client:
        page = client.call_raw("event.list", {"type": "prompt_submitted"})
        status = client.call_raw("hook.status")
    said = [event["data"]["prompt"] for event in page["events"]]
    assert said == ["Write the parser", "Go on 0", "Go on 1", "Go on 2"]
    assert sum(each["deliveries"] for each in status["harnesses"]) == 2 + 3 * 3


def test_following_events_goes_on_where_it_was(
    running: Supervised, plan: Callable[[str], None]
) -> None:
    following = subprocess.Popen(
        [
            *(sys.executable, "-m", "fleetctl", "events", "--follow", "--since", "0"),
            *("--limit", "2", "--type", "mission_created", "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert fleetctl("mission", "create", "One").status == 0
        plan(AFTER_COMMIT)
        assert fleetctl("mission", "create", "Two").status == 0
        out, _ = following.communicate(timeout=60)
    finally:
        following.kill()
        following.wait()
    assert [json.loads(line)["data"]["title"] for line in out.splitlines()] == ["One", "Two"]
