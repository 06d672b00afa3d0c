"""``fleetctl migrate``, with a real daemon before and after, and killed in the middle."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetctl.client import Fleet
from fleetd.protocol.migration import MigrationRequest
from tests.integration.upgrades import recorded
from tests.support.postgres_server import LocalPostgres
from tests.support.processes import Daemon, fleetctl

# A move that dies when it has come to a step, as in a power cut.
DYING = """
import os, sys
from fleetd.__main__ import main
from fleetd.engine.offline import migrate_store as migrate
from fleetd.store.transfer import copy, sqlite_side, postgres_side
def dies(*_, **__):
    os.kill(os.getpid(), 9)
{where} = dies
sys.exit(main(["--migrate"]))
"""
STEPS = (
    "copy.TransferPlan.leaving",
    "migrate.note_arrived",
    "migrate.note_moved",
)


@pytest.fixture(autouse=True)
def _alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a store of one's own, also where other tests have a shared one."""
    monkeypatch.delenv("FLEET_DATABASE_URL", raising=False)


@pytest.fixture
def running(home: Path) -> Iterator[Daemon]:
    """Return a daemon that the test starts."""
    daemon = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log", warm=True)
    yield daemon
    daemon.clean_up()


def told_by(daemon: Daemon) -> dict[str, Any]:
    with Fleet(daemon.socket) as client:
        return recorded.of(lambda method, **params: client.call_raw(method, params))


def work(number: int) -> str:
    """Do something that is worth keeping; return the mission."""
    made = fleetctl("mission", "create", f"Part {number}", "--sortie", "One", "--sortie", "Two")
    mission = made.id("msn")
    assert fleetctl("mission", "start", mission).status == 0
    assert fleetctl("checkpoint", "--mission", mission, "--note", "Kept").status == 0
    return mission


def sound(*command: str) -> bool:
    """Whether a command finds nothing wrong, but that a test's server does not sync."""
    lines = fleetctl(*command).out.splitlines()
    return len(lines) > 1 and not [
        line for line in lines if line.startswith("WRONG") and " is off: " not in line
    ]


def same(before: dict[str, Any], now: dict[str, Any]) -> None:
    for kind in recorded.KINDS:
        for each, record in before[kind].items():
            known = now[kind][each]
            # Whose machine it is of is only told where there are several.
            assert {**known, "machine": None} == {**record, "machine": None}, f"{kind} {each}"


def test_a_daemon_finds_everything_again_there_and_back(
    home: Path,
    running: Daemon,
    postgres: LocalPostgres,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = postgres.url(database)
    running.start()
    mission = work(1)
    refused = fleetctl("migrate", "--to", url)
    assert refused.status == 1
    assert "fleetctl daemon stop" in refused.err
    before = told_by(running)
    running.stop()

    moved = fleetctl("migrate", "--to", url, "--json")
    assert moved.status == 0, moved
    assert moved.json["moved"] is True
    assert {each["table"] for each in moved.json["tables"]} >= {"events", "checkpoints"}
    assert fleetctl("migrate", "--to", url, "--check").status == 0
    assert running.spawn().wait(20) == 78
    assert "was moved to postgresql://" in running.log.read_text()

    monkeypatch.setenv("FLEET_DATABASE_URL", url)
    running.start()
    same(before, told_by(running))
    assert sound("doctor")
    assert sound("checkpoints", "verify")
    resumed = fleetctl("resume", "--mission", mission, "--yes", "--json")
    assert resumed.json["success"] is True
    work(2)
    before = told_by(running)
    running.stop()

    back = fleetctl("migrate", "--to", "sqlite")
    assert back.status == 0, back
    assert "Now set FLEET_DATABASE_URL where fleetd gets it from" in back.out
    monkeypatch.delenv("FLEET_DATABASE_URL")
    running.start()
    same(before, told_by(running))
    assert sound("doctor")
    running.stop()


def dying(step: str, errand: MigrationRequest) -> int:
    return subprocess.run(
        [sys.executable, "-c", DYING.format(where=step)],
        input=msgspec.json.encode(errand) + b"\n",
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=False,
    ).returncode


def test_killed_at_any_step_it_is_begun_anew(
    home: Path,
    running: Daemon,
    postgres: LocalPostgres,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = postgres.url(database)
    running.start()
    work(1)
    running.stop()
    running.start()
    before = told_by(running)
    running.stop()
    for step in STEPS:
        assert dying(step, MigrationRequest(what="move", to=url)) == -signal.SIGKILL
    assert fleetctl("migrate", "--to", url).status == 0
    for step in STEPS:
        assert (
            dying(step, MigrationRequest(what="move", to="sqlite", source=url)) == -signal.SIGKILL
        )
    assert fleetctl("migrate", "--to", "sqlite", "--from", url).status == 0
    running.start()
    same(before, told_by(running))
    assert sound("doctor")
    running.stop()


def test_a_store_that_was_moved_away_can_be_gone_on_with(
    home: Path, running: Daemon, postgres: LocalPostgres, database: str
) -> None:
    running.start()
    mission = work(1)
    with Fleet(running.socket) as client:
        epoch = client.call_raw("event.list")["epoch"]
    running.stop()
    assert fleetctl("migrate", "--to", postgres.url(database)).status == 0
    assert "without a terminal" in fleetctl("migrate", "--undo").err
    undone = fleetctl("migrate", "--undo", "--yes")
    assert "under a new epoch" in undone.out
    assert "nothing to undo" in fleetctl("migrate", "--undo", "--yes").err
    running.start()
    with Fleet(running.socket) as client:
        assert client.call_raw("event.list")["epoch"] != epoch
        assert client.call_raw("mission.get", {"mission_id": mission})["id"] == mission
    running.stop()
    again = fleetctl("migrate", "--to", postgres.url(database))
    assert "already holds another store" in again.err
