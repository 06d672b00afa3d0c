"""Schema migrations of PostgreSQL."""

from collections.abc import Sequence
from importlib import resources
from typing import Any

import psycopg

from ..api import StoreRefused
from ..sqlite.migrate import numbered
from .batch import LOCK as BATCHES

# One at a time: daemons of several machines may be started, after an upgrade, in the same moment.
LOCK = 0x666C6474_0001


def migrations() -> list[tuple[int, str]]:
    """Return every migration as (number, SQL), in order."""
    return numbered(resources.files("fleetd.store") / "migrations" / "postgres")


def version_of(connection: psycopg.Connection[Any]) -> int:
    """Return the version of the schema, 0 where there is none yet."""
    there = connection.execute("SELECT to_regclass('schema_version')").fetchone()
    if there is None or there[0] is None:
        return 0
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    return int(row[0]) if row else 0


def look(connection: psycopg.Connection[Any], where: str) -> tuple[int, int]:
    """Return the version of the schema and the one that this program needs; changes nothing.

    Raises StoreRefused as ``migrate`` does.
    """
    newest = migrations()[-1][0]
    return _checked(connection, where, newest), newest


def migrate(connection: psycopg.Connection[Any], where: str) -> int:
    """Apply the migrations that are missing, all or none, and return the schema version.

    Raises StoreRefused for a newer schema and for a database of another program.
    """
    known = migrations()
    newest = known[-1][0]
    if (version := _checked(connection, where, newest)) == newest:
        return newest
    try:
        _apply(connection, where, known)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName) as error:
        raise StoreRefused(
            f"{where} has schema version {version}, this fleetd needs {newest}, and this role may"
            f" not change it ({str(error).splitlines()[0]}). Let the role that owns the tables do"
            " it: fleetctl migrate --schema --to postgresql://OWNER@HOST/DATABASE"
        ) from error
    return newest


def _apply(
    connection: psycopg.Connection[Any], where: str, known: Sequence[tuple[int, str]]
) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        # Of those at work too: whoever writes next finds the new schema, and notices.
        connection.execute(BATCHES.encode())
        version = _checked(connection, where, known[-1][0])
        for number, sql in known:
            if number > version:
                connection.execute(sql.encode())
                connection.execute("DELETE FROM schema_version")
                connection.execute("INSERT INTO schema_version (version) VALUES (%s)", (number,))


def _checked(connection: psycopg.Connection[Any], where: str, newest: int) -> int:
    """Return the version of a schema that is ours, or empty."""
    version = version_of(connection)
    if version > newest:
        raise StoreRefused(
            f"{where} has schema version {version}, this fleetd knows up to {newest}. "
            "Install the newer fleetd on this machine too."
        )
    if version == 0:
        foreign = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LIMIT 1"
        ).fetchone()
        if foreign is not None:
            raise StoreRefused(
                f"{where} holds tables of another program ({foreign[0]}). Use a separate "
                "database or schema for fleetd."
            )
    return version
