"""Daemons of one PostgreSQL, and one with a private file; must not measure anything."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.network import Network
from tests.support.postgres_server import OWNER, LocalPostgres

from ..fleet import Fleet, running


@contextmanager
def sharing(place: Path, server: LocalPostgres, number: int) -> Iterator[list[Fleet]]:
    """Run so many daemons on a new database of a server, over its Unix socket."""
    database = server.new_database()
    with ExitStack() as stack:
        yield [
            stack.enter_context(_daemon(place / f"{database}-{n}", server.url(database)))
            for n in range(number)
        ]


@contextmanager
def far(
    place: Path, server: LocalPostgres, delay_ms: float, number: int = 1
) -> Iterator[tuple[list[Fleet], Network]]:
    """Run daemons with a network delay for every message to and from the server."""
    database = server.new_database()
    with Network(server.port, number, delay_ms=delay_ms) as network, ExitStack() as stack:
        fleets = []
        for n, port in enumerate(network.ports):
            url = f"postgresql://{OWNER}@127.0.0.1:{port}/{database}"
            fleets.append(stack.enter_context(_daemon(place / f"{database}-{n}", url)))
        yield fleets, network


@contextmanager
def alone(place: Path) -> Iterator[Fleet]:
    """Run a daemon with a private database file."""
    (place / "alone").mkdir()
    with running(place / "alone") as fleet:
        yield fleet


@contextmanager
def _daemon(directory: Path, url: str) -> Iterator[Fleet]:
    directory.mkdir()
    with running(directory, FLEET_DATABASE_URL=url) as fleet:
        yield fleet
