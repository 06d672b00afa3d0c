"""What an older fleetd remembered is there after an upgrade: every record, for every schema."""

import json
import signal
import sqlite3
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from fleetctl.client import Fleet
from fleetd.store.sqlite import page_checksums
from fleetd.store.sqlite.migrate import migrations
from tests.integration.upgrades import recorded
from tests.support.processes import READY_S, Daemon, fleetctl

HERE = Path(__file__).parent
KEPT = sorted(HERE.glob("schema-*.tar.xz"), key=lambda file: (len(file.name), file.name))
NEWEST = migrations()[-1][0]
# They were recorded some time ago: nothing may go just because it is old.
CONFIG = """
[retention]
days = 36500
keep = 1000
completed_days = 36500
event_days = 36500
snapshots_per_run = 10000
snapshot_days = 36500
snapshot_gzip_hours = 0
"""
# Kinds that the first schemas do not have.
LATER = {"snapshots", "running", "notes", "budgets"}
# What time does to a record, and where a file lies, is not what was stored.
CHANGES = {
    "missions": {"updated_at"},
    "agents": {"status", "pid"},  # their processes have ended
    "locks": {"status", "released_at"},
    "checkpoints": {"storage_locations", "backed_up_at", "warnings", "source_details"},
    "snapshots": {"storage_locations", "backed_up_at", "warnings", "compressed_at", "artifacts"},
    "recoveries": {"state", "updated_at"},
    "cursors": {"epoch"},
}


@pytest.fixture
def old(home: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Put what an old fleetd left into the home, and return what it had told of that."""
    with tarfile.open(request.param) as packed:
        packed.extractall(home, filter="data")
    for path in (home / "data", *(home / "flightline").rglob("*"), home / "flightline"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (home / "config" / "fleet").mkdir()
    (home / "config" / "fleet" / "config.toml").write_text(CONFIG)
    told: dict[str, Any] = json.loads((home / "recorded.json").read_text())
    return told


@pytest.fixture
def upgraded(home: Path) -> Iterator[Daemon]:
    """Return a daemon of today that the test starts."""
    daemon = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log")
    yield daemon
    daemon.clean_up()


every_schema = pytest.mark.parametrize(
    "old", KEPT, ids=lambda file: file.name.split(".")[0], indirect=True
)
oldest = pytest.mark.parametrize("old", KEPT[:1], ids=["schema-1"], indirect=True)


# A fleetd that dies, or whose disk fails, when a migration has been carried out.
KILLED = "os.kill(os.getpid(), 9)"
FAILING = "raise apsw.SQLError('no such column: nonsense')"
PATCHED = """
import os, sys
import apsw
from fleetd.__main__ import main
from fleetd.store.sqlite import connect
migrate = connect.migrate
def tripping(connection, path):
    def trace(cursor, sql, bindings):
        if sql.strip() == "PRAGMA user_version = {number}":
            {then}
        return True
    connection.exec_trace = trace
    return migrate(connection, path)
connect.migrate = tripping
sys.exit(main([]))
"""


def patched(then: str, number: int) -> list[str]:
    return [sys.executable, "-c", PATCHED.format(then=then, number=number)]


def told_by(daemon: Daemon) -> dict[str, Any]:
    with Fleet(daemon.socket) as client:
        return recorded.of(lambda method, **params: client.call_raw(method, params))


def same(kind: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Compare the records of a kind: every field that was told of is told of, and as it was."""
    assert before.keys() <= now.keys(), kind
    leaving = CHANGES.get(kind, set())
    for each, record in before.items():
        kept = {name: value for name, value in record.items() if name not in leaving}
        assert like(kept, now[each]) == kept, f"{kind} {each}"


def like(before: Any, now: Any) -> Any:
    """Return what is told now without the fields that nobody knew before."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {name: like(before[name], now[name]) for name in before.keys() & now.keys()}
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [like(*each) for each in zip(before, now, strict=True)]
    return now


def version(home: Path) -> int:
    with sqlite3.connect(f"file:{home}/data/squawk.db?mode=ro", uri=True) as database:
        found: int = database.execute("PRAGMA user_version").fetchone()[0]
    database.close()
    return found


def dumped(home: Path) -> list[str]:
    """Return everything that a database holds, as SQL."""
    with sqlite3.connect(f"file:{home}/data/squawk.db?mode=ro", uri=True) as database:
        lines = list(database.iterdump())
    database.close()
    return lines


def test_there_is_one_of_every_schema_version() -> None:
    """Has the schema a new version? Keep a home of the one before; README says how."""
    assert [file.name for file in KEPT] == [f"schema-{n}.tar.xz" for n in range(1, NEWEST + 1)]


@every_schema
def test_every_record_is_there_after_the_upgrade(
    old: dict[str, Any], upgraded: Daemon, home: Path
) -> None:
    upgraded.start()
    now = told_by(upgraded)
    for kind in recorded.KINDS:
        assert kind in LATER or old[kind], f"the old one recorded no {kind}"
        same(kind, old.get(kind, {}), now[kind])
    with Fleet(upgraded.socket) as client:
        findings = client.call_raw("system.doctor")["findings"]
        verified = client.call_raw("checkpoint.verify")["findings"]
    assert [each for each in (*findings, *verified) if not each["ok"]] == []
    upgraded.stop()
    assert version(home) == NEWEST


@every_schema
def test_a_mission_from_before_is_recovered(old: dict[str, Any], upgraded: Daemon) -> None:
    upgraded.start()
    [mission] = [each for each in old["missions"].values() if each["title"].startswith("Add login")]
    resumed = fleetctl("resume", "--mission", mission["id"], "--agent", "alice", "--yes", "--json")
    assert resumed.status == 0, resumed
    assert resumed.json["success"] is True
    assert "Add login \u2013 caf\u00e9" in resumed.json["prompt"]
    sorties = told_by(upgraded)["sorties"]
    done = [each for each in old["sorties"].values() if each["status"] == "completed"]
    assert done
    for each in done:
        assert (sorties[each["id"]]["status"], sorties[each["id"]]["result"]) == (
            "completed",
            each["result"],
        )
    upgraded.stop()


@pytest.mark.parametrize("old", [HERE / "schema-9.tar.xz"], ids=["schema-9"], indirect=True)
def test_who_was_lost_before_needs_a_person(
    old: dict[str, Any], home: Path, upgraded: Daemon
) -> None:
    file = home / "data" / "squawk.db"
    with closing(page_checksums.opened(str(file), flags=apsw.SQLITE_OPEN_READWRITE)) as before:
        before.execute("UPDATE agents SET status = 'lost' WHERE id IN ('alice', 'bob')")
        before.execute("UPDATE agents SET succeeded_by = 'alice' WHERE id = 'bob'")
    upgraded.start()
    with Fleet(upgraded.socket) as client:
        agents = client.call_raw("attention.list", {"waiting": True})["agents"]
    [alice] = [each for each in agents if each["agent_id"] in ("alice", "bob")]
    assert (alice["agent_id"], alice["needs"]) == ("alice", "lost")
    assert alice["since"] == old["agents"]["alice"]["last_seen_at"]
    upgraded.stop()


@oldest
def test_an_upgrade_that_is_killed_in_the_middle_goes_on_at_the_next_start(
    old: dict[str, Any], home: Path, upgraded: Daemon
) -> None:
    command = upgraded.command
    for number in (2, NEWEST // 2, NEWEST):
        upgraded.command = patched(KILLED, number)
        assert upgraded.spawn().wait(READY_S) == -signal.SIGKILL
        assert version(home) == 1
    upgraded.command = command
    upgraded.start()
    now = told_by(upgraded)
    for kind in recorded.KINDS:
        same(kind, old.get(kind, {}), now[kind])
    upgraded.stop()
    assert version(home) == NEWEST


@oldest
def test_an_upgrade_that_fails_leaves_the_old_database_as_it_was(
    old: dict[str, Any], home: Path, upgraded: Daemon
) -> None:
    before = dumped(home)
    upgraded.command = patched(FAILING, NEWEST)
    assert upgraded.spawn().wait(READY_S) == 78
    said = upgraded.log.read_text()
    assert "cannot be brought up to date: no such column: nonsense" in said
    assert "Traceback" not in said
    assert version(home) == 1
    assert dumped(home) == before


@pytest.mark.parametrize("old", KEPT[-1:], ids=[f"schema-{NEWEST}"], indirect=True)
def test_a_database_of_a_newer_fleetd_is_refused_and_untouched(
    old: dict[str, Any], home: Path, upgraded: Daemon
) -> None:
    file = home / "data" / "squawk.db"
    with closing(page_checksums.opened(str(file), flags=apsw.SQLITE_OPEN_READWRITE)) as newer:
        newer.pragma("user_version", NEWEST + 1)
    before = file.read_bytes()
    assert upgraded.spawn().wait(READY_S) == 78
    said = upgraded.log.read_text()
    assert f"schema version {NEWEST + 1}, this fleetd knows up to {NEWEST}" in said
    assert "Install the newer fleetd again, or restore a backup from before the upgrade" in said
    assert file.read_bytes() == before
