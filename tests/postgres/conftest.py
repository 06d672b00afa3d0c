"""What tests that need a real PostgreSQL have in common."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgres_server import LocalPostgres
from tests.support.processes import Daemon, environment


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """Run a server that several tests share: none of them may stop it."""
    with LocalPostgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[LocalPostgres]:
    """Run a server that this test may stop, kill and suspend."""
    with LocalPostgres() as server:
        yield server


@pytest.fixture
def database(postgres: LocalPostgres) -> Iterator[str]:
    """Return the name of an empty database on the server that is shared."""
    name = postgres.new_database()
    yield name
    postgres.drop_database(name)


@pytest.fixture
def new_daemon() -> Iterator[Callable[[], Daemon]]:
    """Make daemons with a home each; they are not started, and use their own database."""
    daemons: list[Daemon] = []
    homes: list[Path] = []

    def make() -> Daemon:
        homes.append(home := Path(tempfile.mkdtemp(prefix="fleet-")))
        env = environment(home)
        daemons.append(Daemon(home / "run" / "d.sock", home / "log", env=env, warm=True))
        return daemons[-1]

    yield make
    for daemon in daemons:
        daemon.clean_up()
    for home in homes:
        shutil.rmtree(home)
