"""Schema check: compares what a database declares with the schema of its version.

A copy that somebody else made may declare more than fleetd does: a trigger would run with every
write, and a view in the place of a table would answer every read. Nothing of a database is read
before its schema is known.
"""

import functools
import hashlib
import json
import re
from importlib import resources

import apsw

from .migrate import migrations

DIGESTS = "digests.json"
SHOWN = 3
# SQLite's own: counters of AUTOINCREMENT, statistics of ANALYZE, indices of UNIQUE and PRIMARY KEY.
_OWN_TABLES = {
    "sqlite_sequence": "CREATE TABLE sqlite_sequence(name,seq)",
    "sqlite_stat1": "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "sqlite_stat4": "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}
_OWN_INDEX = "sqlite_autoindex_"

_SPACES = re.compile(r"[ \t\r\f]+")

Thing = tuple[str, str]


def differences(connection: apsw.Connection, version: int) -> list[str]:
    """Return what a database of a schema version declares otherwise, in words; empty for none."""
    found = declared(connection)
    if digest_of(found) == _digests().get(str(version)):
        return []
    expected = expected_of(version)
    return [
        *(f"it has {_called(thing)}" for thing in sorted(found.keys() - expected.keys())),
        *(f"it lacks {_called(thing)}" for thing in sorted(expected.keys() - found.keys())),
        *(
            f"{_called(thing)} is declared differently"
            for thing in sorted(found.keys() & expected.keys())
            if found[thing] != expected[thing]
        ),
    ]


def named(found: list[str]) -> str:
    """Return differences as one sentence, the first of many."""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def _called(thing: Thing) -> str:
    kind, name = thing
    return f"the {kind} {name[:80]!a}"


def declared(connection: apsw.Connection) -> dict[Thing, str]:
    """Return the SQL of everything that a database declares, by its type and name."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return {
        (str(kind), str(name)): f"{table}: {_told(str(sql))}"
        for kind, name, table, sql in rows
        if not _is_sqlites_own(kind, name, sql)
    }


def _told(sql: str) -> str:
    """Return SQL without the spaces that mean nothing.

    The end of a line means something, it ends a comment; and to SQLite no other space is one.
    """
    lines = (" ".join(_SPACES.split(line)).strip(" ") for line in sql.split("\n"))
    return "\n".join(filter(None, lines))


def _is_sqlites_own(kind: object, name: object, sql: object) -> bool:
    if kind == "index":
        return sql is None and str(name).startswith(_OWN_INDEX)
    return kind == "table" and sql is not None and _OWN_TABLES.get(str(name)) == sql


@functools.cache
def expected_of(version: int) -> dict[Thing, str]:
    """Return what the migrations up to a version declare."""
    connection = apsw.Connection(":memory:")
    try:
        for number, sql in migrations():
            if number <= version:
                connection.execute(sql)
        return declared(connection)
    finally:
        connection.close()


def digest_of(things: dict[Thing, str]) -> str:
    """Return a checksum of what is declared."""
    rows = sorted([*thing, sql] for thing, sql in things.items())
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


@functools.cache
def _digests() -> dict[str, str]:
    """Return the checksums of every version's schema; they save running all migrations."""
    file = resources.files("fleetd.store") / "migrations" / "sqlite" / DIGESTS
    found: dict[str, str] = json.loads(file.read_text("utf-8"))
    return found


def digests() -> dict[str, str]:
    """Return the checksums as they should be kept."""
    return {str(number): digest_of(expected_of(number)) for number, _ in migrations()}
