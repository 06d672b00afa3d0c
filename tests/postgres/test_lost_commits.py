"""A daemon whose server was replaced by one that lacks commits: everybody is told, files help."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from tests.postgres.test_failover import follows, of_both
from tests.postgres.test_outages import until_away, until_back
from tests.support.postgres_server import LocalPostgres
from tests.support.processes import Daemon, fleetctl


@pytest.fixture
def standby(own_postgres: LocalPostgres) -> Iterator[LocalPostgres]:
    """Return a server that follows the other one, and takes its place when it is told to."""
    other = own_postgres.standby()
    try:
        yield other
    finally:
        other.clean_up()


def worked_on(client: Fleet, home: Path, title: str) -> Any:
    """Make a mission with a checkpoint, whose file is written."""
    made = client.call_raw("mission.create", {"title": title, "sorties": [{"title": "One"}]})
    client.call_raw("mission.start", {"mission_id": made["id"]})
    return client.call_raw("checkpoint.create", {"mission_id": made["id"], "created_by": "t"})


def test_what_files_hold_comes_back_and_a_new_epoch_says_so(
    home: Path,
    own_postgres: LocalPostgres,
    standby: LocalPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = own_postgres.new_database()
    monkeypatch.setenv("FLEET_DATABASE_URL", of_both(own_postgres, standby, name))
    daemon = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log", warm=True)
    daemon.start()
    try:
        before = until_back(daemon)
        with Fleet(daemon.socket) as client:
            worked_on(client, home, "kept")
            follows(standby, own_postgres)
            standby.stop()
            checkpoint = worked_on(client, home, "filed")
            client.call_raw("mission.create", {"title": "gone"})
            reached = client.call_raw("system.status")["position"]
            own_postgres.kill()
            until_away(daemon)
            standby.start()
            standby.promote()
            after = until_back(daemon)
            assert after["epoch"] != before["epoch"]
            assert after["position"] > reached
            missions = client.call_raw("mission.list")["missions"]
            assert {each["title"] for each in missions} == {"kept", "filed"}
            latest = client.call_raw("checkpoint.latest", {"mission_id": checkpoint["mission_id"]})
            assert latest["id"] == checkpoint["id"]
            (restored,) = client.call_raw("event.list", {"type": "store_restored"})["events"]
            assert restored["seq"] > reached
            assert client.call_raw("mission.create", {"title": "after"})["id"]
        log = fleetctl("doctor", "--json").json["findings"]
        (told,) = [each for each in log if each["check"] == "log"]
        assert "without the last commits" in told["detail"]
        shown = fleetctl("status", "-v").out
        assert "Commits lost: " in shown
        assert re.search(r"shared store: \d+ optimistic commits?, \d+ of them repeated;", shown)
        daemon.stop()
    finally:
        daemon.clean_up()
