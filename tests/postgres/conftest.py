"""What tests that need a real PostgreSQL have in common."""

from collections.abc import Iterator

import pytest

from tests.support.postgres_server import LocalPostgres


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
