"""Server checks: whether it keeps what fleetd promises, and a look at it before a start."""

from contextlib import closing

import psycopg
from psycopg.errors import DataCorrupted, IndexCorrupted

from ...protocol.errors import Storage
from ..api import StoreRefused
from .connection import ServerConnection, connect, name_of, shown_version
from .errors import ServerAway, as_away, schema_refusal, server_message
from .migrate import look
from .url import display_name

_DAMAGED = (DataCorrupted, IndexCorrupted)
_LONG_S = 3_600.0
# Each row is a finding.
_SETTINGS = """
SELECT name || ' is ' || setting || ': ' || why FROM (VALUES
    ('fsync', 'off', 'a crash of the server loses or damages what was acknowledged'),
    ('full_page_writes', 'off', 'a crash of the server may damage its tables')
) AS wrong (named, bad, why) JOIN pg_settings ON name = named AND setting = bad
"""
_INDEXES = """
SELECT 'the index ' || relname || ' is not valid: REINDEX INDEX ' || relname || ' on the server'
FROM pg_index JOIN pg_class ON oid = indexrelid
WHERE relnamespace = current_schema()::regnamespace AND NOT (indisvalid AND indisready)
"""
_PRIVILEGES = """
SELECT 'the role ' || current_user || ' may not ' || lower(privilege) || ' in ' || relname
FROM pg_class, (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS needed (privilege)
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
    AND NOT has_table_privilege(pg_class.oid, privilege)
"""
_AMCHECK = """
SELECT p.oid::regprocedure::text FROM pg_extension e JOIN pg_proc p ON pronamespace = extnamespace
WHERE extname = 'amcheck' AND proname = 'bt_index_check' AND pronargs = 1
    AND has_function_privilege(p.oid, 'EXECUTE')
"""
_BTREES = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_am a ON a.oid = relam
JOIN pg_index i ON i.indexrelid = c.oid
WHERE relnamespace = current_schema()::regnamespace AND amname = 'btree' AND indisvalid
"""
_TABLES = """
SELECT oid::regclass::text, pg_has_role(relowner, 'USAGE') FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY 1
"""


class ServerUnusable(Exception):
    """The server cannot be used; names it, the step, and whether a start is refused for it."""

    def __init__(self, where: str, gone: ServerAway) -> None:
        super().__init__(f"cannot be used ({gone.step}): {gone.message}")
        self.where = where
        self.final = gone.final


def probe(url: str) -> tuple[str, str]:
    """Return what the server is called, and what a start would find there.

    Raises StoreRefused for a URL that is none, ServerUnusable for everything else.
    """
    where = display_name(url)
    try:
        with closing(connect(url, "doctor")) as connection:
            return name_of(connection), f"{shown_version(connection)}, {_schema(connection, where)}"
    except ServerAway as gone:
        raise ServerUnusable(where, gone) from None


def _schema(connection: ServerConnection, where: str) -> str:
    try:
        version, newest = look(connection, where)
    except StoreRefused as error:
        raise schema_refusal(error, where) from None
    except psycopg.Error as error:
        raise as_away(error, "opening") from None
    if version == newest:
        return f"schema version {version}"
    there = f"schema version {version}" if version else "no tables yet"
    return f"{there}: a start makes version {newest}, where its role may"


def size_of(connection: ServerConnection) -> int:
    """Return the bytes that the tables of the store take, with their indexes."""
    row = connection.execute(
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
        " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
    ).fetchone()
    return int(row[0] or 0) if row else 0


def findings(connection: ServerConnection) -> list[str]:
    """Return what is wrong with the server and its tables, a sentence each."""
    with connection.without_timeout(_LONG_S):
        found = [
            str(row[0])
            for query in (_SETTINGS, _INDEXES, _PRIVILEGES)
            for row in connection.execute(query.encode()).fetchall()
        ]
        return found + _damage(connection)


def _damage(connection: ServerConnection) -> list[str]:
    """Look through every index, where the administrator has installed what can."""
    row = connection.execute(_AMCHECK.encode()).fetchone()
    if row is None:
        return []
    function = str(row[0]).partition("(")[0]
    found = []
    for (index,) in connection.execute(_BTREES.encode()).fetchall():
        try:
            connection.execute(f"SELECT {function}(%s::regclass)".encode(), (index,))
        except _DAMAGED as error:
            found.append(f"the index {index} is damaged: {server_message(error)}")
    return found


def scrub(connection: ServerConnection) -> None:
    """Rewrite every table without what was deleted from it; writers wait for each meanwhile."""
    with connection.without_timeout(_LONG_S):
        for name, ours in connection.execute(_TABLES.encode()).fetchall():
            if not ours:
                raise Storage(
                    f"The table {name} belongs to another role, so deleted rows are still"
                    " in its file.",
                    hint="Let its owner run VACUUM FULL.",
                )
            connection.execute(f"VACUUM (FULL, ANALYZE) {name}".encode())
