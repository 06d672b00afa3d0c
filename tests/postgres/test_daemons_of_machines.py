"""Two real daemons on one server: they know of each other, and each of its own processes."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError
from tests.postgres.shared_stores import turn_taken
from tests.support.postgres_server import LocalPostgres, run_sql
from tests.support.processes import Daemon, environment

PATIENCE_S = 30


@pytest.fixture
def daemons(postgres: LocalPostgres, database: str) -> Iterator[list[Daemon]]:
    """Two daemons, each with a home of its own, as on two machines."""
    homes = [Path(tempfile.mkdtemp(prefix="fleet-")) for _ in range(2)]
    store = {"FLEET_DATABASE_URL": postgres.url(database)}
    running = [
        Daemon(home / "run" / "d.sock", home / "log", env=environment(home) | store, warm=True)
        for home in homes
    ]
    try:
        for daemon in running:
            daemon.start()
        yield running
    finally:
        for daemon in running:
            daemon.clean_up()
        for home in homes:
            shutil.rmtree(home)


def ask(daemon: Daemon, method: str, **params: Any) -> Any:
    with Fleet(daemon.socket) as client:
        return client.call_raw(method, params)


def until(wanted: Any, look: Callable[[], Any]) -> None:
    """Wait, in real time, for what processes do."""
    deadline = time.monotonic() + PATIENCE_S
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


def standing(daemon: Daemon) -> list[str]:
    """Return how all machines stand, the one that answers first."""
    told = ask(daemon, "system.status")
    own = [each for each in told["machines"] if each["machine_id"] == told["machine"]]
    others = [each for each in told["machines"] if each not in own]
    return [each["status"] for each in (*own, *others)]


def test_they_are_here_leave_and_come_back(daemons: list[Daemon]) -> None:
    one, other = daemons
    for daemon in daemons:
        until(["here", "here"], lambda daemon=daemon: standing(daemon))

    other.stop()
    assert standing(one) == ["here", "left"]
    other.start()
    until(["here", "here"], lambda: standing(one))


@pytest.mark.parametrize(
    ("method", "params"),
    [("mission.create", {"title": "Login"}), ("event.append", {"type": "file_read"})],
    ids=["in a turn", "in one message"],
)
def test_a_daemon_that_waits_for_its_turn_says_that_it_stops(
    daemons: list[Daemon], postgres: LocalPostgres, database: str, method: str, params: Any
) -> None:
    one, other = daemons
    for daemon in daemons:
        until(["here", "here"], lambda daemon=daemon: standing(daemon))
    with turn_taken(postgres.url(database)), ThreadPoolExecutor(1) as aside:
        waiting = aside.submit(ask, other, method, **params)
        query = (
            "SELECT count(*) AS number FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        until([{"number": 1}], lambda: run_sql(postgres.url(database), query))

        other.stop()

        assert standing(one) == ["here", "left"]
        with pytest.raises(FleetError):
            waiting.result()
    assert ask(one, "event.list")["events"] == []


def test_an_agent_is_watched_where_it_runs(
    daemons: list[Daemon], mortal: Callable[[], Popen[bytes]]
) -> None:
    one, other = daemons
    stays, ends = mortal(), mortal()
    for daemon, agent, process in ((one, "stays", stays), (other, "ends", ends)):
        ask(daemon, "agent.register", agent_id=agent, role="specialist", pid=process.pid)

    def seen() -> list[tuple[str, str]]:
        agents = ask(one, "agent.list")["agents"]
        return [(each["id"], each["status"]) for each in agents]

    assert seen() == [("ends", "active"), ("stays", "active")]
    ends.kill()
    ends.wait()
    until([("ends", "lost"), ("stays", "active")], seen)
    (event,) = ask(one, "event.list", type="agent_lost")["events"]
    assert event["data"] == {"reason": f"process {ends.pid} is gone"}


def test_a_daemon_that_was_killed_finds_its_agents_again(
    daemons: list[Daemon],
    postgres: LocalPostgres,
    database: str,
    mortal: Callable[[], Popen[bytes]],
) -> None:
    one, other = daemons
    mission = ask(one, "mission.create", title="Login", sorties=[{"title": "Form"}])["id"]
    ask(one, "mission.start", mission_id=mission)
    agent = {"agent_id": "spec-1", "role": "specialist", "mission_id": mission}
    ask(other, "agent.register", pid=mortal().pid, **agent)
    until(["here", "here"], lambda: standing(one))
    other.kill()
    # A minute and more goes by, for the one that is left as well.
    postgres.sql(
        "UPDATE machines SET since_awake_ms = since_awake_ms - 90000,"
        " heard_awake_ms = heard_awake_ms - CASE WHEN id = %s THEN 0 ELSE 90000 END",
        ask(one, "system.status")["machine"],
        database=database,
    )
    postgres.sql("UPDATE agents SET seen_awake_ms = seen_awake_ms - 90000", database=database)
    until("lost", lambda: ask(one, "agent.get", agent_id="spec-1")["status"])
    assert standing(one) == ["here", "lost"]

    other.start()
    until("active", lambda: ask(one, "agent.get", agent_id="spec-1")["status"])
    events = ask(one, "event.list", mission_id=mission)["events"]
    told = [(each["type"], each["data"].get("needs")) for each in events]
    assert [each for each in told if each[0].startswith("agent_")] == [
        ("agent_registered", None),
        ("agent_lost", None),
        ("agent_needs", "lost"),
        ("agent_needs", "none"),
        ("agent_returned", None),
    ]
