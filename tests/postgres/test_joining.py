"""A machine with a store of its own joins a shared store, and both stay what they were."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd.protocol.errors import NotFound
from fleetd.store.sqlite.offline import ids_in
from tests.postgres.test_daemons_of_machines import ask
from tests.support.postgres_server import LocalPostgres
from tests.support.processes import Daemon, fleetctl

Made = Callable[[], Daemon]


def use(daemon: Daemon, url: str | None) -> None:
    """Start a daemon with a server, or with its own database."""
    assert daemon.env is not None
    daemon.env.pop("FLEET_DATABASE_URL", None)
    if url is not None:
        daemon.env["FLEET_DATABASE_URL"] = url
    daemon.start()


def works(daemon: Daemon) -> tuple[str, str]:
    """Take a checkpoint of a mission, with its file; return the ids of both."""
    mission = ask(daemon, "mission.create", title="Private")["id"]
    for _ in range(20):
        ask(daemon, "event.append", type="note", mission_id=mission)
    wanted = {"mission_id": mission, "trigger": "manual", "wait_for_backup": True}
    return mission, ask(daemon, "checkpoint.create", **wanted)["id"]


def files_of(daemon: Daemon, checkpoint: str) -> list[Path]:
    assert daemon.env is not None
    return [*Path(daemon.env["FLIGHTLINE_DIR"]).rglob(f"{checkpoint}.json")]


def database_of(daemon: Daemon) -> Path:
    assert daemon.env is not None
    return Path(daemon.env["FLEET_DB_PATH"])


def test_the_checkpoints_of_its_own_store_stay_there(
    postgres: LocalPostgres, database: str, new_daemon: Made
) -> None:
    laptop, team = new_daemon(), new_daemon()
    use(laptop, None)
    mission, checkpoint = works(laptop)
    laptop.stop()
    url = postgres.url(database)
    use(team, url)
    ask(team, "mission.create", title="Shared")
    epoch = ask(team, "system.status")["epoch"]

    use(laptop, url)
    assert [each["title"] for each in ask(laptop, "mission.list")["missions"]] == ["Shared"]
    assert ask(team, "system.status")["epoch"] == epoch
    with pytest.raises(NotFound):
        ask(laptop, "checkpoint.get", checkpoint_id=checkpoint)
    assert ask(laptop, "checkpoint.verify")["ok"]
    assert "1 checkpoints here belong to" in laptop.log.read_text()
    laptop.stop()

    use(laptop, None)
    assert ask(laptop, "checkpoint.get", checkpoint_id=checkpoint)["mission_id"] == mission
    assert len(files_of(laptop, checkpoint)) == 1


def test_the_checkpoints_of_a_store_that_was_moved_belong_to_its_new_place(
    postgres: LocalPostgres, database: str, new_daemon: Made
) -> None:
    laptop = new_daemon()
    use(laptop, None)
    mission, checkpoint = works(laptop)
    laptop.stop()
    assert ids_in(database_of(laptop), "checkpoints") == [checkpoint]
    url = postgres.url(database)
    moved = fleetctl("migrate", "--to", url, "--yes", env=laptop.env)
    assert moved.status == 0, moved
    assert ids_in(database_of(laptop), "checkpoints") == []

    # The server lost everything: the files bring the mission back.
    postgres.drop_database(database)
    postgres.sql(f"CREATE DATABASE {database} OWNER fleet")
    use(laptop, url)
    assert ask(laptop, "checkpoint.get", checkpoint_id=checkpoint)["mission_id"] == mission
