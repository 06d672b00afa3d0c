"""Schema migrations of SQLite."""

import re
from importlib import resources
from importlib.abc import Traversable

import apsw

from ..api import StoreRefused

APPLICATION_ID = 0x666C6474  # "fldt": so that file(1) and we can tell our databases from others
_NUMBERED = re.compile(r"(\d{4})_[a-z0-9_]+\.sql\Z")


def migrations() -> list[tuple[int, str]]:
    """Return every migration as (number, SQL), in order."""
    return numbered(resources.files("fleetd.store") / "migrations" / "sqlite")


def numbered(folder: Traversable) -> list[tuple[int, str]]:
    """Return the migrations of a folder as (number, SQL), in order."""
    return sorted(
        (int(match[1]), entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if (match := _NUMBERED.match(entry.name))
    )


def newest() -> int:
    """Return the schema version of this program."""
    return migrations()[-1][0]


def schema() -> str:
    """Return the schema that all migrations together produce."""
    return (resources.files("fleetd.store") / "migrations" / "sqlite" / "schema.sql").read_text(
        "utf-8"
    )


def check_ours(connection: apsw.Connection, path: str) -> int:
    """Return the schema version of a database, 0 for an empty one; changes nothing.

    Raises StoreRefused for a newer schema and for a database of another program.
    """
    foreign = connection.execute("SELECT name FROM sqlite_schema LIMIT 1").fetchone()
    if foreign is not None and connection.pragma("application_id") != APPLICATION_ID:
        raise StoreRefused(
            f"{path} is a database of another program (it has {foreign[0]}). "
            "Set FLEET_DB_PATH to another path."
        )
    version: int = connection.pragma("user_version")
    if version > newest():
        raise StoreRefused(
            f"{path} has schema version {version}, this fleetd knows up to {newest()}. "
            "Install the newer fleetd again, or restore a backup from before the upgrade."
        )
    return version


def migrate(connection: apsw.Connection, path: str) -> int:
    """Apply the migrations that are missing, all or none, and return the schema version.

    If one of them fails, none is applied, so that the earlier fleetd can still use the database.
    Raises StoreRefused for a newer schema and for a database of another program.
    """
    version = check_ours(connection, path)
    missing = [(number, sql) for number, sql in migrations() if number > version]
    if not missing:
        return version
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, sql in missing:
            connection.execute(sql)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return missing[-1][0]
