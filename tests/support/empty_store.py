"""An empty database as fleetd creates it: copying it takes a quarter of the time."""

import tempfile
from functools import cache
from pathlib import Path

from fleetd.store.sqlite.connect import open_database


def put_empty(database: Path) -> None:
    """Write an empty database of this version."""
    database.write_bytes(_empty())
    database.chmod(0o600)


@cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "squawk.db"
        open_database(path, None).close()
        return path.read_bytes()
