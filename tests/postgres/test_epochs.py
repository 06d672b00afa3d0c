"""After a failover that lost commits every machine makes good what it knew, not only the first."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from fleetd.protocol.errors import Unavailable
from tests.postgres.test_daemons_of_machines import ask, until
from tests.postgres.test_failover import follows, of_both
from tests.support.postgres_server import LocalPostgres
from tests.support.processes import Daemon


@pytest.fixture
def made(new_daemon: Callable[[], Daemon]) -> Callable[[str], Daemon]:
    def make(url: str) -> Daemon:
        daemon = new_daemon()
        assert daemon.env is not None
        daemon.env["FLEET_DATABASE_URL"] = url
        daemon.start()
        return daemon

    return make


def serves(daemon: Daemon) -> bool:
    status = ask(daemon, "system.status")
    return bool(status["epoch"]) and not status["store"].get("away")


def test_who_comes_back_second_takes_its_files_in_too(
    own_postgres: LocalPostgres, made: Callable[[str], Daemon]
) -> None:
    name = own_postgres.new_database()
    standby = own_postgres.standby()
    try:
        first, second = (made(of_both(own_postgres, standby, name)) for _ in range(2))
        mission = ask(second, "mission.create", title="T")["id"]
        epoch = ask(first, "system.status")["epoch"]
        follows(standby, own_postgres)
        standby.stop()
        taken = ask(second, "checkpoint.create", mission_id=mission, trigger="manual")["id"]
        until(
            True, lambda: bool(ask(second, "checkpoint.get", checkpoint_id=taken)["backed_up_at"])
        )
        # The first loses something too, and begins an epoch by itself.
        ask(first, "event.append", type="note", mission_id=mission)
        assert second.process is not None
        os.kill(second.process.pid, signal.SIGSTOP)
        try:
            own_postgres.kill()
            standby.start()
            standby.promote()
            until(True, lambda: serves(first) and ask(first, "system.status")["epoch"] != epoch)
        finally:
            os.kill(second.process.pid, signal.SIGCONT)

        def is_there() -> bool:
            # It may go on for a moment before it notices that the server is another one.
            with suppress(Unavailable):
                return taken in str(ask(second, "checkpoint.list", mission_id=mission))
            return False

        until(True, is_there)
        assert ask(first, "system.status")["epoch"] == ask(second, "system.status")["epoch"]
    finally:
        standby.clean_up()
