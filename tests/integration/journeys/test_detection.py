"""A real daemon notices by itself: a mission that falls silent, an agent that is killed."""

from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.records import Event
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.mission import MissionCreate, MissionStart
from fleetd.protocol.timestamps import to_ms
from tests.support.processes import Daemon, fleetctl

THRESHOLD_MS = 400


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Let the daemon that is started next call a mission silent after less than a second."""
    monkeypatch.setenv("FLEET_ACTIVITY_THRESHOLD_MS", str(THRESHOLD_MS))


def wait_for(client: Fleet, kind: str) -> Event:
    """Wait until an event of a type is there; only the daemon's own clock can bring it."""
    position = 0
    while True:
        page = client.call(EventList(type=kind, since=position))
        if page.events:
            return page.events[0]
        position = page.position


def test_silence_is_announced_when_the_threshold_has_passed(
    impatient: None, connect: Callable[[], Fleet]
) -> None:
    client = connect()
    mission = client.call(MissionStart(client.call(MissionCreate("Silent")).id))

    event = wait_for(client, "context_compacted")

    assert event.mission_id == mission.id
    # How late is told in virtual time elsewhere; a busy machine proves nothing.
    silent = to_ms(event.timestamp) - to_ms(event.data["last_activity_at"])
    assert silent > THRESHOLD_MS
    assert event.data["inactivity_duration_ms"] > THRESHOLD_MS
    status = fleetctl("status")
    assert f"fleetctl resume --mission {mission.id}" in status.out
    assert "pending" in status.out


def test_an_agent_that_is_killed_is_announced(
    connect: Callable[[], Fleet], mortal: Callable[[], Popen[bytes]]
) -> None:
    client, process = connect(), mortal()
    client.call(AgentRegister("spec-1", "specialist", pid=process.pid))

    process.kill()
    process.wait()

    assert wait_for(client, "agent_lost").agent_id == "spec-1"


def test_an_agent_that_died_while_the_daemon_was_down_is_announced_at_its_start(
    daemon: Daemon, connect: Callable[[], Fleet], mortal: Callable[[], Popen[bytes]]
) -> None:
    process = mortal()
    connect().call(AgentRegister("spec-1", "specialist", pid=process.pid))
    daemon.kill()
    process.kill()
    process.wait()

    daemon.start()

    assert wait_for(connect(), "agent_lost").agent_id == "spec-1"
