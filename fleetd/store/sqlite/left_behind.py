"""What stands in the database file of a machine that shares a store now; must not change it."""

import contextlib
from pathlib import Path

import apsw

from . import page_checksums

WAIT_MS = 500


def missions_in(database: Path) -> list[str]:
    """Return the ids of the missions in a database file, none where there is no such file.

    Raises OSError for a file that cannot be read.
    """
    if not database.is_file():
        return []
    try:
        with contextlib.closing(
            page_checksums.opened(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        ) as connection:
            connection.set_busy_timeout(WAIT_MS)
            there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'missions'"
            if next(connection.execute(there), None) is None:
                return []
            return [str(row[0]) for row in connection.execute("SELECT id FROM missions")]
    except apsw.Error as error:
        raise OSError(str(error)) from error
